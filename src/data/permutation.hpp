#pragma once
#include <array>
#include <cstdint>

namespace sluice::data {

/// A random permutation of [0, count) that is computed, not stored: place by place, in O(1) memory.
///
/// A Feistel network with 10 rounds on the smallest even number of bits that holds `count` (so at most 4 * count values), whose
/// round function is Philox keyed by (seed, shuffle, epoch); a value that falls outside [0, count) is sent through again until
/// one falls inside (fewer than four passes on average), which keeps it a bijection of [0, count).
/// Source: Luby & Rackoff 1988 (Feistel networks as pseudorandom permutations); Black & Rogaway 2002, "Ciphers with Arbitrary
/// Finite Domains", section 4 (cycle walking).
class Permutation {
 public:
  /// count in [1, 2^62].
  Permutation(std::int64_t count, std::uint64_t seed, std::int64_t epoch);
  /// place in [0, count) -> [0, count), one to one.
  std::int64_t operator()(std::int64_t place) const;

 private:
  std::uint64_t count_;
  unsigned half_bits_;
  std::array<std::uint32_t, 2> key_;
};

}  // namespace sluice::data
