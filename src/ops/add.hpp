#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// sum[i] = sum[i] + x[i], in f32. 12 bytes an element of traffic. Bits independent of threads and body. x and sum don't overlap.
void add(const Context& ctx, const float* x, std::int64_t n, float* sum);

}  // namespace sluice::ops
