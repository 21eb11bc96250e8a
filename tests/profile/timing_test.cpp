#include "profile/timing.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "comm/local/local_communicator.hpp"

namespace sluice::profile {
namespace {

/// Every rank's timing of a body whose calls take the given milliseconds, the last one from then on, by a clock of its own.
std::array<Timing, 2> timed(const std::array<std::deque<double>, 2>& milliseconds, bool may_repeat, std::array<int, 2>* calls = nullptr) {
  std::array<Timing, 2> timings;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    std::deque<double> script = milliseconds[rank];
    std::int64_t now = 0;
    int count = 0;
    const auto body = [&] {
      ++count;
      now += static_cast<std::int64_t>(script.front() * 1e6);
      if (script.size() > 1) script.pop_front();
    };
    timings[rank] = time_together(world, body, may_repeat, [&] { return now; });
    if (calls != nullptr) (*calls)[rank] = count;
  });
  return timings;
}

TEST(Timing, OfAQuietMachineIsTheLowerQuartileAndTakenOnce) {
  std::array<int, 2> calls{};
  const auto timings = timed({std::deque<double>{50, 50, 52, 50, 51}, {50, 50, 50, 54, 50}}, true, &calls);
  EXPECT_DOUBLE_EQ(timings[0].seconds, 0.050);
  EXPECT_DOUBLE_EQ(timings[1].seconds, 0.050);
  EXPECT_TRUE(timings[0].is_steady());
  EXPECT_EQ(calls[0], 2 + 3);  // to warm, to count, and as many as fill 0.15 s
  EXPECT_EQ(calls[0], calls[1]);
}

TEST(Timing, ThatWasDisturbedIsTakenAgain) {
  // One rank's repeats differ: both take theirs again.
  const auto timings = timed({std::deque<double>{50, 50, 50, 120, 120, 55}, {60}}, true);
  for (const Timing& timing : timings) EXPECT_TRUE(timing.is_steady());
  EXPECT_DOUBLE_EQ(timings[0].seconds, 0.055);
  EXPECT_DOUBLE_EQ(timings[1].seconds, 0.060);
  // One rank is slower than the other all the time.
  const auto shared = timed({std::deque<double>{50}, {50, 50, 100, 100, 100, 52}}, true);
  for (const Timing& timing : shared) EXPECT_TRUE(timing.is_steady());
  EXPECT_DOUBLE_EQ(shared[1].seconds, 0.052);
}

TEST(Timing, ThatIsDisturbedTwiceSaysSoOnEveryRank) {
  std::array<int, 2> calls{};
  const std::array<std::deque<double>, 2> restless{std::deque<double>{50, 50, 50, 120, 120, 50, 90, 100}, {60}};
  for (const Timing& timing : timed(restless, true, &calls)) {
    EXPECT_FALSE(timing.is_steady());
    EXPECT_NEAR(timing.spread, 1.8, 1e-3) << "of the two the better";
  }
  EXPECT_EQ(calls[0], 2 + 2 * 3);
  EXPECT_DOUBLE_EQ(timed(restless, true)[0].seconds, 0.050);
  for (const Timing& timing : timed({std::deque<double>{50}, {100}}, true)) {
    EXPECT_FALSE(timing.is_steady());
    EXPECT_NEAR(timing.apart, 2, 1e-3);
  }
  // Where there is no time left for it.
  for (const Timing& timing : timed(restless, false, &calls)) EXPECT_NEAR(timing.spread, 2.4, 1e-3);
  EXPECT_EQ(calls[0], 2 + 3);
}

}  // namespace
}  // namespace sluice::profile
