#include "app/memory_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.hpp"

namespace sluice::app {
namespace {

TEST(MemoryWatch, UnplannedIsWhatNeitherThePlanNorTheStartExplains) {
  const MemoryWatch watch({.planned_bytes = 1000, .before_bytes = 200, .margin_bytes = 500});
  EXPECT_EQ(watch.unplanned(1300), 100);
  EXPECT_EQ(watch.unplanned(1100), -100);
}

TEST(MemoryWatch, WarnsOnceHalfOfTheMarginIsGoneAndAtEachDoubling) {
  MemoryWatch watch({.planned_bytes = 4 * kGiB, .before_bytes = 100 * kMiB, .margin_bytes = 1 * kGiB});
  const std::int64_t base = 4 * kGiB + 100 * kMiB;
  EXPECT_FALSE(watch.judge(base + 512 * kMiB));
  const auto first = watch.judge(base + 600 * kMiB);
  ASSERT_TRUE(first);
  EXPECT_THAT(*first, testing::HasSubstr("unplanned memory of this rank is 600 MiB"));
  EXPECT_THAT(*first, testing::HasSubstr("of a margin of 1.00 GiB"));
  EXPECT_FALSE(watch.judge(base + 1200 * kMiB));
  EXPECT_TRUE(watch.judge(base + 1201 * kMiB));
  EXPECT_FALSE(watch.judge(base + 1300 * kMiB));
}

TEST(MemoryWatch, WithoutAMarginAnyByteIsTooMany) {
  MemoryWatch watch({.planned_bytes = 1000, .before_bytes = 0, .margin_bytes = -50});
  EXPECT_FALSE(watch.judge(1000));
  EXPECT_TRUE(watch.judge(1001));
}

TEST(MemoryWatch, LooksAtThisProcessAtMostEveryHalfMinute) {
  MemoryWatch watch({.planned_bytes = 0, .before_bytes = 0, .margin_bytes = 0});
  EXPECT_TRUE(watch.look());
  EXPECT_FALSE(watch.look());
}

}  // namespace
}  // namespace sluice::app
