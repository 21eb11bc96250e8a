#pragma once
// The squared norm of a gradient, exact in its order: independent of chunks, shards, ranks and threads.

#include <array>
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

inline constexpr std::int64_t kNormBlock = 256;  // elements; parameters start at multiples of it

/// A sum of fp64 numbers as integers: limb i counts multiples of 2^(32 i - 320), so integer sums of limbs, in any order, over
/// any ranks, give the same number. Covers every square of an f32 block sum (2^-298 .. 2^264) with 31 bits of headroom.
struct NormAccumulator {
  static constexpr int kLimbs = 20;
  std::array<std::int64_t, kLimbs> limbs{};
  std::int64_t nonfinite = 0;  // blocks whose sum isn't finite
  void add(double block_sum);
  void merge(const NormAccumulator& other);
  /// The sum rounded to fp64 (limbs from the highest); NaN if any block wasn't finite.
  double value() const;
};

/// Adds the sums of squares of x[n]'s blocks of 256 elements: each block in fp64 in an order fixed by the op (8 lanes strided,
/// then lane order), the last block may be shorter. Block boundaries at multiples of 256 from x.
void add_squared_norm(const Context& ctx, const float* x, std::int64_t n, NormAccumulator& accumulator);

}  // namespace sluice::ops
