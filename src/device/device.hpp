#pragma once
// A device computes and holds memory; streams order work on it; events order streams against each other.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sluice::device {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// One-shot per task and epoch (an epoch is one run of a graph), with two states: *recorded* (some stream has promised to
/// complete it) and *complete*. Epochs only grow, so nothing is reset between steps. CUDA treats a wait on an unrecorded
/// event as nothing, hence the two states: whoever waits first blocks its issuing thread until the event is recorded.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  virtual ~Event() = default;
  virtual bool is_recorded(std::uint64_t epoch) const noexcept = 0;
  virtual bool is_complete(std::uint64_t epoch) const noexcept = 0;
  /// Blocks the calling thread.
  virtual void wait_recorded(std::uint64_t epoch) noexcept = 0;
  virtual void wait_complete(std::uint64_t epoch) noexcept = 0;
  /// Marks recorded and complete from the host: of host lanes, and of tasks that a failure or a cancel skips.
  virtual void complete_from_host(std::uint64_t epoch) noexcept = 0;
};

/// An in-order queue of work. All calls come from one issuing thread at a time.
class Stream {
 public:
  using Body = void (*)(void* context, Stream& stream);
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
  /// Later work of this stream starts after `event` is complete. Precondition: recorded in this epoch. May block (cpu).
  virtual void wait(Event& event, std::uint64_t epoch) = 0;
  /// Runs `body(context, *this)`: on cpu at once on the calling thread; on cuda the body enqueues kernels and returns.
  /// What it throws reaches the caller.
  virtual void launch(Body body, void* context) = 0;
  /// Marks `event` recorded now and complete when all work launched so far is.
  virtual void record(Event& event, std::uint64_t epoch) = 0;
  /// Blocks until everything launched is done; rethrows a deferred failure.
  virtual void synchronize() = 0;
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "AMD EPYC 9354", "NVIDIA H200"
  /// True where Stream::record completes the event before it returns, so that whoever issues work knows when it is done.
  virtual bool completes_inline() const = 0;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

}  // namespace sluice::device
