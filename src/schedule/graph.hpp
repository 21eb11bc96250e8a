#pragma once
// The step graph: everything a rank does in one run, written down before it (design section 1).

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "chunks/layout.hpp"
#include "model/model.hpp"
#include "spec/plan.hpp"

namespace sluice::schedule {

enum class TaskKind : std::uint8_t {
  kLoad,
  kAgree,
  kCompute,
  kGather,
  kScatter,
  kMove,
  kNorm,
  kUpdate,
  kSend,
  kRecv,
  kCollective,
  kForeign
};
std::string_view name_of(TaskKind kind);

enum class Lane : std::uint8_t {
  kCompute,
  kHostCompute,
  kGatherComm,
  kScatterComm,
  kMeshComm,
  kSend,
  kRecv,
  kUpload,
  kDownload,
  kDiskRead,
  kDiskWrite
};
inline constexpr int kLaneCount = 11;
std::string_view name_of(Lane lane);
/// Lanes served by the thread that owns communication.
bool is_communication(Lane lane);
/// Lanes that have several tasks under way: a task may start as soon as those before it have started. They complete in order.
bool is_asynchronous(Lane lane);

using TaskId = std::uint32_t;
using BufferId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;
using LaneTasks = std::array<TaskId, kLaneCount>;  // a task or kNone per lane
inline constexpr LaneTasks kNoTasks = [] {
  LaneTasks none{};
  none.fill(kNone);
  return none;
}();

inline constexpr std::int64_t kBufferAlignment = 64;  // bytes: a cache line, and the widest vector
inline constexpr std::int64_t kDiskAlignment = 4096;  // bytes: every disk's sectors divide it, and a page

/// What a buffer is for: its accounting tag and, with `index`, its name for people.
enum class BufferTag : std::uint8_t {
  kWorking,
  kGradient,
  kMaster,
  kMoments,
  kGathered,
  kMicroGradient,
  kActivation,
  kSaved,
  kActivationGradient,
  kWorkspace,
  kTokens,
  kControl
};
inline constexpr int kBufferTagCount = 12;
std::string_view name_of(BufferTag tag);

/// A planned range of one tier's arena. Persistent ones keep their contents between runs and stand at the same offset in every
/// graph of a set; the others live from their first task, or from where they are held, to their last.
struct Buffer {
  BufferTag tag = BufferTag::kWorkspace;
  spec::Tier tier = spec::Tier::kDevice;
  bool persistent = false;
  bool halves = false;      // on disk: room for two copies of what it holds, so that one is whole while the other is written
  std::int32_t index = -1;  // chunk, run, segment or control number, by tag
  std::int32_t micro = -1;  // micro-batch, or -1
  std::int64_t bytes = 0;
  std::int64_t offset = -1;  // in its tier's arena; set by placement
  TaskId first = kNone;      // in the linear order: since when, and until when its bytes are its own
  TaskId last = kNone;

  std::int64_t copy_bytes() const { return halves ? bytes / 2 : bytes; }
};

enum class Access : std::uint8_t { kRead, kWrite, kReadWrite };

/// What a use is to its task's body.
enum class Role : std::uint8_t {
  kInput,
  kOutput,
  kGradientInOut,
  kSaved,
  kWorkspace,
  kParam,
  kParamGrad,
  kTokens,
  kValidCount,
  kLoss,
  kReport,
  kSource,
  kTarget,
  kMoment1,
  kMoment2,
  kLogits,
  kStaging
};
std::string_view name_of(Role role);

/// A task's claim on a buffer. A task's body is given only what it declares.
struct Use {
  BufferId buffer;
  Access access;
  Role role;
};

/// What an agree task may do to the step.
enum class AgreeRole : std::uint8_t { kStart, kMicroBatch, kBeforeUpdate };

struct Task {
  TaskKind kind = TaskKind::kCompute;
  Lane lane = Lane::kCompute;
  model::Phase phase = model::Phase::kForward;    // compute
  chunks::Plane plane = chunks::Plane::kWorking;  // gather, scatter, move: of the source
  AgreeRole agree_role = AgreeRole::kStart;
  bool can_cancel = false;        // agree: a stop request cancels the step here
  bool accumulate = false;        // scatter, move: added to what stands in the target
  std::int32_t governed_by = -1;  // ordinal of the agree that can cancel this task; -1: none yet
  std::int32_t segment = -1;      // compute; move of what a segment saved
  std::int32_t chunk = -1;        // gather, scatter, move of a plane, norm, update, foreign
  std::int32_t micro = -1;
  std::int32_t sequence = -1;  // place in its lane's sequence of collectives; -1: not a collective
  std::uint32_t first_use = 0, use_count = 0;
  std::uint32_t first_wait = 0, wait_count = 0;
};

enum class GraphKind : std::uint8_t { kStep, kFlush, kEvaluate, kGenerate, kSave };
std::string_view name_of(GraphKind kind);

/// One rank class's tasks in linear order, with waits that all point backwards. Lanes are projections of that order, and each is
/// executed first in, first out.
class StepGraph {
 public:
  GraphKind kind = GraphKind::kStep;
  DType storage = DType::kF32;  // of working parameters; the other planes are f32
  std::vector<Task> tasks;
  std::vector<Buffer> buffers;
  std::vector<Use> uses;  // of all tasks, task by task
  // Of all tasks, task by task. What a lane's order implies is not listed; nor that of two tasks of an asynchronous lane on one buffer,
  // which those who serve it keep.
  std::vector<TaskId> waits;

  std::span<const Use> uses_of(const Task& task) const { return {uses.data() + task.first_use, task.use_count}; }
  std::span<const TaskId> waits_of(const Task& task) const { return {waits.data() + task.first_wait, task.wait_count}; }
  /// The first use of that role; null if there is none.
  const Use* use_of(const Task& task, Role role) const;
  std::string task_name(TaskId id) const;  // "forward layer 3 attention, micro-batch 0"
  std::string buffer_name(BufferId id) const;

  /// Where buffers of each tier may begin: multiples of this many bytes, the same in all graphs of a set.
  std::array<std::int64_t, spec::kTierCount> alignment{kBufferAlignment, kBufferAlignment, kBufferAlignment};
  /// Bytes of each tier's arena that the graph needs; after placement.
  std::array<std::int64_t, spec::kTierCount> arena_bytes{};
  std::array<std::int64_t, spec::kTierCount> persistent_bytes{};
  /// The most bytes of transient buffers alive at once: what placement could reach at best.
  std::array<std::int64_t, spec::kTierCount> live_bytes_peak{};

  /// Bytes of main memory that the graph takes once an executor has it bound: its own, and for every task a body, an event and a launch.
  /// Of these the malloc'ed sizes are measured (bookkeeping_test holds them).
  std::int64_t bookkeeping_bytes() const;

  /// Identity of everything above: simulator and executor report the same one.
  std::uint64_t hash() const;
  /// The sequence of collectives (kind, bytes, dtype, order) of one lane, for the comparison over ranks before step 1.
  struct Meeting {
    TaskKind kind;
    std::int32_t subject;
    std::int64_t bytes;
    std::optional<DType> dtype;  // of gathers and reductions; others exchange records of their own
    TaskId task;
  };
  std::vector<Meeting> meetings(Lane lane) const;
  /// One line a task, for people.
  void dump(std::ostream& out) const;
};

/// Per task, for every lane, how many of that lane's tasks are certainly complete when it starts. Grows task by task, in linear order:
/// add(), then wait() for each of its waits.
class Clocks {
 public:
  Clocks() = default;
  explicit Clocks(const StepGraph& graph);
  /// The next task: it waits for what its lane's order says.
  void add(Lane lane);
  /// The task added last waits for the earlier `on`, too. False: that was implied already.
  bool wait(TaskId on);
  /// The last task on a lane; kNone before the first.
  TaskId last_of(Lane lane) const { return tail_[static_cast<std::size_t>(lane)]; }
  /// Whether a is complete when b starts.
  bool happens_before(TaskId a, TaskId b) const { return clocks_[b][lanes_[a]] > position_[a]; }

 private:
  std::vector<std::array<std::uint32_t, kLaneCount>> clocks_;
  std::vector<std::uint32_t> position_;  // on its lane
  std::vector<std::uint8_t> lanes_;
  LaneTasks tail_ = kNoTasks;
  std::array<std::uint32_t, kLaneCount> length_{};
};

/// Emits tasks in linear order. Waits are derived from the uses: a read waits for the last writer, a write for the last writer
/// and all readers since. Waits that others imply are left out.
class GraphBuilder {
 public:
  explicit GraphBuilder(GraphKind kind) { graph_.kind = kind; }
  BufferId add_buffer(const Buffer& buffer);
  /// Gives a buffer its bytes from the next task on, though a later one is the first to use it: so that this one need not wait for those
  /// who leave theirs in between.
  void hold(BufferId buffer);
  /// Appends `task` (its use and wait fields are filled here). `after`: a task that it waits for, whatever it uses.
  TaskId add_task(Task task, std::span<const Use> uses, TaskId after = kNone);
  /// The last task emitted on a lane; kNone before the first.
  TaskId last_of(Lane lane) const { return clocks_.last_of(lane); }
  /// From now on every task waits for this agree and is skipped if it (or one before it) cancels the step.
  void govern_by(TaskId agree);
  const StepGraph& graph() const { return graph_; }
  StepGraph finish() &&;

 private:
  struct Hazards {
    TaskId writer = kNone;
    LaneTasks readers = kNoTasks;  // the last since the last write
  };

  StepGraph graph_;
  std::vector<Hazards> hazards_;
  Clocks clocks_;
  std::array<std::int32_t, kLaneCount> lane_sequence_{};
  TaskId governor_ = kNone;
  std::int32_t governor_ordinal_ = -1;
  std::int32_t agree_count_ = 0;
  std::vector<std::int32_t> ordinal_;  // of agree tasks, by task
  std::vector<TaskId> candidates_;     // of the task being added: what it may have to wait for
};

}  // namespace sluice::schedule
