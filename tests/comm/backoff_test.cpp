#include "comm/backoff.hpp"

#include <gtest/gtest.h>
#include <ctime>

namespace sluice::comm {
namespace {

std::int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

TEST(Backoff, AnIdlePollerCostsLittle) {
  Backoff backoff;
  const std::int64_t begin = now_ns();
  const std::int64_t cpu_begin = thread_cpu_ns();
  while (now_ns() - begin < 500'000'000) backoff.idle();
  const double share = static_cast<double>(thread_cpu_ns() - cpu_begin) / static_cast<double>(now_ns() - begin);
  EXPECT_LT(share, 0.05);
}

TEST(Backoff, IsHotAgainAfterProgress) {
  Backoff backoff;
  for (int i = 0; i < 20; ++i) backoff.idle();
  backoff.idle();
  std::int64_t fastest = 1'000'000'000;
  for (int attempt = 0; attempt < 50; ++attempt) {
    backoff.moved();
    const std::int64_t begin = now_ns();
    backoff.idle();
    fastest = std::min(fastest, now_ns() - begin);
  }
  EXPECT_LT(fastest, 20'000);  // ns; a sleep takes longer
}

}  // namespace
}  // namespace sluice::comm
