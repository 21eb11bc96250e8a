#pragma once
// A disk whose transfers take and end as they like: whatever relies on one being there by now finds out.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/rng.hpp"
#include "memory/io/io_system.hpp"

namespace sluice::testing {

class LaggingIo final : public memory::IoSystem {
 public:
  explicit LaggingIo(std::uint64_t seed) : key_(rng_key(seed, RngPurpose::kSample, 0)) {}
  std::int64_t read(int fd, void* data, std::int64_t bytes, std::int64_t offset) const override {
    nap();
    return IoSystem::read(fd, data, bytes, offset);
  }
  std::int64_t write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) const override {
    nap();
    return IoSystem::write(fd, data, bytes, offset);
  }
  int aio_submit(io_context* context, long count, iocb** requests) const override {
    nap();
    return IoSystem::aio_submit(context, count, requests);
  }
  int aio_reap(io_context* context, long most, io_event* events) const override {
    nap();
    return IoSystem::aio_reap(context, most, events);
  }

 private:
  /// One call in four sleeps up to half a millisecond.
  void nap() const {
    const std::uint64_t draw = bounded_at(key_, draws_.fetch_add(1, std::memory_order_relaxed), 2000);
    if (draw < 500) std::this_thread::sleep_for(std::chrono::microseconds(draw));
  }
  std::array<std::uint32_t, 2> key_;
  mutable std::atomic<std::uint64_t> draws_{0};
};

}  // namespace sluice::testing
