#pragma once
// What happens before what, by brute force: every path over starts and ends of tasks is walked. Shares nothing with Clocks.

#include <vector>

#include "schedule/graph.hpp"

namespace sluice::schedule {

class Reachability {
 public:
  explicit Reachability(const StepGraph& graph) : before_(2 * graph.tasks.size(), std::vector<bool>(2 * graph.tasks.size(), false)) {
    std::vector<std::vector<TaskId>> of_lane(kLaneCount);
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      const Task& task = graph.tasks[id];
      auto& lane = of_lane[static_cast<std::size_t>(task.lane)];
      for (const TaskId wait : graph.waits_of(task)) add(end(wait), start(id));
      const bool overlaps = is_communication(task.lane) || task.lane == Lane::kDiskRead || task.lane == Lane::kDiskWrite;
      if (!lane.empty()) add(overlaps ? start(lane.back()) : end(lane.back()), start(id));
      add(start(id), end(id));
      if (!lane.empty()) add(end(lane.back()), end(id));
      lane.push_back(id);
    }
  }
  /// a is complete when b starts.
  bool happens_before(TaskId a, TaskId b) const { return before_[start(b)][end(a)]; }

 private:
  static std::size_t start(TaskId id) { return 2 * std::size_t{id}; }
  static std::size_t end(TaskId id) { return 2 * std::size_t{id} + 1; }
  void add(std::size_t from, std::size_t to) {
    before_[to][from] = true;
    for (std::size_t t = 0; t < from; ++t) {
      if (before_[from][t]) before_[to][t] = true;
    }
  }
  std::vector<std::vector<bool>> before_;
};

/// Whether the lane of two tasks on one buffer keeps them in order, though both may be under way.
inline bool is_lanes_order(const StepGraph& graph, TaskId a, const Use& x, TaskId b, const Use& y) {
  return x.buffer == y.buffer && graph.tasks[a].lane == graph.tasks[b].lane;
}

/// Whether two buffers share a byte of a tier.
inline bool overlap(const Buffer& a, const Buffer& b) {
  return a.tier == b.tier && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

/// Takes the k-th wait of a task out of a graph.
inline void drop_wait(StepGraph& graph, TaskId id, std::uint32_t k) {
  Task& task = graph.tasks[id];
  std::swap(graph.waits[task.first_wait + k], graph.waits[task.first_wait + task.wait_count - 1]);
  --task.wait_count;
}
/// Puts back what drop_wait took.
inline void restore_wait(StepGraph& graph, TaskId id, std::uint32_t k) {
  Task& task = graph.tasks[id];
  ++task.wait_count;
  std::swap(graph.waits[task.first_wait + k], graph.waits[task.first_wait + task.wait_count - 1]);
}

}  // namespace sluice::schedule
