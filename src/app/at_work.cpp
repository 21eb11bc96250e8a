#include "app/at_work.hpp"

#include <chrono>
#include <exception>
#include <mutex>

#include "comm/communicator.hpp"

namespace sluice::app {
namespace {

constexpr std::chrono::seconds kSignOfLife(2);

}  // namespace

AtWork::AtWork(comm::Communicator& world) : world_(world), thread_([this](const std::stop_token& end) { tell(end); }) {}

AtWork::~AtWork() {
  thread_.request_stop();
  thread_.join();
  say({});
}

void AtWork::tell(const std::stop_token& end) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  while (!ended_.wait_for(lock, end, kSignOfLife, [&] { return end.stop_requested(); })) say("at work");
}

void AtWork::say(const std::string& word) noexcept {
  try {
    world_.broadcast(word, world_.rank());
  } catch (const std::exception&) {  // a lost rank: the next collective says so
  }
}

void wait_while_at_work(comm::Communicator& world, int rank) {
  while (!world.broadcast({}, rank).empty()) {
  }
}

}  // namespace sluice::app
