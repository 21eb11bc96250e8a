#include "profile/trace_ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace sluice::profile {
namespace {

using ::testing::ElementsAre;

TraceSpan span(std::int64_t subject) {
  return {"compute", 0, subject, 0, 1};
}

std::vector<std::int64_t> subjects(const std::vector<StepSpan>& spans) {
  std::vector<std::int64_t> result;
  for (const StepSpan& s : spans) result.push_back(s.span.subject);
  return result;
}

TEST(TraceRing, KeepsTheLastSpansInOrder) {
  TraceRing ring(3);  // holds 4
  EXPECT_TRUE(ring.spans().empty());
  for (int i = 0; i < 3; ++i) ring.emit(span(i));
  EXPECT_THAT(subjects(ring.spans()), ElementsAre(0, 1, 2));
  for (int i = 3; i < 10; ++i) ring.emit(span(i));
  EXPECT_THAT(subjects(ring.spans()), ElementsAre(6, 7, 8, 9));
  EXPECT_EQ(ring.count(), 10);
}

TEST(TraceRing, GivesWholeStepsOnly) {
  TraceRing ring(8);
  for (std::int64_t step = 1; step <= 4; ++step) {
    ring.begin_step(step);
    for (int i = 0; i < 3; ++i) ring.emit(span(10 * step + i));
  }
  // Twelve were emitted, eight are kept: step 2 has lost its first.
  EXPECT_THAT(subjects(ring.spans()), ElementsAre(21, 22, 30, 31, 32, 40, 41, 42));
  EXPECT_THAT(subjects(ring.last_steps(9)), ElementsAre(30, 31, 32, 40, 41, 42));
  EXPECT_THAT(subjects(ring.last_steps(1)), ElementsAre(40, 41, 42));
}

TEST(TraceRing, TakesSpansOfManyThreads) {
  TraceRing ring(4096);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ring, t] {
      for (int i = 0; i < 1000; ++i) ring.emit(span(1000 * t + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::int64_t> all = subjects(ring.spans());
  ASSERT_EQ(all.size(), 4000);
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int64_t>(i));
}

}  // namespace
}  // namespace sluice::profile
