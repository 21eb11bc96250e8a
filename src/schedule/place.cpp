#include "schedule/place.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::schedule {
namespace {

/// Free ranges of one region, best fit, merged with their neighbours; grows at its end.
class Region {
 public:
  std::int64_t allocate(std::int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, offset] = *fit;
      erase(offset, size);
      if (size > bytes) insert(offset + bytes, size - bytes);
      return offset;
    }
    // The last free range may touch the end: grow it rather than leave it behind.
    std::int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto last = std::prev(by_offset_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        erase(last->first, last->second);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void release(std::int64_t offset, std::int64_t bytes) {
    auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.end() && after->first == offset + bytes) {
      bytes += after->second;
      erase(after->first, after->second);
    }
    auto before = by_offset_.lower_bound(offset);
    if (before != by_offset_.begin()) {
      --before;
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        erase(before->first, before->second);
      }
    }
    insert(offset, bytes);
  }

  std::int64_t end() const { return end_; }

 private:
  void insert(std::int64_t offset, std::int64_t bytes) {
    by_offset_[offset] = bytes;
    by_size_.insert({bytes, offset});
  }
  void erase(std::int64_t offset, std::int64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }
  std::map<std::int64_t, std::int64_t> by_offset_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
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

bool is_long_lived(BufferTag tag) { return tag == BufferTag::kActivation || tag == BufferTag::kSaved || tag == BufferTag::kTokens; }

}  // namespace

void place(StepGraph& graph) {
  const std::size_t tasks = graph.tasks.size();
  // Last user per buffer and lane, and buffers by their first and last task.
  std::vector<std::array<TaskId, kLaneCount>> last_user(graph.buffers.size());
  for (auto& users : last_user) users.fill(kNone);
  for (TaskId id = 0; id < tasks; ++id) {
    for (const Use& use : graph.uses_of(graph.tasks[id])) last_user[use.buffer][static_cast<std::size_t>(graph.tasks[id].lane)] = id;
  }
  std::vector<BufferId> starts, ends;
  graph.persistent_bytes = {};
  for (BufferId id = 0; id < graph.buffers.size(); ++id) {
    Buffer& buffer = graph.buffers[id];
    const auto tier = static_cast<std::size_t>(buffer.tier);
    if (buffer.persistent) {
      buffer.offset = graph.persistent_bytes[tier];
      graph.persistent_bytes[tier] += round_up(buffer.bytes, kBufferAlignment);
    } else if (buffer.first != kNone) {
      starts.push_back(id);
      ends.push_back(id);
    }
  }
  std::sort(starts.begin(), starts.end(), [&](BufferId a, BufferId b) { return std::pair(graph.buffers[a].first, a) < std::pair(graph.buffers[b].first, b); });
  std::sort(ends.begin(), ends.end(), [&](BufferId a, BufferId b) { return std::pair(graph.buffers[a].last, a) < std::pair(graph.buffers[b].last, b); });

  std::array<std::array<Region, 2>, spec::kTierCount> regions;
  std::array<std::array<Owners, 2>, spec::kTierCount> owners;
  std::array<std::int64_t, spec::kTierCount> live{};
  graph.live_bytes_peak = {};
  std::vector<std::pair<TaskId, TaskId>> reuse_waits;
  std::size_t next_end = 0;
  for (const BufferId id : starts) {
    Buffer& buffer = graph.buffers[id];
    for (; next_end < ends.size() && graph.buffers[ends[next_end]].last < buffer.first; ++next_end) {
      const Buffer& dead = graph.buffers[ends[next_end]];
      const auto tier = static_cast<std::size_t>(dead.tier);
      const std::int64_t bytes = round_up(dead.bytes, kBufferAlignment);
      if (bytes == 0) continue;
      regions[tier][is_long_lived(dead.tag) ? 0 : 1].release(dead.offset, bytes);
      live[tier] -= bytes;
    }
    const auto tier = static_cast<std::size_t>(buffer.tier);
    const std::size_t region = is_long_lived(buffer.tag) ? 0 : 1;
    const std::int64_t bytes = round_up(buffer.bytes, kBufferAlignment);
    buffer.offset = bytes == 0 ? 0 : regions[tier][region].allocate(bytes);
    live[tier] += bytes;
    graph.live_bytes_peak[tier] = std::max(graph.live_bytes_peak[tier], live[tier]);
    owners[tier][region].take(buffer.offset, buffer.offset + bytes, id, [&](BufferId old) {
      for (const TaskId user : last_user[old]) {
        if (user != kNone) reuse_waits.emplace_back(buffer.first, user);
      }
    });
  }
  for (std::size_t tier = 0; tier < spec::kTierCount; ++tier) {
    graph.arena_bytes[tier] = graph.persistent_bytes[tier] + regions[tier][0].end() + regions[tier][1].end();
  }
  for (const BufferId id : starts) {
    Buffer& buffer = graph.buffers[id];
    const auto tier = static_cast<std::size_t>(buffer.tier);
    buffer.offset += graph.persistent_bytes[tier] + (is_long_lived(buffer.tag) ? 0 : regions[tier][0].end());
  }

  // Rebuild the waits with those of reuse, leaving out what others imply.
  std::sort(reuse_waits.begin(), reuse_waits.end());
  using Clock = std::array<std::uint32_t, kLaneCount>;
  std::vector<Clock> clocks(tasks);
  std::vector<std::uint32_t> position(tasks);
  std::array<TaskId, kLaneCount> tail{};
  tail.fill(kNone);
  std::array<std::uint32_t, kLaneCount> length{};
  std::vector<TaskId> waits;
  waits.reserve(graph.waits.size() + reuse_waits.size() / 4);
  std::vector<TaskId> wanted;
  std::size_t next_reuse = 0;
  for (TaskId id = 0; id < tasks; ++id) {
    Task& task = graph.tasks[id];
    const auto lane = static_cast<std::size_t>(task.lane);
    Clock clock{};
    const auto join = [&](TaskId on) {
      for (std::size_t l = 0; l < kLaneCount; ++l) clock[l] = std::max(clock[l], clocks[on][l]);
      const auto l = static_cast<std::size_t>(graph.tasks[on].lane);
      clock[l] = std::max(clock[l], position[on] + 1);
    };
    if (tail[lane] != kNone) join(tail[lane]);
    wanted.assign(graph.waits_of(task).begin(), graph.waits_of(task).end());
    for (; next_reuse < reuse_waits.size() && reuse_waits[next_reuse].first == id; ++next_reuse) wanted.push_back(reuse_waits[next_reuse].second);
    std::sort(wanted.begin(), wanted.end(), std::greater<>());
    task.first_wait = static_cast<std::uint32_t>(waits.size());
    for (const TaskId on : wanted) {
      SLUICE_CHECK(on < id, graph.task_name(id), " would wait for the later ", graph.task_name(on));
      if (clock[static_cast<std::size_t>(graph.tasks[on].lane)] > position[on]) continue;
      waits.push_back(on);
      join(on);
    }
    task.wait_count = static_cast<std::uint32_t>(waits.size()) - task.first_wait;
    clocks[id] = clock;
    position[id] = length[lane]++;
    tail[lane] = id;
  }
  graph.waits = std::move(waits);
}

}  // namespace sluice::schedule
