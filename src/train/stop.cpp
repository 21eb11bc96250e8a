#include "train/stop.hpp"

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/check.hpp"
#include "base/clock.hpp"

namespace sluice::train {
namespace {

constexpr std::array<int, 5> kSignals{SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGALRM};
constexpr std::int64_t kLookEveryNs = 500'000'000;

// A signal handler has no other way to reach the program than globals.
std::atomic<int> signal_count{0};
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
  signal_count.fetch_add(1);
}

std::atomic<bool> in_use{false};
std::array<struct sigaction, kSignals.size()> previous;
sigset_t previous_mask;

sigset_t our_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kSignals) sigaddset(&set, number);
  return set;
}

/// Counts what waits for a thread that doesn't block it.
void take_pending() {
  const sigset_t set = our_signals();
  const timespec at_once{};
  for (int number = sigtimedwait(&set, nullptr, &at_once); number > 0; number = sigtimedwait(&set, nullptr, &at_once)) on_signal(number);
}

const char* signal_name(int number) {
  switch (number) {
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGALRM:
      return "SIGALRM";
    default:
      return "a signal";
  }
}

}  // namespace

StopSource::StopSource(std::string stop_file) : stop_file_(std::move(stop_file)) {
  SLUICE_CHECK(!in_use.exchange(true), "one stop source at a time");
  signal_count.store(0);
  first_signal.store(0);
  struct sigaction action {};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
  const sigset_t set = our_signals();
  pthread_sigmask(SIG_BLOCK, &set, &previous_mask);
}

StopSource::~StopSource() {
  pthread_sigmask(SIG_SETMASK, &previous_mask, nullptr);  // first, so that a late signal still meets the handler
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
  in_use.store(false);
}

bool StopSource::requested() {
  take_pending();
  if (signal_count.load() > 0 || file_found_ || asked_.load()) return true;
  const std::int64_t now = now_ns();
  if (stop_file_.empty() || now < next_look_ns_) return false;
  next_look_ns_ = now + kLookEveryNs;
  struct stat status {};
  if (stat(stop_file_.c_str(), &status) == 0) file_found_ = true;
  return file_found_;
}

void StopSource::request(const std::string& reason) {
  if (asked_.load()) return;
  asked_reason_ = reason;
  asked_.store(true);
}

bool StopSource::hastened() const {
  take_pending();
  return signal_count.load() > 1;
}

std::string StopSource::reason() const {
  if (signal_count.load() > 0) return signal_name(first_signal.load());
  if (asked_.load()) return asked_reason_;
  return file_found_ ? "the file " + stop_file_ : std::string();
}

}  // namespace sluice::train
