#pragma once
// A system whose calls are short, refuse or fail where a test says so, and which counts and can be held.

#include <libaio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/io/io_system.hpp"
#include "memory/io/transfer_queue.hpp"

namespace sluice::memory {

class FaultyIo final : public IoSystem {
 public:
  /// What request number `index` of its direction, counted since arm(), shall do: move that many of its `bytes`, or fail with
  /// -errno. EAGAIN fails an aio request at its submission, everything else at its completion.
  using Verdict = std::function<std::int64_t(IoDirection direction, int index, std::int64_t bytes)>;

  // Answers to open's questions; set before the engine is opened.
  int refuse_direct = 0;            // errno
  int refuse_aio = 0;               // errno of io_setup
  std::int64_t pretended_type = 0;  // of the file system; 0: the true one
  int fail_reap = 0;                // errno of the next io_getevents after arm()
  std::int64_t sector = 512;        // what a direct transfer moves in whole; the engine's alignment

  void arm(Verdict verdict = nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    verdict_ = std::move(verdict);
    index_ = {};
    most_ = {};
    armed_ = true;
  }
  /// While held, requests of the direction get no further than the call that makes them.
  void hold(IoDirection direction) { held_[at(direction)] = true; }
  void release(IoDirection direction) { held_[at(direction)] = false; }
  /// Waits until `calls` calls of the direction stand held. One submits many requests, and an aio service makes one at a time.
  void await_held(IoDirection direction, int calls) const {
    while (standing_[at(direction)] < calls) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  /// The most requests that were in flight at once, and all of them, since arm().
  int most_in_flight(IoDirection direction) const {
    return locked([&] { return most_[at(direction)]; });
  }
  int requests(IoDirection direction) const {
    return locked([&] { return index_[at(direction)]; });
  }

  std::int64_t file_system_type(const char* path) const override {
    return pretended_type != 0 ? pretended_type : IoSystem::file_system_type(path);
  }
  int set_direct(int fd) const override { return refuse_direct != 0 ? -refuse_direct : IoSystem::set_direct(fd); }
  int aio_setup(int depth, io_context** context) const override {
    return refuse_aio != 0 ? -refuse_aio : IoSystem::aio_setup(depth, context);
  }
  std::int64_t read(int fd, void* data, std::int64_t bytes, std::int64_t offset) const override {
    return call(IoDirection::kRead, bytes, [&](std::int64_t count) { return IoSystem::read(fd, data, count, offset); });
  }
  std::int64_t write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) const override {
    return call(IoDirection::kWrite, bytes, [&](std::int64_t count) { return IoSystem::write(fd, data, count, offset); });
  }

  int aio_submit(io_context* context, long count, iocb** requests) const override {
    if (!locked([&] { return armed_; })) return IoSystem::aio_submit(context, count, requests);
    int accepted = 0;
    for (long i = 0; i < count; ++i) {
      iocb* request = requests[i];
      const IoDirection direction = request->aio_lio_opcode == IO_CMD_PREAD ? IoDirection::kRead : IoDirection::kWrite;
      wait_while_held(direction);
      const auto bytes = static_cast<std::int64_t>(request->u.c.nbytes);
      const std::int64_t result = next(direction, bytes);
      if (result == -EAGAIN) return accepted > 0 ? accepted : -EAGAIN;
      // A kernel takes whole sectors only; what is claimed beyond them it has not moved.
      const std::int64_t whole = result < 0 ? 0 : result / sector * sector;
      if (whole > 0) {
        request->u.c.nbytes = static_cast<unsigned long>(whole);
        const int taken = IoSystem::aio_submit(context, 1, &request);
        if (taken != 1) return accepted > 0 ? accepted : taken;
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (whole == 0) {
        invented_[context].push_back({request->data, request, static_cast<unsigned long>(result), 0});
      } else if (whole != result) {
        claimed_[request] = {whole, result};
      }
      book(direction, 1);
      ++accepted;
    }
    return accepted;
  }

  int aio_reap(io_context* context, long most, io_event* events) const override {
    if (!locked([&] { return armed_; })) return IoSystem::aio_reap(context, most, events);
    if (fail_reap != 0) return -fail_reap;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::deque<io_event>& invented = invented_[context];
      int count = 0;
      for (; count < most && !invented.empty(); ++count, invented.pop_front()) {
        events[count] = invented.front();
        book(invented.front().obj->aio_lio_opcode == IO_CMD_PREAD ? IoDirection::kRead : IoDirection::kWrite, -1);
      }
      if (count > 0) return count;
    }
    const int count = IoSystem::aio_reap(context, most, events);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int i = 0; i < count; ++i) {
      const iocb* request = events[i].obj;
      book(request->aio_lio_opcode == IO_CMD_PREAD ? IoDirection::kRead : IoDirection::kWrite, -1);
      if (const auto claim = claimed_.find(request); claim != claimed_.end()) {
        if (static_cast<std::int64_t>(events[i].res) == claim->second.whole) {
          events[i].res = static_cast<unsigned long>(claim->second.result);
        }
        claimed_.erase(claim);
      }
    }
    return count;
  }

 private:
  static std::size_t at(IoDirection direction) { return static_cast<std::size_t>(direction); }

  template <typename Get>
  std::invoke_result_t<Get> locked(Get get) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return get();
  }
  std::int64_t next(IoDirection direction, std::int64_t bytes) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!armed_) return bytes;
    const int index = index_[at(direction)]++;
    return verdict_ ? verdict_(direction, index, bytes) : bytes;
  }
  void book(IoDirection direction, int change) const {  // mutex_ is held
    in_flight_[at(direction)] += change;
    most_[at(direction)] = std::max(most_[at(direction)], in_flight_[at(direction)]);
  }
  void wait_while_held(IoDirection direction) const {
    ++standing_[at(direction)];
    while (held_[at(direction)]) std::this_thread::sleep_for(std::chrono::microseconds(200));
    --standing_[at(direction)];
  }
  std::int64_t call(IoDirection direction, std::int64_t bytes, const std::function<std::int64_t(std::int64_t)>& real) const {
    locked([&] { book(direction, 1); });
    wait_while_held(direction);
    std::int64_t result = next(direction, bytes);
    if (result > 0) {
      // On a direct descriptor as with aio: whole sectors are moved, the rest only claimed.
      const std::int64_t whole = result == bytes || refuse_direct != 0 ? result : result / sector * sector;
      const std::int64_t moved = whole == 0 ? 0 : real(whole);
      if (moved != whole) result = moved;
    }
    locked([&] { book(direction, -1); });
    return result;
  }

  mutable std::mutex mutex_;
  Verdict verdict_;
  bool armed_ = false;
  mutable std::array<int, 2> index_{};
  mutable std::array<int, 2> in_flight_{};
  mutable std::array<int, 2> most_{};
  std::array<std::atomic<bool>, 2> held_{};
  mutable std::array<std::atomic<int>, 2> standing_{};
  mutable std::map<io_context*, std::deque<io_event>> invented_;  // completions of requests that the kernel never saw
  struct Claim {
    std::int64_t whole;
    std::int64_t result;
  };
  mutable std::map<const iocb*, Claim> claimed_;  // results to report where the kernel did all it was given
};

}  // namespace sluice::memory
