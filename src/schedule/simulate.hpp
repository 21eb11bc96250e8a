#pragma once
// Runs a step graph on prices instead of a device.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/execute.hpp"
#include "schedule/graph.hpp"
#include "schedule/price.hpp"

namespace sluice::schedule {

struct SimulateOptions {
  int ranks = 1;  // of the group: one rank has no communication thread
  Threading threading = Threading::kFolded;
};

struct TaskTimes {
  double begin = 0;  // seconds from the start of the graph
  double end = 0;
};

/// What a run of the graph would take, for each of identical ranks in lock-step.
struct Simulation {
  double seconds = 0;
  std::vector<TaskTimes> tasks;
  std::array<double, kLaneCount> busy_seconds{};   // lane by lane: its tasks' begin to end
  std::array<double, kSharedResourceCount> use{};  // of each shared resource's capacity, over the whole time: 0 to 1
  /// The longest chain of tasks that each started because the one before ended, by what held each of them back; they add up to
  /// `seconds`. A wake-up between two threads counts as latency.
  std::array<double, kResourceCount> critical_seconds{};
  std::array<double, kLaneCount> critical_lane_seconds{};   // the same chain by lane
  Resource bound = Resource::kLatency;                      // the largest of critical_seconds
  std::array<std::int64_t, spec::kTierCount> bytes_peak{};  // of each tier's arena
  std::uint64_t graph_hash = 0;
};

/// Event-driven. Lanes only order: each is first in, first out; lanes that share an issuing thread run in the merged linear order as in the
/// executor, but communication lanes, whose collectives are in flight at the same time on one thread, run side by side. Of lanes with
/// several tasks in flight (is_asynchronous) latency counts from when a task is posted, which is when its waits are met and all before it
/// are posted. Tasks that run at the same time share each resource fairly: all slow down alike until a resource they want is used up (max-
/// min over progressive filling). While a disk is read and written at once, each direction has what is left of it beside the other. Who
/// waits for a task of another thread pays machine.wake_seconds; computing that waits for a collective also machine.skew_seconds, or as
/// long as it computed since it last did, if that is less. `prices`: one a task. O(tasks x waits), around a microsecond a task. Throws
/// LogicError if the waits can't be met.
Simulation simulate(const StepGraph& graph, std::span<const Price> prices, const spec::MachineSpec& machine,
                    const SimulateOptions& options);

}  // namespace sluice::schedule
