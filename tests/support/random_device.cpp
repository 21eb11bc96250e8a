#include "support/random_device.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "device/cpu/cpu_device.hpp"

namespace sluice::testing {
namespace {

class RandomEvent;
class RandomStream;

struct Action {
  enum class Kind { kWait, kBody, kRecord } kind;
  RandomEvent* event = nullptr;
  std::uint64_t epoch = 0;
  device::Stream::Body body = nullptr;
  void* context = nullptr;
  bool fails = false;
  std::uint64_t age = 0;  // of all actions: the lower, the longer it has waited
};

}  // namespace

/// One lock for everything: simple, and fast enough for graphs of some hundred tasks.
class RandomDevice::Core {
 public:
  explicit Core(const RandomDeviceOptions& given) : options(given), random(given.seed) {
    for (int w = 0; w < options.workers; ++w) workers_.emplace_back([this] { work(); });
  }
  void stop() {
    {
      const std::lock_guard lock(mutex);
      quit_ = true;
    }
    changed.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  const RandomDeviceOptions options;
  std::mutex mutex;
  std::condition_variable changed;  // anything: a queue, an event, the end of a body
  std::vector<RandomStream*> streams;
  std::uint64_t next_age = 0;
  std::int64_t launches = 0;
  std::int64_t reorderings = 0;
  std::mt19937_64 random;

 private:
  void work();
  std::vector<std::thread> workers_;
  bool quit_ = false;
};

namespace {

using Core = RandomDevice::Core;

class RandomEvent final : public device::Event {
 public:
  explicit RandomEvent(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  bool is_recorded(std::uint64_t epoch) const noexcept override { return recorded_.load(std::memory_order_acquire) >= epoch; }
  bool is_complete(std::uint64_t epoch) const noexcept override { return complete_.load(std::memory_order_acquire) >= epoch; }
  void wait_recorded(std::uint64_t epoch) noexcept override {
    std::unique_lock lock(core_->mutex);
    core_->changed.wait(lock, [&] { return is_recorded(epoch); });
  }
  void wait_complete(std::uint64_t epoch) noexcept override {
    std::unique_lock lock(core_->mutex);
    core_->changed.wait(lock, [&] { return is_complete(epoch); });
  }
  void complete_from_host(std::uint64_t epoch) noexcept override {
    const std::lock_guard lock(core_->mutex);
    record_locked(epoch);
    complete_locked(epoch);
  }
  void record_locked(std::uint64_t epoch) noexcept {
    recorded_.store(std::max(epoch, recorded_.load()), std::memory_order_release);
    core_->changed.notify_all();
  }
  void complete_locked(std::uint64_t epoch) noexcept {
    complete_.store(std::max(epoch, complete_.load()), std::memory_order_release);
    core_->changed.notify_all();
  }

 private:
  std::shared_ptr<Core> core_;
  std::atomic<std::uint64_t> recorded_{0}, complete_{0};
};

class RandomStream final : public device::Stream {
 public:
  RandomStream(std::shared_ptr<Core> core, std::string name) : core_(std::move(core)), name_(std::move(name)) {
    const std::lock_guard lock(core_->mutex);
    core_->streams.push_back(this);
  }
  /// What hasn't begun is dropped: its contexts may be gone.
  ~RandomStream() override {
    std::unique_lock lock(core_->mutex);
    queue.clear();
    core_->changed.wait(lock, [&] { return !busy; });
    std::erase(core_->streams, this);
  }
  void wait(device::Event& event, std::uint64_t epoch) override {
    SLUICE_CHECK(event.is_recorded(epoch), "stream ", name_,
                 " waits for an event that nobody has recorded: a device may take that for nothing");
    push({.kind = Action::Kind::kWait, .event = &dynamic_cast<RandomEvent&>(event), .epoch = epoch});
  }
  void launch(Body body, void* context) override {
    bool fails = false;
    {
      const std::lock_guard lock(core_->mutex);
      const std::int64_t number = ++core_->launches;
      if (number == core_->options.fail_launch) throw DeviceError(cat("launch ", number, " failed"));
      fails = number == core_->options.fail_body;
    }
    push({.kind = Action::Kind::kBody, .body = body, .context = context, .fails = fails});
  }
  void record(device::Event& event, std::uint64_t epoch) override {
    auto& mine = dynamic_cast<RandomEvent&>(event);
    {
      const std::lock_guard lock(core_->mutex);
      mine.record_locked(epoch);
    }
    push({.kind = Action::Kind::kRecord, .event = &mine, .epoch = epoch});
  }
  void synchronize() override {
    std::unique_lock lock(core_->mutex);
    core_->changed.wait(lock, [&] { return queue.empty() && !busy; });
    if (failure) std::rethrow_exception(std::exchange(failure, {}));
  }

  bool can_run() const {
    return !busy && !queue.empty() && (queue.front().kind != Action::Kind::kWait || queue.front().event->is_complete(queue.front().epoch));
  }

  // Under the core's lock.
  std::deque<Action> queue;
  bool busy = false;
  std::exception_ptr failure;

 private:
  void push(Action action) {
    const std::lock_guard lock(core_->mutex);
    action.age = core_->next_age++;
    queue.push_back(action);
    core_->changed.notify_all();
  }
  std::shared_ptr<Core> core_;
  std::string name_;
};

}  // namespace

void RandomDevice::Core::work() {
  device::flush_denormals_on_this_thread();
  std::unique_lock lock(mutex);
  std::vector<RandomStream*> ready;
  for (;;) {
    changed.wait(lock, [&] {
      ready.clear();
      std::copy_if(streams.begin(), streams.end(), std::back_inserter(ready), [](const RandomStream* stream) { return stream->can_run(); });
      return quit_ || !ready.empty();
    });
    if (ready.empty()) return;
    RandomStream& stream = *ready[random() % ready.size()];
    reorderings += std::any_of(ready.begin(), ready.end(),
                               [&](const RandomStream* other) { return other->queue.front().age < stream.queue.front().age; })
                       ? 1
                       : 0;
    const Action action = stream.queue.front();
    stream.queue.pop_front();
    stream.busy = true;
    const bool naps = static_cast<int>(random() % 1000) < options.naps_in_thousand;
    const auto nap = std::chrono::microseconds(random() % static_cast<std::uint64_t>(options.nap_microseconds_most + 1));
    if (naps || action.kind == Action::Kind::kBody) {
      std::exception_ptr failure;
      lock.unlock();
      if (naps) std::this_thread::sleep_for(nap);
      if (action.kind == Action::Kind::kBody) {
        try {
          if (action.fails) throw DeviceError("a body failed on the device");
          action.body(action.context, stream);
        } catch (...) {
          failure = std::current_exception();
        }
      }
      lock.lock();
      if (failure && !stream.failure) stream.failure = failure;
    }
    if (action.kind == Action::Kind::kRecord) action.event->complete_locked(action.epoch);
    stream.busy = false;
    changed.notify_all();
  }
}

RandomDevice::RandomDevice(const RandomDeviceOptions& options) : core_(std::make_shared<Core>(options)) {}
RandomDevice::~RandomDevice() {
  core_->stop();
}
std::unique_ptr<device::Stream> RandomDevice::make_stream(const std::string& name) {
  return std::make_unique<RandomStream>(core_, name);
}
std::unique_ptr<device::Event> RandomDevice::make_event() {
  return std::make_unique<RandomEvent>(core_);
}
std::int64_t RandomDevice::launches() const {
  const std::lock_guard lock(core_->mutex);
  return core_->launches;
}
std::int64_t RandomDevice::reorderings() const {
  const std::lock_guard lock(core_->mutex);
  return core_->reorderings;
}

}  // namespace sluice::testing
