#include "base/rng.hpp"

#include <cmath>
#include <numbers>

#include "base/check.hpp"
#include "base/hash.hpp"

namespace sluice {

std::array<std::uint32_t, 2> rng_key(std::uint64_t seed, RngPurpose purpose, std::uint64_t stream) {
  const std::uint64_t value = Hash().add(seed).add(static_cast<std::uint64_t>(purpose)).add(stream).value();
  return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)};
}

std::array<float, 2> normal_pair_at(std::array<std::uint32_t, 2> key, std::uint64_t pair) {
  const Philox4 words = philox({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), 0, 0}, key);
  const std::uint64_t a = (static_cast<std::uint64_t>(words[0]) << 32 | words[1]) >> 11;
  const std::uint64_t b = (static_cast<std::uint64_t>(words[2]) << 32 | words[3]) >> 11;
  const double u = (static_cast<double>(a) + 1.0) * 0x1.0p-53;  // in (0, 1]
  const double v = static_cast<double>(b) * 0x1.0p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

float normal_at(std::array<std::uint32_t, 2> key, std::uint64_t index) {
  return normal_pair_at(key, index / 2)[index % 2];
}

std::uint64_t bounded_at(std::array<std::uint32_t, 2> key, std::uint64_t index, std::uint64_t bound) {
  SLUICE_CHECK(bound > 0, "an empty range has no random number");
  const std::uint64_t threshold = (0 - bound) % bound;  // 2^64 mod bound
  for (std::uint32_t attempt = 0;; ++attempt) {
    const Philox4 words = philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), attempt, 1}, key);
    const std::uint64_t word = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
    if (word >= threshold) return word % bound;
  }
}

}  // namespace sluice
