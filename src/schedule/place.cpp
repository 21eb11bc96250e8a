#include "schedule/place.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::schedule {
namespace {

/// One end of an arena: ranges handed out first fit from offset 0 on. There are about as many free ranges as live buffers, few
/// enough that walking them in order beats a tree.
class Region {
 public:
  std::int64_t allocate(std::int64_t bytes) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      if (range->bytes < bytes) continue;
      const std::int64_t offset = range->offset;
      range->offset += bytes;
      range->bytes -= bytes;
      if (range->bytes == 0) free_.erase(range);
      return offset;
    }
    end_ += bytes;
    return end_ - bytes;
  }

  void release(std::int64_t offset, std::int64_t bytes) {
    auto after =
        std::lower_bound(free_.begin(), free_.end(), offset, [](const Range& range, std::int64_t at) { return range.offset < at; });
    if (after != free_.begin() && std::prev(after)->offset + std::prev(after)->bytes == offset) {
      --after;
      after->bytes += bytes;
      const auto next = std::next(after);
      if (next != free_.end() && after->offset + after->bytes == next->offset) {
        after->bytes += next->bytes;
        free_.erase(next);
      }
    } else if (after != free_.end() && offset + bytes == after->offset) {
      after->offset = offset;
      after->bytes += bytes;
    } else {
      free_.insert(after, {offset, bytes});
    }
    if (free_.back().offset + free_.back().bytes == end_) {
      end_ = free_.back().offset;
      free_.pop_back();
    }
  }

  /// Where the last range in use ends.
  std::int64_t end() const { return end_; }

 private:
  struct Range {
    std::int64_t offset;
    std::int64_t bytes;
  };
  std::vector<Range> free_;  // by offset, none touching another or the end
  std::int64_t end_ = 0;
};

/// Which buffer last stood on which bytes of a region.
class Owners {
 public:
  /// Makes `buffer` the owner of [begin, end) and calls `previous(old)` for each owner it takes bytes from.
  template <typename Previous>
  void take(std::int64_t begin, std::int64_t end, BufferId buffer, Previous previous) {
    if (begin == end) return;
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != ranges_.end() && it->first < end) {
      const std::int64_t old_begin = it->first;
      const Range old = it->second;
      previous(old.buffer);
      it = ranges_.erase(it);
      if (old_begin < begin) ranges_[old_begin] = {begin, old.buffer};
      if (old.end > end) {
        ranges_[end] = {old.end, old.buffer};
        break;
      }
    }
    ranges_[begin] = {end, buffer};
  }

 private:
  struct Range {
    std::int64_t end;
    BufferId buffer;
  };
  std::map<std::int64_t, Range> ranges_;
};

/// A buffer's time in the linear order, and in compute tasks from its first to its last use.
struct Lifetime {
  BufferId buffer;
  TaskId first;
  TaskId last;  // until when its bytes are held
  std::uint32_t compute_tasks;
  std::int64_t bytes;  // a multiple of the tier's alignment
};

/// The transient buffers of one tier, by first and by last use.
struct Transients {
  std::vector<Lifetime> lives;      // by (first, buffer)
  std::vector<std::uint32_t> ends;  // indices into lives, by (last, buffer)

  void sort() {
    std::sort(lives.begin(), lives.end(),
              [](const Lifetime& a, const Lifetime& b) { return std::pair(a.first, a.buffer) < std::pair(b.first, b.buffer); });
    ends.resize(lives.size());
    for (std::uint32_t i = 0; i < ends.size(); ++i) ends[i] = i;
    std::sort(ends.begin(), ends.end(), [this](std::uint32_t a, std::uint32_t b) {
      return std::pair(lives[a].last, lives[a].buffer) < std::pair(lives[b].last, lives[b].buffer);
    });
  }

  /// Calls enter(i) for every buffer in order and, before it, leave(j) for those that have died.
  template <typename Enter, typename Leave>
  void sweep(Enter enter, Leave leave) const {
    std::size_t next_end = 0;
    for (std::uint32_t i = 0; i < lives.size(); ++i) {
      for (; next_end < ends.size() && lives[ends[next_end]].last < lives[i].first; ++next_end) leave(ends[next_end]);
      enter(i);
    }
  }
};

/// Offsets of Transients::lives in a range of `bytes`.
struct Arrangement {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};

/// Buffers that live for more than `longest_short` compute tasks from the low end, the others from the high end: those that come
/// and go soon leave no holes between those that stay, and the two ends share what is free.
Arrangement arrange(const Transients& transients, std::uint32_t longest_short) {
  Arrangement result;
  result.offsets.resize(transients.lives.size());
  std::array<Region, 2> ends;
  const auto is_short = [&](std::uint32_t i) { return transients.lives[i].compute_tasks <= longest_short; };
  transients.sweep(
      [&](std::uint32_t i) {
        result.offsets[i] = ends[is_short(i) ? 1 : 0].allocate(transients.lives[i].bytes);
        result.bytes = std::max(result.bytes, ends[0].end() + ends[1].end());
      },
      [&](std::uint32_t i) { ends[is_short(i) ? 1 : 0].release(result.offsets[i], transients.lives[i].bytes); });
  for (std::uint32_t i = 0; i < result.offsets.size(); ++i) {
    if (is_short(i)) result.offsets[i] = result.bytes - result.offsets[i] - transients.lives[i].bytes;
  }
  return result;
}

/// Where the line between short and long is drawn, in compute tasks: a buffer of one segment and its neighbour; with a gather
/// ahead of it and a recompute; some layers. Which is best depends on the plan, so each is tried. Off the device, where staging comes
/// and goes in its own order, all at one end first.
constexpr std::array<std::uint32_t, 4> kLongestShort{std::numeric_limits<std::uint32_t>::max(), 5, 1, 24};
std::span<const std::uint32_t> lines_of(std::size_t tier) {
  const std::span<const std::uint32_t> lines(kLongestShort);
  return tier == static_cast<std::size_t>(spec::Tier::kDevice) ? lines.subspan(1) : lines;
}
// Closer to the bytes held at once than this isn't worth another try.
constexpr std::int64_t kGoodEnough = 100;  // waste below 1 / 100

}  // namespace

void place(StepGraph& graph, int slack) {
  const std::size_t tasks = graph.tasks.size();
  // First user per buffer, last one per buffer and lane, and the compute tasks before every task.
  std::vector<TaskId> first_user(graph.buffers.size(), kNone);
  std::vector<LaneTasks> last_user(graph.buffers.size(), kNoTasks);
  std::vector<std::uint32_t> compute_before(tasks);
  std::vector<TaskId> compute_tasks;
  for (TaskId id = 0; id < tasks; ++id) {
    const Task& task = graph.tasks[id];
    compute_before[id] = static_cast<std::uint32_t>(compute_tasks.size());
    if (task.lane == Lane::kCompute) compute_tasks.push_back(id);
    for (const Use& use : graph.uses_of(task)) {
      if (first_user[use.buffer] == kNone) first_user[use.buffer] = id;
      last_user[use.buffer][static_cast<std::size_t>(task.lane)] = id;
    }
  }
  // Bytes that a collective or a download takes from a buffer are held while the next compute tasks run.
  const auto held_until = [&](TaskId last) {
    const Lane lane = graph.tasks[last].lane;
    if (slack == 0 || !(is_communication(lane) || lane == Lane::kDownload) || compute_tasks.empty()) return last;
    const std::size_t through =
        std::min(compute_tasks.size(), static_cast<std::size_t>(compute_before[last]) + static_cast<std::size_t>(slack));
    return through == 0 ? last : std::max(last, compute_tasks[through - 1]);
  };
  std::array<Transients, spec::kTierCount> transients;
  std::array<std::vector<std::int64_t>, spec::kTierCount> change;  // of the bytes alive, by task
  graph.persistent_bytes = {};
  for (BufferId id = 0; id < graph.buffers.size(); ++id) {
    Buffer& buffer = graph.buffers[id];
    const auto tier = static_cast<std::size_t>(buffer.tier);
    const std::int64_t bytes = round_up(buffer.bytes, graph.alignment[tier]);
    if (buffer.persistent) {
      buffer.offset = graph.persistent_bytes[tier];
      graph.persistent_bytes[tier] += bytes;
    } else if (buffer.last != kNone && bytes == 0) {
      buffer.offset = 0;
    } else if (buffer.last != kNone) {
      transients[tier].lives.push_back(
          {id, buffer.first, held_until(buffer.last), compute_before[buffer.last] - compute_before[buffer.first], bytes});
      change[tier].resize(tasks + 1);
      change[tier][buffer.first] += bytes;
      change[tier][buffer.last + 1] -= bytes;
    }
  }

  std::vector<std::pair<TaskId, TaskId>> reuse_waits;
  for (std::size_t tier = 0; tier < spec::kTierCount; ++tier) {
    Transients& here = transients[tier];
    here.sort();
    std::int64_t held = 0, held_peak = 0;
    here.sweep([&](std::uint32_t i) { held_peak = std::max(held_peak, held += here.lives[i].bytes); },
               [&](std::uint32_t i) { held -= here.lives[i].bytes; });
    std::int64_t live = 0;
    graph.live_bytes_peak[tier] = 0;
    for (const std::int64_t bytes : change[tier]) graph.live_bytes_peak[tier] = std::max(graph.live_bytes_peak[tier], live += bytes);
    Arrangement best;
    for (const std::uint32_t longest_short : lines_of(tier)) {
      Arrangement arrangement = arrange(here, longest_short);
      if (best.offsets.empty() || arrangement.bytes < best.bytes) best = std::move(arrangement);
      if (best.bytes - held_peak <= held_peak / kGoodEnough) break;
    }
    graph.arena_bytes[tier] = graph.persistent_bytes[tier] + best.bytes;
    Owners owners;
    for (std::uint32_t i = 0; i < here.lives.size(); ++i) {
      const Lifetime& life = here.lives[i];
      graph.buffers[life.buffer].offset = graph.persistent_bytes[tier] + best.offsets[i];
      owners.take(best.offsets[i], best.offsets[i] + life.bytes, life.buffer, [&](BufferId old) {
        for (const TaskId user : last_user[old]) {
          if (user != kNone) reuse_waits.emplace_back(first_user[life.buffer], user);
        }
      });
    }
  }

  // Rebuild the waits with those of reuse, leaving out what others imply.
  std::sort(reuse_waits.begin(), reuse_waits.end());
  Clocks clocks;
  std::vector<TaskId> waits;
  waits.reserve(graph.waits.size() + reuse_waits.size() / 4);
  std::vector<TaskId> wanted;
  std::size_t next_reuse = 0;
  for (TaskId id = 0; id < tasks; ++id) {
    Task& task = graph.tasks[id];
    wanted.assign(graph.waits_of(task).begin(), graph.waits_of(task).end());
    for (; next_reuse < reuse_waits.size() && reuse_waits[next_reuse].first == id; ++next_reuse)
      wanted.push_back(reuse_waits[next_reuse].second);
    std::sort(wanted.begin(), wanted.end(), std::greater<>());
    task.first_wait = static_cast<std::uint32_t>(waits.size());
    clocks.add(task.lane);
    for (const TaskId on : wanted) {
      SLUICE_CHECK(on < id, graph.task_name(id), " would wait for the later ", graph.task_name(on));
      if (clocks.wait(on)) waits.push_back(on);
    }
    task.wait_count = static_cast<std::uint32_t>(waits.size()) - task.first_wait;
  }
  graph.waits = std::move(waits);
}

}  // namespace sluice::schedule
