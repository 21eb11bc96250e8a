#pragma once
// What happens before what, by brute force: every path of waits and lane edges is walked. Shares nothing with Clocks.

#include <vector>

#include "schedule/graph.hpp"

namespace sluice::schedule {

class Reachability {
 public:
  explicit Reachability(const StepGraph& graph) : before_(graph.tasks.size(), std::vector<bool>(graph.tasks.size(), false)) {
    std::vector<std::vector<TaskId>> of_lane(kLaneCount);
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      const Task& task = graph.tasks[id];
      auto& lane = of_lane[static_cast<std::size_t>(task.lane)];
      if (!lane.empty()) add(lane.back(), id);
      for (const TaskId wait : graph.waits_of(task)) add(wait, id);
      lane.push_back(id);
    }
  }
  bool happens_before(TaskId a, TaskId b) const { return before_[b][a]; }

 private:
  void add(TaskId from, TaskId to) {
    before_[to][from] = true;
    for (TaskId t = 0; t < from; ++t) {
      if (before_[from][t]) before_[to][t] = true;
    }
  }
  std::vector<std::vector<bool>> before_;
};

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
