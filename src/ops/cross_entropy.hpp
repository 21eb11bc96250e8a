#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

inline constexpr std::int32_t kIgnoredTarget = -1;

/// Softmax cross-entropy of a tile of rows, in place.
/// logits [n, V] (stride ld): read, and replaced by d loss / d logits = (softmax - onehot) * scale if `gradient`, rows with an
/// ignored target by zeros. targets [n] i32, kIgnoredTarget or in [0, V).
/// Returns the sum over counted rows of -log softmax[target], row losses computed in f64 from f32 logits, added in row order.
double cross_entropy(const Context& ctx, float* logits, std::int64_t n, std::int64_t v, std::int64_t ld, const std::int32_t* targets,
                     float scale, bool gradient);

}  // namespace sluice::ops
