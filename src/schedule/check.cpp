#include "schedule/check.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/check.hpp"
#include "base/hash.hpp"

namespace sluice::schedule {
namespace {

/// Who wrote a range of bytes last and who read it since, per lane.
struct Cell {
  std::int64_t end;
  TaskId writer = kNone;
  std::array<TaskId, kLaneCount> readers;
};

class ByteHistory {
 public:
  ByteHistory(const StepGraph& graph, const Clocks& clocks) : graph_(graph), clocks_(clocks) {}

  void access(TaskId task, std::int64_t begin, std::int64_t end, bool writes) {
    if (begin == end) return;
    split(begin);
    split(end);
    auto it = cells_.lower_bound(begin);
    for (std::int64_t at = begin; at < end;) {
      if (it == cells_.end() || it->first > at) {  // bytes nobody touched before
        const std::int64_t gap_end = it == cells_.end() ? end : std::min(end, it->first);
        Cell fresh{gap_end};
        fresh.readers.fill(kNone);
        it = cells_.insert(it, {at, fresh});
      }
      Cell& cell = it->second;
      require(cell.writer, task, it->first);
      if (writes) {
        for (const TaskId reader : cell.readers) require(reader, task, it->first);
        cell.writer = task;
        cell.readers.fill(kNone);
      } else {
        cell.readers[static_cast<std::size_t>(graph_.tasks[task].lane)] = task;
      }
      at = cell.end;
      ++it;
    }
  }

 private:
  void require(TaskId before, TaskId task, std::int64_t at) const {
    if (before == kNone || before == task) return;
    SLUICE_CHECK(clocks_.happens_before(before, task), "race: ", graph_.task_name(before), " (", before, ") and ", graph_.task_name(task), " (", task,
                 ") both touch byte ", at, " and nothing orders them");
  }
  void split(std::int64_t at) {
    auto it = cells_.upper_bound(at);
    if (it == cells_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    Cell tail = it->second;
    it->second.end = at;
    cells_.insert({at, tail});
  }
  const StepGraph& graph_;
  const Clocks& clocks_;
  std::map<std::int64_t, Cell> cells_;
};

}  // namespace

void check_order(const StepGraph& graph) {
  std::array<std::int32_t, kLaneCount> sequence{};
  std::vector<bool> written(graph.buffers.size(), false);
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    for (const TaskId wait : graph.waits_of(task)) SLUICE_CHECK(wait < id, graph.task_name(id), " (", id, ") waits for the later task ", wait);
    if (is_communication(task.lane)) {
      const auto lane = static_cast<std::size_t>(task.lane);
      SLUICE_CHECK(task.sequence == sequence[lane], graph.task_name(id), " is number ", task.sequence, " of its lane, expected ", sequence[lane]);
      ++sequence[lane];
    }
    for (const Use& use : graph.uses_of(task)) {
      const Buffer& buffer = graph.buffers[use.buffer];
      const auto tier = static_cast<std::size_t>(buffer.tier);
      SLUICE_CHECK(buffer.offset >= 0 && buffer.offset + buffer.bytes <= graph.arena_bytes[tier], graph.task_name(id), " uses ", graph.buffer_name(use.buffer), " at ",
                   buffer.offset, " of an arena of ", graph.arena_bytes[tier]);
      SLUICE_CHECK(id >= buffer.first && id <= buffer.last, graph.task_name(id), " uses ", graph.buffer_name(use.buffer), " outside its lifetime");
      if (use.access == Access::kWrite) written[use.buffer] = true;
      SLUICE_CHECK(buffer.persistent || written[use.buffer], graph.task_name(id), " reads ", graph.buffer_name(use.buffer), " before anything wrote it");
    }
  }
}

void check_races(const StepGraph& graph) {
  const Clocks clocks(graph);
  std::vector<ByteHistory> tiers(spec::kTierCount, ByteHistory(graph, clocks));
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    for (const Use& use : graph.uses_of(graph.tasks[id])) {
      const Buffer& buffer = graph.buffers[use.buffer];
      tiers[static_cast<std::size_t>(buffer.tier)].access(id, buffer.offset, buffer.offset + buffer.bytes, use.access != Access::kRead);
    }
  }
}

void check_meetings(std::span<const StepGraph* const> classes) {
  if (classes.empty()) return;
  for (const StepGraph* other : classes.subspan(1)) {
    const std::string difference = first_difference(describe_meetings(*classes[0]), describe_meetings(*other));
    SLUICE_CHECK(difference.empty(), "rank classes don't meet in the same order: ", difference);
  }
  // Nodes: each class's tasks, with the meetings (lane, sequence) of all classes merged into class 0's.
  std::vector<std::size_t> first(classes.size() + 1, 0);
  for (std::size_t c = 0; c < classes.size(); ++c) first[c + 1] = first[c] + classes[c]->tasks.size();
  std::map<std::pair<int, std::int32_t>, std::size_t> meeting;
  std::vector<std::size_t> node(first.back());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (TaskId id = 0; id < classes[c]->tasks.size(); ++id) {
      const Task& task = classes[c]->tasks[id];
      node[first[c] + id] = first[c] + id;
      if (task.sequence >= 0) node[first[c] + id] = meeting.emplace(std::pair(static_cast<int>(task.lane), task.sequence), first[c] + id).first->second;
    }
  }
  std::vector<std::vector<std::size_t>> after(first.back());
  std::vector<int> pending(first.back(), 0);
  const auto edge = [&](std::size_t from, std::size_t to) {
    after[from].push_back(to);
    ++pending[to];
  };
  for (std::size_t c = 0; c < classes.size(); ++c) {
    std::array<TaskId, kLaneCount> tail{};
    tail.fill(kNone);
    for (TaskId id = 0; id < classes[c]->tasks.size(); ++id) {
      const Task& task = classes[c]->tasks[id];
      TaskId& previous = tail[static_cast<std::size_t>(task.lane)];
      if (previous != kNone) edge(node[first[c] + previous], node[first[c] + id]);
      previous = id;
      for (const TaskId wait : classes[c]->waits_of(task)) edge(node[first[c] + wait], node[first[c] + id]);
    }
  }
  std::vector<std::size_t> ready;
  std::size_t total = 0;
  for (std::size_t n = 0; n < node.size(); ++n) {
    if (node[n] != n) continue;
    ++total;
    if (pending[n] == 0) ready.push_back(n);
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::size_t n = ready.back();
    ready.pop_back();
    ++done;
    for (const std::size_t next : after[n]) {
      if (--pending[next] == 0) ready.push_back(next);
    }
  }
  if (done == total) return;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (TaskId id = 0; id < classes[c]->tasks.size(); ++id) {
      const std::size_t n = node[first[c] + id];
      SLUICE_CHECK(pending[n] == 0, "the ranks' orders form a cycle through ", classes[c]->task_name(id), " (task ", id, " of class ", c, ")");
    }
  }
}

std::string describe_meetings(const StepGraph& graph) {
  std::ostringstream lines;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    for (const StepGraph::Meeting& meeting : graph.meetings(static_cast<Lane>(lane))) {
      lines << name_of(static_cast<Lane>(lane)) << " " << graph.task_name(meeting.task) << ", " << meeting.bytes << " bytes\n";
    }
  }
  const std::string text = lines.str();
  return Hash().add(text).hex() + "\n" + text;
}

std::string first_difference(const std::string& here, const std::string& there) {
  if (here == there) return {};
  std::istringstream a(here), b(there);
  std::string line_a, line_b;
  std::getline(a, line_a);
  std::getline(b, line_b);
  for (;;) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "the hashes differ but no line does";
    if (!more_a) line_a = "(nothing)";
    if (!more_b) line_b = "(nothing)";
    if (line_a != line_b) return cat("\"", line_a, "\" against \"", line_b, "\"");
  }
}

}  // namespace sluice::schedule
