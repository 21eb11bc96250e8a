// Who may ask for a stop, and that no signal handler ever runs on a thread that computes.

#include "train/stop.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::train {
namespace {

bool is_blocked_here(int number) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, number) == 1;
}

TEST(StopSource, CountsSignalsToTheProcess) {
  StopSource stop("");
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(stop.reason(), "");
  ::kill(::getpid(), SIGUSR2);
  EXPECT_TRUE(stop.requested());
  EXPECT_FALSE(stop.hastened());
  EXPECT_EQ(stop.reason(), "SIGUSR2");
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(stop.hastened());
  EXPECT_EQ(stop.reason(), "SIGUSR2");
}

// A handler's frame on the stack of a thread inside oneDNN's sgemm damages what that keeps there.
TEST(StopSource, ThreadsStartedLaterRunNoHandler) {
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGALRM}) {
    EXPECT_FALSE(is_blocked_here(number));
    {
      const StopSource stop("");
      EXPECT_TRUE(is_blocked_here(number));
      std::thread([&] { EXPECT_TRUE(is_blocked_here(number)); }).join();
    }
    EXPECT_FALSE(is_blocked_here(number));
  }
}

TEST(StopSource, AThreadThatBlocksNothingCountsToo) {
  std::atomic<bool> done{false};
  std::thread library([&] {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  StopSource stop("");
  ::kill(::getpid(), SIGUSR1);
  for (int i = 0; i < 5000 && !stop.requested(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(stop.reason(), "SIGUSR1");
  done = true;
  library.join();
}

TEST(StopSource, ALateSignalEndsNobody) {
  {
    const StopSource stop("");
    ::kill(::getpid(), SIGTERM);
  }
  StopSource next("");
  EXPECT_FALSE(next.requested());  // it was the old one's
}

TEST(StopSource, FindsTheFile) {
  const testing::TempDir dir;
  StopSource stop(dir / "STOP");
  EXPECT_FALSE(stop.requested());
  dir.write("STOP", "");
  for (int i = 0; i < 5000 && !stop.requested(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(stop.requested());
  EXPECT_FALSE(stop.hastened());
  EXPECT_EQ(stop.reason(), "the file " + (dir / "STOP"));
}

TEST(StopSource, OnlyOneAtATime) {
  const StopSource stop("");
  testing::expect_error<LogicError>([] { StopSource("").requested(); }, {"one stop source at a time"});
}

}  // namespace
}  // namespace sluice::train
