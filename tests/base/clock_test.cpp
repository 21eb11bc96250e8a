#include "base/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sluice {
namespace {

TEST(Clock, NeverGoesBack) {
  std::int64_t previous = now_ns();
  for (int i = 0; i < 100'000; ++i) {
    const std::int64_t now = now_ns();
    ASSERT_GE(now, previous);
    previous = now;
  }
}

TEST(Clock, CountsNanoseconds) {
  const std::int64_t begin = now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::int64_t elapsed = now_ns() - begin;
  EXPECT_GE(elapsed, 20'000'000);
  EXPECT_LT(elapsed, 10'000'000'000);
}

TEST(Clock, WallSecondsAreUnixTime) {
  const double expected = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(wall_seconds(), expected, 5.0);
}

}  // namespace
}  // namespace sluice
