// main() of test programs that run under mpirun (sluice_test with RANKS). Rank 0 prints as usual, the others only their
// failures; the program fails when any rank does. A test that hangs is named and ends the job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "mpi/mpi_world.hpp"

namespace sluice::testing {
namespace {

constexpr std::int64_t kLongestTestNs = 80'000'000'000;  // below the 100 s of tests/support/mpirun

comm::MpiEnvironment* environment = nullptr;

/// Ends the job, with the test's name, when one lasts too long: another rank has left it, or it hangs.
class HangWatchdog final : public ::testing::EmptyTestEventListener {
 public:
  explicit HangWatchdog(comm::Communicator& world) : world_(world), thread_([this] { watch(); }) {}
  HangWatchdog(const HangWatchdog&) = delete;
  HangWatchdog& operator=(const HangWatchdog&) = delete;
  ~HangWatchdog() override {
    over_ = true;
    thread_.join();
  }
  void OnTestStart(const ::testing::TestInfo& info) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    name_ = std::string(info.test_suite_name()) + "." + info.name();
    begin_ns_ = now_ns();
  }
  void OnTestEnd(const ::testing::TestInfo& /*info*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    begin_ns_ = 0;
  }

 private:
  void watch() {
    while (!over_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::lock_guard<std::mutex> lock(mutex_);
      if (begin_ns_ == 0 || now_ns() - begin_ns_ < kLongestTestNs) continue;
      std::fprintf(stderr, "rank %d: %s hangs\n", world_.rank(), name_.c_str());
      world_.abort(1);
    }
  }
  comm::Communicator& world_;
  std::mutex mutex_;
  std::string name_;
  std::int64_t begin_ns_ = 0;  // 0: between tests
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class FailurePrinter final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
                 result.message());
  }

 private:
  int rank_;
};

}  // namespace

comm::MpiEnvironment& mpi_environment() {
  return *environment;
}

}  // namespace sluice::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  sluice::comm::MpiEnvironment environment;
  sluice::testing::environment = &environment;
  const std::unique_ptr<sluice::comm::Communicator> world = environment.world();
  try {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (world->rank() != 0) {
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new sluice::testing::FailurePrinter(world->rank()));
    }
    auto* watchdog = new sluice::testing::HangWatchdog(*world);
    listeners.Append(watchdog);
    const bool passed = RUN_ALL_TESTS() == 0;
    delete listeners.Release(watchdog);
    return world->all_agree(passed) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world->rank(), error.what());
    world->abort(1);
  }
}
