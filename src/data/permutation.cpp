#include "data/permutation.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/rng.hpp"

namespace sluice::data {
namespace {
constexpr std::uint32_t kRounds = 10;  // four suffice for large halves; tiny ones need more to look random
}

Permutation::Permutation(std::int64_t count, std::uint64_t seed, std::int64_t epoch)
    : count_(static_cast<std::uint64_t>(count)), key_(rng_key(seed, RngPurpose::kShuffle, static_cast<std::uint64_t>(epoch))) {
  SLUICE_CHECK(count >= 1 && count <= std::int64_t{1} << 62, "a permutation of ", count);
  half_bits_ = std::max(1U, (static_cast<unsigned>(std::bit_width(count_ - 1)) + 1) / 2);
}

std::int64_t Permutation::operator()(std::int64_t place) const {
  SLUICE_CHECK(place >= 0 && static_cast<std::uint64_t>(place) < count_, "place ", place, " of ", count_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(place);
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const Philox4 words = philox({static_cast<std::uint32_t>(right), round, 0, 0}, key_);
      const std::uint64_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= count_);
  return static_cast<std::int64_t>(value);
}

}  // namespace sluice::data
