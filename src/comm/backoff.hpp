#pragma once
// How a thread that polls waits: hot while something moves, then yielding, then asleep.

#include <chrono>
#include <cstdint>
#include <thread>

#include "base/clock.hpp"

namespace sluice::comm {

/// One per polling loop. Call `moved()` when a poll found progress, `idle()` when it did not: the first 50 microseconds of
/// idleness yield the processor, later calls sleep, doubling from 20 to 500 microseconds, so that an idle poller costs a few
/// percent of a core and a busy one wakes within a poll.
class Backoff {
 public:
  void moved() noexcept { idle_since_ns_ = 0; }

  void idle() {
    const std::int64_t now = now_ns();
    if (idle_since_ns_ == 0) {
      idle_since_ns_ = now;
      sleep_ = kFirstSleep;
    }
    if (now - idle_since_ns_ < kHotNs) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = sleep_ * 2 < kLongestSleep ? sleep_ * 2 : kLongestSleep;
  }

 private:
  static constexpr std::int64_t kHotNs = 50'000;
  static constexpr std::chrono::microseconds kFirstSleep{20};
  static constexpr std::chrono::microseconds kLongestSleep{500};

  std::int64_t idle_since_ns_ = 0;  // 0: the last poll moved something
  std::chrono::microseconds sleep_ = kFirstSleep;
};

}  // namespace sluice::comm
