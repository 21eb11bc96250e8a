#include "data/permutation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace sluice::data {
namespace {

TEST(Permutation, IsABijectionForEverySmallSize) {
  for (std::int64_t count = 1; count <= 300; ++count) {
    const Permutation p(count, 7, 3);
    std::set<std::int64_t> seen;
    for (std::int64_t place = 0; place < count; ++place) {
      const std::int64_t value = p(place);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, count);
      seen.insert(value);
    }
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(count));
  }
}

TEST(Permutation, IsABijectionOfALargerSize) {
  constexpr std::int64_t kCount = 65'537;  // one beyond a power of four: the most values outside
  const Permutation p(kCount, 1, 0);
  std::vector<bool> seen(kCount);
  for (std::int64_t place = 0; place < kCount; ++place) {
    const auto value = static_cast<std::size_t>(p(place));
    ASSERT_FALSE(seen[value]);
    seen[value] = true;
  }
}

TEST(Permutation, DependsOnSeedAndEpochOnly) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    const Permutation p(100, seed, epoch);
    std::vector<std::int64_t> values;
    for (std::int64_t place = 0; place < 100; ++place) values.push_back(p(place));
    return values;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
}

TEST(Permutation, ReachesEveryArrangementAboutEquallyOften) {
  // 24 arrangements of 4, 12000 epochs: 500 each, standard deviation 22.
  std::map<std::array<std::int64_t, 4>, int> counts;
  for (std::int64_t epoch = 0; epoch < 12'000; ++epoch) {
    const Permutation p(4, 1, epoch);
    ++counts[{p(0), p(1), p(2), p(3)}];
  }
  std::map<std::int64_t, int> of_five;
  for (std::int64_t epoch = 0; epoch < 10'000; ++epoch) ++of_five[Permutation(5, 1, epoch)(2)];
  for (const auto& [value, count] : of_five) EXPECT_NEAR(count, 2000, 5 * 40) << value;
  EXPECT_EQ(counts.size(), 24U);
  for (const auto& [arrangement, count] : counts) EXPECT_NEAR(count, 500, 5 * 22);
}

TEST(Permutation, LeavesFewNeighboursTogether) {
  constexpr std::int64_t kCount = 10'000;
  const Permutation p(kCount, 5, 0);
  int fixed = 0;
  int neighbours = 0;
  double product = 0;  // of place and value, both centred
  for (std::int64_t place = 0; place < kCount; ++place) {
    fixed += p(place) == place ? 1 : 0;
    neighbours += place > 0 && std::abs(p(place) - p(place - 1)) == 1 ? 1 : 0;
    product += (static_cast<double>(place) - kCount / 2.0) * (static_cast<double>(p(place)) - kCount / 2.0);
  }
  EXPECT_LE(fixed, 8);                                                                        // 1 on average
  EXPECT_LE(neighbours, 12);                                                                  // 2 on average
  EXPECT_LT(std::abs(product / (kCount * static_cast<double>(kCount) * kCount / 12)), 0.05);  // correlation; deviation 0.01
}

TEST(Permutation, ServesHugeCounts) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 50) + 12'345;
  const Permutation p(kCount, 1, 0);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t value = p(kCount - 1 - i);
    EXPECT_GE(value, 0);
    EXPECT_LT(value, kCount);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_THROW(p(kCount), LogicError);
  EXPECT_THROW(p(-1), LogicError);
  EXPECT_THROW(Permutation(0, 1, 0), LogicError);
}

TEST(Permutation, NeverChanges) {
  // A resumed run must see the order that it was started with, whatever the version.
  const Permutation p(10, 1, 0);
  std::vector<std::int64_t> values;
  for (std::int64_t place = 0; place < 10; ++place) values.push_back(p(place));
  EXPECT_EQ(values, (std::vector<std::int64_t>{7, 0, 9, 6, 4, 3, 2, 8, 5, 1}));
}

}  // namespace
}  // namespace sluice::data
