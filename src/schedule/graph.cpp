#include "schedule/graph.hpp"

#include <algorithm>
#include <ostream>
#include <set>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace sluice::schedule {
namespace {

template <typename Enum, std::size_t N>
std::string_view lookup(Enum value, const std::array<std::string_view, N>& names) {
  const auto i = static_cast<std::size_t>(value);
  return i < N ? names[i] : std::string_view("?");
}

}  // namespace

std::string_view name_of(TaskKind kind) {
  static constexpr std::array<std::string_view, 12> kNames{"load", "agree",  "compute", "gather", "scatter",    "move",
                                                           "norm", "update", "send",    "recv",   "collective", "foreign"};
  return lookup(kind, kNames);
}

std::string_view name_of(Lane lane) {
  static constexpr std::array<std::string_view, kLaneCount> kNames{"compute",   "host_compute", "gather_comm", "scatter_comm",
                                                                   "mesh_comm", "send",         "recv",        "upload",
                                                                   "download",  "disk_read",    "disk_write"};
  return lookup(lane, kNames);
}

bool is_communication(Lane lane) {
  return lane == Lane::kGatherComm || lane == Lane::kScatterComm || lane == Lane::kMeshComm || lane == Lane::kSend || lane == Lane::kRecv;
}

bool is_asynchronous(Lane lane) {
  return is_communication(lane) || lane == Lane::kDiskRead || lane == Lane::kDiskWrite;
}

std::string_view name_of(BufferTag tag) {
  static constexpr std::array<std::string_view, kBufferTagCount> kNames{
      "working",   "gradient", "master", "moments", "gathered", "micro-gradient", "activation", "saved", "activation-gradient",
      "workspace", "tokens",   "control"};
  return lookup(tag, kNames);
}

std::string_view name_of(Role role) {
  static constexpr std::array<std::string_view, 17> kNames{"x",      "y",       "d",          "saved",  "workspace", "param",
                                                           "grad",   "tokens",  "valid",      "loss",   "report",    "source",
                                                           "target", "exp_avg", "exp_avg_sq", "logits", "staging"};
  return lookup(role, kNames);
}

std::string_view name_of(GraphKind kind) {
  static constexpr std::array<std::string_view, 5> kNames{"step", "flush", "evaluate", "generate", "save"};
  return lookup(kind, kNames);
}

const Use* StepGraph::use_of(const Task& task, Role role) const {
  for (const Use& use : uses_of(task)) {
    if (use.role == role) return &use;
  }
  return nullptr;
}

std::string StepGraph::task_name(TaskId id) const {
  const Task& task = tasks[id];
  const std::string micro = task.micro >= 0 ? cat(", micro-batch ", task.micro) : std::string();
  switch (task.kind) {
    case TaskKind::kCompute:
      return cat(model::name_of(task.phase), " segment ", task.segment, micro);
    case TaskKind::kGather:
    case TaskKind::kScatter:
      return cat(name_of(task.kind), " ", chunks::name_of(task.plane), " of chunk ", task.chunk, micro);
    case TaskKind::kMove:
      if (task.chunk < 0) return cat(name_of(task.lane), " saved of segment ", task.segment, micro);
      return cat(name_of(task.lane), " ", chunks::name_of(task.plane), " of chunk ", task.chunk, micro);
    case TaskKind::kNorm:
      return task.chunk >= 0 ? cat("norm of chunk ", task.chunk) : std::string("norm over ranks");
    case TaskKind::kUpdate:
    case TaskKind::kForeign:
      return cat(name_of(task.kind), " chunk ", task.chunk);
    case TaskKind::kAgree:
      return cat("agree", task.can_cancel ? " (may cancel)" : "", micro);
    case TaskKind::kLoad:
    case TaskKind::kSend:
    case TaskKind::kRecv:
    case TaskKind::kCollective:
      break;
  }
  return cat(name_of(task.kind), micro);
}

std::string StepGraph::buffer_name(BufferId id) const {
  const Buffer& buffer = buffers[id];
  return cat(name_of(buffer.tag), buffer.index >= 0 ? cat(" ", buffer.index) : std::string(),
             buffer.micro >= 0 ? cat("/", buffer.micro) : std::string());
}

std::int64_t StepGraph::bookkeeping_bytes() const {
  const auto bytes_of = [](const auto& values) {
    return static_cast<std::int64_t>(values.size() * sizeof(typename std::decay_t<decltype(values)>::value_type));
  };
  constexpr std::int64_t kOfTask = 300, kOfBuffer = 24;  // the executor's
  return bytes_of(tasks) + bytes_of(buffers) + bytes_of(uses) + bytes_of(waits) + kOfTask * static_cast<std::int64_t>(tasks.size()) +
         kOfBuffer * static_cast<std::int64_t>(buffers.size());
}

std::uint64_t StepGraph::hash() const {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(storage) << 8).add(tasks.size()).add(buffers.size());
  for (const Task& task : tasks) {
    hash.add(static_cast<std::uint64_t>(task.kind) | static_cast<std::uint64_t>(task.lane) << 8 |
             static_cast<std::uint64_t>(task.phase) << 16 | static_cast<std::uint64_t>(task.plane) << 24 |
             static_cast<std::uint64_t>(task.can_cancel) << 32 | static_cast<std::uint64_t>(task.accumulate) << 33);
    hash.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(task.governed_by)));
    hash.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(task.segment)) << 32 | static_cast<std::uint32_t>(task.chunk));
    hash.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(task.micro)) << 32 | static_cast<std::uint32_t>(task.sequence));
    for (const Use& use : uses_of(task)) {
      hash.add(static_cast<std::uint64_t>(use.buffer) << 16 | static_cast<std::uint64_t>(use.access) << 8 |
               static_cast<std::uint64_t>(use.role));
    }
    for (const TaskId wait : waits_of(task)) hash.add(wait);
  }
  for (const Buffer& buffer : buffers) {
    hash.add(static_cast<std::uint64_t>(buffer.tag) | static_cast<std::uint64_t>(buffer.tier) << 8 |
             static_cast<std::uint64_t>(buffer.halves) << 16)
        .add(static_cast<std::uint64_t>(buffer.bytes))
        .add(static_cast<std::uint64_t>(buffer.offset));
  }
  return hash.value();
}

std::vector<StepGraph::Meeting> StepGraph::meetings(Lane lane) const {
  std::vector<Meeting> result;
  for (TaskId id = 0; id < tasks.size(); ++id) {
    const Task& task = tasks[id];
    if (task.lane != lane || task.sequence < 0) continue;
    std::int64_t bytes = 0;
    for (const Use& use : uses_of(task)) bytes += buffers[use.buffer].bytes;
    std::optional<DType> dtype;
    if (task.kind == TaskKind::kGather || task.kind == TaskKind::kScatter)
      dtype = task.plane == chunks::Plane::kWorking ? storage : DType::kF32;
    result.push_back({task.kind, task.chunk, bytes, dtype, id});
  }
  return result;
}

void StepGraph::dump(std::ostream& out) const {
  out << "graph " << name_of(kind) << ": " << tasks.size() << " tasks, " << buffers.size() << " buffers, " << waits.size()
      << " waits, hash " << Hash::hex_of(hash()) << "\n";
  for (int tier = 0; tier < spec::kTierCount; ++tier) {
    const auto t = static_cast<std::size_t>(tier);
    if (arena_bytes[t] == 0) continue;
    out << "  " << spec::name_of(static_cast<spec::Tier>(tier)) << ": " << format_bytes(arena_bytes[t]) << ", of it persistent "
        << format_bytes(persistent_bytes[t]) << ", transient at once " << format_bytes(live_bytes_peak[t]) << "\n";
  }
  for (TaskId id = 0; id < tasks.size(); ++id) {
    const Task& task = tasks[id];
    out << id << " [" << name_of(task.lane) << "] " << task_name(id);
    if (task.sequence >= 0) out << " #" << task.sequence;
    if (task.governed_by >= 0) out << " under agree " << task.governed_by;
    const char* separator = " | waits ";
    for (const TaskId wait : waits_of(task)) {
      out << separator << wait;
      separator = " ";
    }
    separator = " | ";
    std::set<std::string> told;  // parameters that lie in one buffer are as many uses of it
    for (const Use& use : uses_of(task)) {
      const Buffer& buffer = buffers[use.buffer];
      const char* access = use.access == Access::kRead ? "r " : use.access == Access::kWrite ? "w " : "rw ";
      const std::string text = cat(access, name_of(use.role), "=", buffer_name(use.buffer), "@", spec::name_of(buffer.tier), "+",
                                   buffer.offset, ":", buffer.bytes);
      if (!told.insert(text).second) continue;
      out << separator << text;
      separator = ", ";
    }
    out << "\n";
  }
}

Clocks::Clocks(const StepGraph& graph) : Clocks() {
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    add(graph.tasks[id].lane);
    for (const TaskId on : graph.waits_of(graph.tasks[id])) {
      SLUICE_CHECK(on < id, graph.task_name(id), " waits for the later ", graph.task_name(on));
      wait(on);
    }
  }
}

void Clocks::add(Lane lane) {
  const auto l = static_cast<std::size_t>(lane);
  clocks_.emplace_back();
  position_.push_back(length_[l]++);
  lanes_.push_back(static_cast<std::uint8_t>(l));
  if (tail_[l] != kNone) {
    clocks_.back() = clocks_[tail_[l]];
    if (!is_asynchronous(lane)) clocks_.back()[l] = position_.back();
  }
  tail_[l] = static_cast<TaskId>(clocks_.size()) - 1;
}

bool Clocks::wait(TaskId on) {
  auto& clock = clocks_.back();
  const std::size_t lane = lanes_[on];
  if (clock[lane] > position_[on]) return false;
  const auto& other = clocks_[on];
  for (std::size_t l = 0; l < kLaneCount; ++l) clock[l] = std::max(clock[l], other[l]);
  clock[lane] = std::max(clock[lane], position_[on] + 1);
  return true;
}

BufferId GraphBuilder::add_buffer(const Buffer& buffer) {
  SLUICE_CHECK(buffer.bytes >= 0, "a buffer of ", buffer.bytes, " bytes");
  graph_.buffers.push_back(buffer);
  hazards_.emplace_back();
  return static_cast<BufferId>(graph_.buffers.size()) - 1;
}

void GraphBuilder::hold(BufferId buffer) {
  TaskId& first = graph_.buffers[buffer].first;
  SLUICE_CHECK(first == kNone, graph_.buffer_name(buffer), " is in use already");
  first = static_cast<TaskId>(graph_.tasks.size());
}

TaskId GraphBuilder::add_task(Task task, std::span<const Use> uses, TaskId after) {
  const TaskId id = static_cast<TaskId>(graph_.tasks.size());
  const auto lane = static_cast<std::size_t>(task.lane);
  task.first_use = static_cast<std::uint32_t>(graph_.uses.size());
  task.use_count = static_cast<std::uint32_t>(uses.size());
  task.first_wait = static_cast<std::uint32_t>(graph_.waits.size());
  task.governed_by = governor_ordinal_;
  if (is_communication(task.lane)) task.sequence = lane_sequence_[lane]++;
  // Latest first: a later task's clock implies more.
  candidates_.clear();
  const auto candidate = [&](TaskId on) {
    if (on != kNone && graph_.tasks[on].lane != task.lane) candidates_.push_back(on);
  };
  // Also on its own lane, where those served there are several at a time: a rank that is told of a cancel must not have begun what
  // another skips.
  if (governor_ != kNone) candidates_.push_back(governor_);
  candidate(after);
  for (const Use& use : uses) {
    const Hazards& hazards = hazards_[use.buffer];
    candidate(hazards.writer);
    if (use.access != Access::kRead) {
      for (const TaskId reader : hazards.readers) candidate(reader);
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
  clocks_.add(task.lane);
  for (const TaskId on : candidates_) {
    if (clocks_.wait(on)) graph_.waits.push_back(on);
  }
  task.wait_count = static_cast<std::uint32_t>(graph_.waits.size()) - task.first_wait;
  for (const Use& use : uses) {
    Buffer& buffer = graph_.buffers[use.buffer];
    if (buffer.first == kNone) buffer.first = id;
    buffer.last = id;
    Hazards& hazards = hazards_[use.buffer];
    if (use.access != Access::kRead) {
      hazards.writer = id;
      hazards.readers = kNoTasks;
    } else {
      hazards.readers[lane] = id;
    }
    graph_.uses.push_back(use);
  }
  ordinal_.push_back(task.kind == TaskKind::kAgree ? agree_count_++ : std::int32_t{-1});
  graph_.tasks.push_back(task);
  return id;
}

void GraphBuilder::govern_by(TaskId agree) {
  SLUICE_CHECK(graph_.tasks[agree].kind == TaskKind::kAgree, graph_.task_name(agree), " can't govern");
  SLUICE_CHECK(ordinal_[agree] >= governor_ordinal_, "an earlier agree can't take over");
  governor_ = agree;
  governor_ordinal_ = ordinal_[agree];
}

StepGraph GraphBuilder::finish() && {
  return std::move(graph_);
}

}  // namespace sluice::schedule
