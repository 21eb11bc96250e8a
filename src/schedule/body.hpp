#pragma once
// What a bound task does: internal to the executor.

#include <atomic>
#include <limits>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "schedule/execute.hpp"

namespace sluice::schedule {

/// The state of one run, shared by its bodies.
struct RunState {
  const RunInputs* inputs = nullptr;
  /// Tasks governed by an agree of this ordinal or a later one are skipped.
  std::atomic<int> cancelled_from{std::numeric_limits<int>::max()};
  std::atomic<bool> stop_requested{false};
};

class Body {
 public:
  Body() = default;
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  virtual ~Body() = default;
  /// On the lane's stream; returns when done (cpu) or enqueued.
  virtual void run(RunState& /*state*/, device::Stream& /*stream*/) {}
  /// Communication lanes: posts the collective; complete() takes its result once it is there.
  virtual comm::Channel::Ticket post(RunState& /*state*/, comm::Channel& /*channel*/) { return 0; }
  /// Moves of the disk's lanes: starts the transfer, if there is anything to move; complete() once it is over and went well.
  virtual void start(RunState& /*state*/, memory::IoTicket& /*ticket*/) {}
  virtual void complete(RunState& /*state*/) {}
};

/// Bodies of all tasks, in order.
std::vector<std::unique_ptr<Body>> bind_bodies(const StepGraph& graph, const Environment& environment);

}  // namespace sluice::schedule
