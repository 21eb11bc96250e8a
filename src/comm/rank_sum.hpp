#pragma once
// The arithmetic of post_scatter.

#include <cstdint>

namespace sluice::comm {

/// Adds `count` >= 1 vectors of n f32 in the order given:
///   out[i] = (accumulate ? out[i] : 0) + (((v[0][i] + v[1][i]) + v[2][i]) + ...)
/// where without accumulate nothing is added first. Elementwise, so the bits depend neither on n nor on the instructions
/// chosen at run time. `out` may be one of the vectors when accumulate is false; they don't overlap otherwise.
void sum_in_rank_order(const float* const* vectors, int count, float* out, std::int64_t n, bool accumulate);

}  // namespace sluice::comm
