#pragma once
// Counter-based random numbers: every number is a function of (seed, purpose, step, position), so that any layout,
// recompute or resume draws the same one.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11), Philox4x32-10.

#include <array>
#include <cstdint>

namespace sluice {

/// What a stream of random numbers is for; part of the key. The values are written into results: never renumber.
enum class RngPurpose : std::uint32_t { kInit = 1, kDropout = 2, kShuffle = 3, kSample = 4 };

using Philox4 = std::array<std::uint32_t, 4>;

/// Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key.
inline Philox4 philox(Philox4 counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(kM0) * counter[0];
    const std::uint64_t p1 = static_cast<std::uint64_t>(kM1) * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kW0;
    key[1] += kW1;
  }
  return counter;
}

/// The key of a stream: the seed, the purpose and a number within the purpose (a parameter's, a dropout site's).
std::array<std::uint32_t, 2> rng_key(std::uint64_t seed, RngPurpose purpose, std::uint64_t stream);

/// Uniform in [0, 1) with 24 bits.
inline float uniform_from(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

/// Standard normal number of index `index` in the stream `key` (Box-Muller in fp64, rounded once to fp32).
float normal_at(std::array<std::uint32_t, 2> key, std::uint64_t index);
/// The numbers of index 2 pair and 2 pair + 1, at little more than the price of one.
std::array<float, 2> normal_pair_at(std::array<std::uint32_t, 2> key, std::uint64_t pair);

/// Uniform integer in [0, bound) for a permutation or a draw; unbiased by rejection over the counter's last word.
std::uint64_t bounded_at(std::array<std::uint32_t, 2> key, std::uint64_t index, std::uint64_t bound);

}  // namespace sluice
