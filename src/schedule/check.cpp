#include "schedule/check.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/check.hpp"
#include "base/hash.hpp"

namespace sluice::schedule {
namespace {

using spec::Tier;

/// Who wrote a range of bytes last and who read it since, per lane; and through which buffer.
struct Cell {
  struct Access {
    TaskId task = kNone;
    BufferId buffer = kNone;
  };
  std::int64_t end;
  Access writer = {};
  std::array<Access, kLaneCount> readers = {};
};

class ByteHistory {
 public:
  ByteHistory(const StepGraph& graph, const Clocks& clocks) : graph_(graph), clocks_(clocks) {}

  void access(TaskId task, BufferId buffer, bool writes) {
    const std::int64_t begin = graph_.buffers[buffer].offset, end = begin + graph_.buffers[buffer].bytes;
    const Cell::Access now{task, buffer};
    if (begin == end) return;
    split(begin);
    split(end);
    auto it = cells_.lower_bound(begin);
    for (std::int64_t at = begin; at < end;) {
      if (it == cells_.end() || it->first > at) {  // bytes nobody touched before
        const std::int64_t gap_end = it == cells_.end() ? end : std::min(end, it->first);
        it = cells_.insert(it, {at, Cell{gap_end}});
      }
      Cell& cell = it->second;
      require(cell.writer, now, it->first);
      if (writes) {
        for (const Cell::Access& reader : cell.readers) require(reader, now, it->first);
        cell.writer = now;
        cell.readers.fill({});
      } else {
        cell.readers[static_cast<std::size_t>(graph_.tasks[task].lane)] = now;
      }
      at = cell.end;
      ++it;
    }
  }

 private:
  void require(const Cell::Access& before, const Cell::Access& now, std::int64_t at) const {
    if (before.task == kNone || before.task == now.task) return;
    const bool is_lanes_order = before.buffer == now.buffer && graph_.tasks[before.task].lane == graph_.tasks[now.task].lane;
    SLUICE_CHECK(is_lanes_order || clocks_.happens_before(before.task, now.task), "race: ", graph_.task_name(before.task), " (",
                 before.task, ") and ", graph_.task_name(now.task), " (", now.task, ") both touch byte ", at, " and nothing orders them");
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

/// Through which buffer, and by which task, each byte of a tier was last written, in the linear order.
class Contents {
 public:
  explicit Contents(const StepGraph& graph) : graph_(graph) {}

  /// A persistent buffer holds what an earlier run wrote.
  void found(BufferId id) {
    const Buffer& buffer = graph_.buffers[id];
    for_each(buffer, [&](std::int64_t, const Range& range) {
      SLUICE_CHECK(range.buffer == kNone, "persistent ", graph_.buffer_name(id), " and ", graph_.buffer_name(range.buffer), " overlap");
    });
    set(buffer, {buffer.offset + buffer.bytes, id, kNone});
  }
  void write(TaskId task, BufferId id) {
    const Buffer& buffer = graph_.buffers[id];
    set(buffer, {buffer.offset + buffer.bytes, id, task});
  }
  void read(TaskId task, BufferId id) const {
    for_each(graph_.buffers[id], [&](std::int64_t at, const Range& range) {
      SLUICE_CHECK(range.buffer != kNone, graph_.task_name(task), " (", task, ") reads ", graph_.buffer_name(id),
                   " before anything wrote it");
      SLUICE_CHECK(range.buffer == id, graph_.task_name(task), " (", task, ") reads ", graph_.buffer_name(id), ", but ",
                   range.task == kNone ? std::string("an earlier run") : cat(graph_.task_name(range.task), " (", range.task, ")"),
                   " wrote ", graph_.buffer_name(range.buffer), " over it at byte ", at);
    });
  }

 private:
  struct Range {
    std::int64_t end;
    BufferId buffer;
    TaskId task;
  };
  /// Calls visit(first byte, range) for each range that the buffer's bytes meet; one of buffer kNone where nothing was written.
  template <typename Visit>
  void for_each(const Buffer& buffer, Visit visit) const {
    const std::int64_t end = buffer.offset + buffer.bytes;
    auto it = ranges_.upper_bound(buffer.offset);
    if (it != ranges_.begin() && std::prev(it)->second.end > buffer.offset) --it;
    for (std::int64_t at = buffer.offset; at < end;) {
      if (it == ranges_.end() || it->first > at) {
        const std::int64_t gap_end = it == ranges_.end() ? end : std::min(end, it->first);
        visit(at, Range{gap_end, kNone, kNone});
        at = gap_end;
      } else {
        visit(at, it->second);
        at = it->second.end;
        ++it;
      }
    }
  }
  void set(const Buffer& buffer, const Range& range) {
    if (buffer.bytes == 0) return;
    auto it = ranges_.upper_bound(buffer.offset);
    if (it != ranges_.begin() && std::prev(it)->second.end > buffer.offset) --it;
    while (it != ranges_.end() && it->first < range.end) {
      const std::int64_t begin = it->first;
      const Range old = it->second;
      it = ranges_.erase(it);
      if (begin < buffer.offset) ranges_[begin] = {buffer.offset, old.buffer, old.task};
      if (old.end > range.end) ranges_[range.end] = old;
    }
    ranges_[buffer.offset] = range;
  }
  const StepGraph& graph_;
  std::map<std::int64_t, Range> ranges_;  // by first byte
};

bool overlap(const Buffer& a, const Buffer& b) {
  return a.tier == b.tier && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

/// Updates, and gathers and moves that put new parameters or moments where they stay.
bool changes_state(const StepGraph& graph, const Task& task) {
  if (task.kind == TaskKind::kUpdate) return true;
  if (task.kind != TaskKind::kGather && task.kind != TaskKind::kMove) return false;
  const Use* target = graph.use_of(task, Role::kTarget);
  if (target == nullptr) return false;
  const Buffer& buffer = graph.buffers[target->buffer];
  const bool is_state = buffer.tag == BufferTag::kWorking || buffer.tag == BufferTag::kMaster || buffer.tag == BufferTag::kMoments;
  return buffer.persistent && is_state;
}

/// What a collective does to what it is given, for describe_meetings.
std::string_view reduction_of(const Task& task) {
  if (task.kind != TaskKind::kScatter) return "";
  return task.accumulate ? " summed onto the target" : " summed";
}

/// A move has one source and one target in neighbouring tiers, is on the lane between them, and gives a disk whole blocks.
void check_move(const StepGraph& graph, TaskId id) {
  const Task& task = graph.tasks[id];
  const Buffer *source = nullptr, *target = nullptr;
  for (const Use& use : graph.uses_of(task)) {
    const Buffer** end = use.role == Role::kSource ? &source : use.role == Role::kTarget ? &target : nullptr;
    if (end == nullptr) continue;
    SLUICE_CHECK(*end == nullptr && (use.access == Access::kRead) == (use.role == Role::kSource), graph.task_name(id), " (", id,
                 ") has a second ", name_of(use.role), " or another access to it than a move's");
    *end = &graph.buffers[use.buffer];
  }
  SLUICE_CHECK(source != nullptr && target != nullptr, graph.task_name(id), " (", id, ") has no source or no target");
  const auto goes = [&](Lane lane, Tier from, Tier to) { return task.lane == lane && source->tier == from && target->tier == to; };
  SLUICE_CHECK(goes(Lane::kDownload, Tier::kDevice, Tier::kHost) || goes(Lane::kUpload, Tier::kHost, Tier::kDevice) ||
                   goes(Lane::kDiskRead, Tier::kDisk, Tier::kHost) || goes(Lane::kDiskWrite, Tier::kHost, Tier::kDisk),
               graph.task_name(id), " (", id, ") goes from ", name_of(source->tier), " to ", name_of(target->tier));
  SLUICE_CHECK((task.chunk >= 0) != (task.segment >= 0), graph.task_name(id), " (", id, ") moves chunk ", task.chunk, " and segment ",
               task.segment);
  SLUICE_CHECK(!task.accumulate || (task.lane == Lane::kDownload && task.plane == chunks::Plane::kGradient), graph.task_name(id), " (", id,
               ") adds to something else than a gradient in host memory");
  if (task.lane != Lane::kDiskRead && task.lane != Lane::kDiskWrite) return;
  const Buffer& disk = task.lane == Lane::kDiskRead ? *source : *target;
  const Buffer& memory = task.lane == Lane::kDiskRead ? *target : *source;
  // What a step changes has two halves, so that the last step's state is whole until the new one is.
  SLUICE_CHECK(disk.halves || task.lane == Lane::kDiskRead || !changes_state(graph, task), graph.task_name(id), " (", id,
               ") writes over the only copy of ", graph.buffer_name(graph.use_of(task, Role::kTarget)->buffer));
  const std::int64_t room = disk.copy_bytes();
  SLUICE_CHECK(
      disk.offset % kDiskAlignment == 0 && memory.offset % kDiskAlignment == 0 && room % kDiskAlignment == 0 && room == memory.bytes,
      graph.task_name(id), " (", id, ") moves between ", room, " bytes of the disk at ", disk.offset, " and ", memory.bytes,
      " bytes of memory at ", memory.offset);
}

}  // namespace

void check_order(const StepGraph& graph) {
  std::array<std::int32_t, kLaneCount> sequence{};
  std::vector<Contents> tiers(spec::kTierCount, Contents(graph));
  for (BufferId id = 0; id < graph.buffers.size(); ++id) {
    const Buffer& buffer = graph.buffers[id];
    const auto tier = static_cast<std::size_t>(buffer.tier);
    if (buffer.persistent) {
      SLUICE_CHECK(buffer.offset >= 0 && buffer.offset + buffer.bytes <= graph.persistent_bytes[tier], "persistent ", graph.buffer_name(id),
                   " stands at ", buffer.offset, ", the persistent part has ", graph.persistent_bytes[tier], " bytes");
      tiers[tier].found(id);
    }
  }
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    for (const TaskId wait : graph.waits_of(task))
      SLUICE_CHECK(wait < id, graph.task_name(id), " (", id, ") waits for the later task ", wait);
    if (is_communication(task.lane)) {
      const auto lane = static_cast<std::size_t>(task.lane);
      SLUICE_CHECK(task.sequence == sequence[lane], graph.task_name(id), " is number ", task.sequence, " of its lane, expected ",
                   sequence[lane]);
      ++sequence[lane];
    }
    if (task.kind == TaskKind::kMove) check_move(graph, id);
    const auto uses = graph.uses_of(task);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const Use& use = uses[i];
      const Buffer& buffer = graph.buffers[use.buffer];
      const auto tier = static_cast<std::size_t>(buffer.tier);
      SLUICE_CHECK(buffer.offset >= 0 && buffer.offset + buffer.bytes <= graph.arena_bytes[tier], graph.task_name(id), " uses ",
                   graph.buffer_name(use.buffer), " at ", buffer.offset, " of an arena of ", graph.arena_bytes[tier]);
      SLUICE_CHECK(buffer.persistent || buffer.bytes == 0 || buffer.offset >= graph.persistent_bytes[tier], graph.task_name(id), " uses ",
                   graph.buffer_name(use.buffer), " at ", buffer.offset, ", among the persistent buffers, which take ",
                   graph.persistent_bytes[tier], " bytes");
      SLUICE_CHECK(id >= buffer.first && id <= buffer.last, graph.task_name(id), " uses ", graph.buffer_name(use.buffer),
                   " outside its lifetime");
      for (const Use& other : uses.first(i)) {
        SLUICE_CHECK(other.buffer == use.buffer || !overlap(buffer, graph.buffers[other.buffer]), graph.task_name(id), " (", id, ") uses ",
                     graph.buffer_name(other.buffer), " and ", graph.buffer_name(use.buffer), ", which overlap");
      }
      if (use.access != Access::kWrite) tiers[tier].read(id, use.buffer);
      if (use.access != Access::kRead) tiers[tier].write(id, use.buffer);
    }
  }
}

void check_races(const StepGraph& graph) {
  const Clocks clocks(graph);
  std::vector<ByteHistory> tiers(spec::kTierCount, ByteHistory(graph, clocks));
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    for (const Use& use : graph.uses_of(graph.tasks[id])) {
      tiers[static_cast<std::size_t>(graph.buffers[use.buffer].tier)].access(id, use.buffer, use.access != Access::kRead);
    }
  }
}

void check_cancel(const StepGraph& graph) {
  const Clocks clocks(graph);
  std::vector<TaskId> agrees;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    if (graph.tasks[id].kind == TaskKind::kAgree) agrees.push_back(id);
  }
  TaskId before = kNone, first_change = kNone, last_change = kNone, computed = kNone;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    if (task.kind == TaskKind::kAgree && task.agree_role != AgreeRole::kStart && computed != kNone) {
      SLUICE_CHECK(clocks.happens_before(computed, id), graph.task_name(id), " (", id, ") asks whether to stop before ",
                   graph.task_name(computed), " (", computed, ") is done");
    }
    if (task.lane == Lane::kCompute) computed = id;
    if (before != kNone) {
      SLUICE_CHECK(task.governed_by >= graph.tasks[before].governed_by, graph.task_name(id), " (", id,
                   ") runs on after a cancel that skips the earlier ", graph.task_name(before), " (", before, ")");
    }
    before = id;
    if (changes_state(graph, task)) {
      if (first_change == kNone) first_change = id;
      last_change = id;
    }
    if (task.governed_by < 0) continue;
    SLUICE_CHECK(static_cast<std::size_t>(task.governed_by) < agrees.size(), graph.task_name(id), " (", id, ") is governed by agree ",
                 task.governed_by, " of ", agrees.size());
    const TaskId agree = agrees[static_cast<std::size_t>(task.governed_by)];
    SLUICE_CHECK(clocks.happens_before(agree, id), graph.task_name(id), " (", id, ") does not wait for the agree that governs it, task ",
                 agree);
  }
  if (first_change == kNone) return;
  for (int ordinal = 0; ordinal < static_cast<int>(agrees.size()); ++ordinal) {
    const TaskId agree = agrees[static_cast<std::size_t>(ordinal)];
    const bool splits = graph.tasks[first_change].governed_by < ordinal && ordinal <= graph.tasks[last_change].governed_by;
    SLUICE_CHECK(!graph.tasks[agree].can_cancel || !splits, "a cancel at task ", agree, " skips ", graph.task_name(last_change), " (",
                 last_change, ") but not ", graph.task_name(first_change), " (", first_change, ")");
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
      if (task.sequence >= 0)
        node[first[c] + id] = meeting.emplace(std::pair(static_cast<int>(task.lane), task.sequence), first[c] + id).first->second;
    }
  }
  std::vector<std::vector<std::size_t>> after(first.back());
  std::vector<int> pending(first.back(), 0);
  const auto edge = [&](std::size_t from, std::size_t to) {
    after[from].push_back(to);
    ++pending[to];
  };
  for (std::size_t c = 0; c < classes.size(); ++c) {
    LaneTasks tail = kNoTasks;
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
      SLUICE_CHECK(pending[n] == 0, "the ranks' orders form a cycle through ", classes[c]->task_name(id), " (task ", id, " of class ", c,
                   ")");
    }
  }
}

void check_all(const StepGraph& graph) {
  check_order(graph);
  check_races(graph);
  check_cancel(graph);
  const StepGraph* const one = &graph;
  check_meetings({&one, 1});
}

std::string describe_meetings(const StepGraph& graph) {
  std::ostringstream lines;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    for (const StepGraph::Meeting& meeting : graph.meetings(static_cast<Lane>(lane))) {
      // Which cancel skips a meeting belongs to it: ranks that differ there would wait for each other after a cancel.
      const int governor = graph.tasks[meeting.task].governed_by;
      lines << name_of(static_cast<Lane>(lane)) << " " << graph.task_name(meeting.task) << ", " << meeting.bytes << " bytes"
            << (meeting.dtype ? cat(" of ", name_of(*meeting.dtype)) : std::string()) << reduction_of(graph.tasks[meeting.task])
            << (governor >= 0 ? cat(", under agree ", governor) : std::string()) << "\n";
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
