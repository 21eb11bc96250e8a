#include "base/rng.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace {

// The known answers that come with Random123 (Salmon et al.), file kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Philox4{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  constexpr std::uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}), (Philox4{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Philox4{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

// Computed apart from this code, in Python integers. They are written into results: a change breaks every old run.
TEST(RngKey, IsPinned) {
  EXPECT_EQ(rng_key(1, RngPurpose::kInit, 0), (std::array<std::uint32_t, 2>{0xb8137eb6u, 0x964fa02cu}));
  EXPECT_EQ(rng_key(42, RngPurpose::kShuffle, 7), (std::array<std::uint32_t, 2>{0x8ad9b0b4u, 0xf73d01ceu}));
}

TEST(RngKey, DiffersBySeedPurposeAndStream) {
  std::set<std::array<std::uint32_t, 2>> keys;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (const RngPurpose purpose : {RngPurpose::kInit, RngPurpose::kDropout, RngPurpose::kShuffle, RngPurpose::kSample}) {
      for (const std::uint64_t stream : {0, 1, 2, 3}) keys.insert(rng_key(seed, purpose, stream));
    }
  }
  EXPECT_EQ(keys.size(), 3u * 4u * 4u);
}

TEST(UniformFrom, CoversTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform_from(0), 0.0f);
  EXPECT_EQ(uniform_from(0x80000000u), 0.5f);
  EXPECT_EQ(uniform_from(0xffffffffu), 1.0f - 0x1.0p-24f);
}

TEST(NormalAt, IsPinned) {
  const auto key = rng_key(1, RngPurpose::kInit, 0);
  EXPECT_FLOAT_EQ(normal_at(key, 0), -0.0298959166f);
  EXPECT_FLOAT_EQ(normal_at(key, 1), -0.642374933f);
  EXPECT_FLOAT_EQ(normal_at(key, 2), 0.141960606f);
  EXPECT_FLOAT_EQ(normal_at(key, 3), 0.99585408f);
  EXPECT_FLOAT_EQ(normal_at(key, std::uint64_t{1} << 33), -1.47174871f);  // beyond 32 bits of counter
}

TEST(NormalAt, IsStandardNormal) {
  const auto key = rng_key(7, RngPurpose::kInit, 3);
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0;
  float previous = 0;
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) {
    const float x = normal_at(key, static_cast<std::uint64_t>(i));
    values[static_cast<std::size_t>(i)] = x;
    sum += x;
    squares += static_cast<double>(x) * x;
    cubes += std::pow(static_cast<double>(x), 3);
    fourths += std::pow(static_cast<double>(x), 4);
    neighbours += static_cast<double>(x) * previous;
    previous = x;
  }
  // Five standard errors of each mean: sqrt(1, 2, 15, 96, 1) / sqrt(n).
  const double unit = 5.0 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(sum / kCount, 0.0, unit);
  EXPECT_NEAR(squares / kCount, 1.0, unit * std::sqrt(2.0));
  EXPECT_NEAR(cubes / kCount, 0.0, unit * std::sqrt(15.0));
  EXPECT_NEAR(fourths / kCount, 3.0, unit * std::sqrt(96.0));
  EXPECT_NEAR(neighbours / kCount, 0.0, unit);  // the two of a pair are independent

  // Kolmogorov-Smirnov against the normal distribution; 1.95 / sqrt(n) is its 0.1 % point.
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (int i = 0; i < kCount; ++i) {
    const double expected = 0.5 * std::erfc(-static_cast<double>(values[static_cast<std::size_t>(i)]) / std::sqrt(2.0));
    distance = std::max({distance, std::abs(expected - static_cast<double>(i) / kCount), std::abs(expected - (i + 1.0) / kCount)});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(static_cast<double>(kCount)));
}

TEST(BoundedAt, IsPinned) {
  const auto key = rng_key(42, RngPurpose::kShuffle, 7);
  const std::array<std::uint64_t, 5> expected{137, 968, 476, 258, 352};
  for (std::uint64_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bounded_at(key, i, 1000), expected[i]);
  // Just above 2^63 every second word is rejected, so that the retries are pinned too: index 5 needs six.
  const std::uint64_t above_half = (std::uint64_t{1} << 63) + 1;
  EXPECT_EQ(bounded_at(key, 0, above_half), 1069858125708509328u);
  EXPECT_EQ(bounded_at(key, 2, above_half), 1579986663982024388u);
  EXPECT_EQ(bounded_at(key, 5, above_half), 2011229220816558638u);
}

TEST(BoundedAt, StaysBelowItsBound) {
  const auto key = rng_key(3, RngPurpose::kShuffle, 0);
  for (const std::uint64_t bound : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_LT(bounded_at(key, i, bound), bound);
  }
}

TEST(BoundedAt, IsUniform) {
  const auto key = rng_key(11, RngPurpose::kShuffle, 5);
  constexpr std::uint64_t kBound = 10;
  constexpr int kCount = 100'000;
  std::array<double, kBound> seen{};
  for (std::uint64_t i = 0; i < kCount; ++i) seen[bounded_at(key, i, kBound)] += 1;
  double chi_squared = 0;
  for (const double count : seen) chi_squared += (count - kCount / 10.0) * (count - kCount / 10.0) / (kCount / 10.0);
  EXPECT_LT(chi_squared, 27.88);  // 0.1 % point with nine degrees of freedom
}

TEST(BoundedAt, RefusesAnEmptyRange) {
  EXPECT_THROW(bounded_at({1, 2}, 0, 0), LogicError);
}

}  // namespace
}  // namespace sluice
