// Where the planes of chunks stand between their uses, and the moves that bring them to where they are used and back.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/units.hpp"
#include "chunks/residency.hpp"
#include "schedule/check.hpp"
#include "schedule/price.hpp"
#include "support/expect_error.hpp"
#include "support/home_cases.hpp"

namespace sluice::schedule {
namespace {

using chunks::Plane;
using spec::ChunkHomes;
using spec::Tier;
using spec::UpdateMode;
using testing::expect_error;
using testing::for_each_home_case;
using testing::GraphInputs;

constexpr ChunkHomes kAllOnDisk{Tier::kDisk, Tier::kHost, Tier::kDisk};  // but for gradients

struct Choice {
  int ranks = 2;
  int stage = 3;
  std::int64_t accumulation = 1;
  UpdateMode mode = UpdateMode::kAtEnd;
  spec::Precision precision = spec::Precision::kFp32;
  int state_prefetch = 1;
  int prefetch = 1;
  std::int64_t chunk_elements = 5120;
  std::vector<std::string> trainable = {};
  spec::MicroBatchOrder order = spec::MicroBatchOrder::kDepthFirst;
};

std::unique_ptr<GraphInputs> inputs_of(const Choice& choice, const std::vector<ChunkHomes>& homes) {
  spec::ModelSpec model = testing::tiny_model_without_dropout();
  spec::TrainingSpec training;
  training.precision = choice.precision;
  training.batch.sequence_length = 16;
  training.optimizer.gradient_clipping = choice.mode == UpdateMode::kInBackward ? 0 : 1;
  training.trainable = choice.trainable;
  spec::Plan plan;
  plan.zero_stage = choice.stage;
  plan.mesh.data = choice.ranks;
  plan.update_mode = choice.mode;
  plan.micro_batch = 2;
  plan.accumulation = choice.accumulation;
  plan.chunk_elements = choice.chunk_elements;
  plan.prefetch_segments = choice.prefetch;
  plan.state_prefetch = choice.state_prefetch;
  plan.order = choice.order;
  plan.threads = 1;
  if (!homes.empty()) plan = testing::with_homes(model, training, plan, homes);
  return std::make_unique<GraphInputs>(model, training, plan);
}

Tier home_of(const GraphInputs& inputs, Plane plane, int chunk) {
  const ChunkHomes homes = inputs.plan().home(static_cast<std::size_t>(chunk));
  return plane == Plane::kWorking ? homes.working : plane == Plane::kGradient ? homes.gradient : homes.states;
}

std::vector<int> chunks_of_run(const GraphInputs& inputs, int run) {
  const chunks::Run& r = inputs.layout().runs()[static_cast<std::size_t>(run)];
  std::vector<int> list;
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) list.push_back(c);
  return list;
}

// --- what plans may say ---------------------------------------------------------------------------------------------------

TEST(Homes, RulesOfAPlan) {
  const auto refused = [](const Choice& choice, const ChunkHomes& homes, const std::string& words) {
    expect_error<LogicError>([&] { inputs_of(choice, {homes}); }, {"chunk 0 with working", words});
  };
  using enum Tier;
  for (const int stage : {0, 1, 2}) refused({.stage = stage}, {kHost, kDevice, kHost}, "working leaves the device with zero_stage 3 only");
  for (const int stage : {0, 1})
    refused({.stage = stage}, {kDevice, kHost, kHost}, "a gradient leaves the device with zero_stage 2 and 3 only");
  refused({}, {kHost, kDevice, kDevice}, "states stand in the slowest tier");
  refused({}, {kDisk, kDevice, kHost}, "states stand in the slowest tier");
  refused({}, {kDevice, kHost, kDevice}, "states stand in the slowest tier");
  refused({}, {kDevice, kDisk, kHost}, "states stand in the slowest tier");
  for (const int stage : {0, 1})
    refused({.stage = stage}, {kDevice, kDisk, kDisk}, "a gradient leaves the device with zero_stage 2 and 3 only");
  refused({.stage = 2, .mode = UpdateMode::kInBackward}, {kDevice, kDisk, kDisk},
          "gradient disk, states disk and zero_stage 2: update mode in_backward uses up a gradient");
  for (int stage = 0; stage <= 3; ++stage) {
    for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
      for (const ChunkHomes& homes : testing::homes_of_stage(stage, mode))
        EXPECT_NO_THROW(inputs_of({.stage = stage, .mode = mode}, {homes}));
    }
  }
  // Of frozen chunks only the working parameters count.
  EXPECT_NO_THROW(inputs_of({.trainable = {"h\\.2\\."}}, {{kDisk, kHost, kDisk}}));
  const auto frozen = inputs_of({.trainable = {"ln_f"}}, {});
  BuildInputs inputs = frozen->inputs();
  for (const chunks::Chunk& chunk : frozen->layout().chunks())
    inputs.plan.homes.push_back(frozen->layout().trains(chunk) ? ChunkHomes{} : ChunkHomes{kDisk, kDisk, kDevice});
  EXPECT_NO_THROW(build(GraphKind::kStep, inputs));
  inputs.plan.homes.pop_back();
  expect_error<LogicError>([&] { build(GraphKind::kStep, inputs); }, {"plan.homes has", "entries for"});
  inputs.plan.homes.clear();
  inputs.plan.state_prefetch = -1;
  expect_error<LogicError>([&] { build(GraphKind::kStep, inputs); }, {"state_prefetch -1"});
}

TEST(Homes, EverythingOnTheDeviceIsTheGraphWithoutHomes) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
      const Choice choice{.stage = stage, .mode = mode};
      for (const GraphKind kind : {GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kSave})
        EXPECT_EQ(inputs_of(choice, {ChunkHomes{}})->build(kind).hash(), inputs_of(choice, {})->build(kind).hash());
    }
  }
}

/// Where reduced gradients are until their update: what norms are taken of.
bool is_home_of_gradient(const StepGraph& graph, BufferId id) {
  return std::any_of(graph.tasks.begin(), graph.tasks.end(), [&](const Task& task) {
    return task.kind == TaskKind::kNorm && task.chunk >= 0 && graph.use_of(task, Role::kSource)->buffer == id;
  });
}

// --- where persistent planes stand ------------------------------------------------------------------------------------------

TEST(Homes, PersistentPlanesStandAtHome) {
  for_each_home_case(3, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    const chunks::ChunkLayout& layout = inputs.layout();
    const int stage = inputs.plan().zero_stage;
    const bool in_backward = inputs.plan().update_mode == UpdateMode::kInBackward;
    // Bytes of each tier by plane, whole runs on the device where a plane isn't sharded; gradients that an update in backward uses up
    // apart.
    std::array<std::int64_t, spec::kTierCount> expected{}, passing{};
    for (const Plane plane : {Plane::kWorking, Plane::kGradient, Plane::kMaster, Plane::kMoment1, Plane::kMoment2}) {
      std::set<int> whole_runs;
      auto& sum = plane == Plane::kGradient && in_backward ? passing : expected;
      for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
        const chunks::Chunk& chunk = layout.chunks()[static_cast<std::size_t>(c)];
        if (!layout.has(plane, chunk)) continue;
        const Tier tier = home_of(inputs, plane, c);
        const bool is_whole = !chunks::is_sharded(plane, stage);
        // Rank r has blocks floor(r n / 3) to floor((r + 1) n / 3) - 1 of n blocks of 256: at most n / 3 rounded up.
        const std::int64_t part = (stage == 0 ? chunk.elements : (chunk.elements / 256 + 2) / 3 * 256) * layout.element_bytes(plane);
        if (tier == Tier::kDevice && is_whole) {
          if (whole_runs.insert(chunk.run).second)
            sum[0] += layout.runs()[static_cast<std::size_t>(chunk.run)].elements * layout.element_bytes(plane);
        } else if (tier == Tier::kDisk) {
          // A gradient is of its step alone, and frozen parameters stay as they are.
          const bool is_updated = plane != Plane::kGradient && layout.trains(chunk);
          sum[2] += (is_updated ? 2 : 1) * round_up(part, 4096);
        } else {
          sum[static_cast<std::size_t>(tier)] += part;
        }
      }
    }
    const StepGraph graph = inputs.build(GraphKind::kStep);
    std::array<std::int64_t, spec::kTierCount> found{}, found_passing{};
    for (BufferId b = 0; b < graph.buffers.size(); ++b) {
      const Buffer& buffer = graph.buffers[b];
      if (buffer.persistent && buffer.tag != BufferTag::kControl) found[static_cast<std::size_t>(buffer.tier)] += buffer.bytes;
      if (in_backward && !buffer.persistent && is_home_of_gradient(graph, b))
        found_passing[static_cast<std::size_t>(buffer.tier)] += buffer.bytes;
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(found_passing, passing);
    EXPECT_EQ(graph.persistent_bytes[2], expected[2]) << "halves leave no gaps";
    const bool disk = inputs.plan().uses_tier(Tier::kDisk);
    EXPECT_EQ(graph.arena_bytes[2] > 0, expected[2] > 0) << "nothing but planes goes to disk here";
    for (const GraphKind kind : {GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate, GraphKind::kSave}) {
      const StepGraph one = inputs.build(kind);
      EXPECT_EQ(one.alignment, (std::array<std::int64_t, 3>{64, disk ? 4096 : 64, disk ? 4096 : 64}));
      for (const Buffer& buffer : one.buffers) {
        if (buffer.offset >= 0) {
          ASSERT_EQ(buffer.offset % one.alignment[static_cast<std::size_t>(buffer.tier)], 0);
        }
      }
    }
  });
}

/// What nothing writes needs no second copy: 4 bytes an element of the frozen ones on disk, twice that of what is trained, and of each of
/// its moments.
TEST(Homes, OnlyWhatIsUpdatedStandsOnDiskTwice) {
  const auto disk_bytes = [](const Choice& choice) {
    const auto inputs = inputs_of(choice, {kAllOnDisk});
    std::int64_t frozen = 0, trained = 0;
    for (const chunks::Chunk& chunk : inputs->layout().chunks())
      (inputs->layout().trains(chunk) ? trained : frozen) += round_up(4 * chunk.elements, 4096);
    EXPECT_GT(trained, 0);
    EXPECT_EQ(frozen > 0, !choice.trainable.empty());
    for (const GraphKind kind : {GraphKind::kStep, GraphKind::kEvaluate, GraphKind::kSave})
      EXPECT_EQ(inputs->build(kind).persistent_bytes[2], frozen + 2 * 3 * trained);
    return frozen + 2 * 3 * trained;
  };
  EXPECT_LT(disk_bytes({.ranks = 1, .trainable = {"h\\.2\\."}}), disk_bytes({.ranks = 1}));
}

// --- what moves -------------------------------------------------------------------------------------------------------------

/// Follows every plane of every chunk through the tasks in order: how many updates its contents have seen, a gradient how many
/// micro-batches it sums.
class Contents {
 public:
  Contents(const GraphInputs& inputs, const StepGraph& graph) : inputs_(inputs), graph_(graph) {
    for (const Plane plane : {Plane::kWorking, Plane::kGradient, Plane::kMaster, Plane::kMoment1, Plane::kMoment2}) {
      for (int c = 0; c < static_cast<int>(inputs.layout().chunks().size()); ++c) {
        const chunks::Chunk& chunk = inputs.layout().chunks()[static_cast<std::size_t>(c)];
        if (plane == Plane::kGradient && inputs.plan().update_mode == UpdateMode::kInBackward && graph.kind != GraphKind::kStep) continue;
        if (inputs.layout().has(plane, chunk)) holds_[home_buffer(plane, c)][{plane, c}] = 0;
      }
    }
    gradient_of_earlier_graph_ = inputs.plan().update_mode == UpdateMode::kNextForward;
  }

  void run() {
    for (TaskId id = 0; id < graph_.tasks.size(); ++id) run(graph_.tasks[id], graph_.task_name(id));
  }
  int at_home(Plane plane, int chunk) { return holds_.at(home_buffer(plane, chunk)).at({plane, chunk}); }
  std::map<int, int> updates;  // per chunk
  std::map<std::pair<Plane, int>, int> saved;

 private:
  using Key = std::pair<Plane, int>;

  /// By tag, tier and number: a run's where the plane is whole on the device, else a chunk's.
  BufferId home_buffer(Plane plane, int chunk) {
    const auto known = homes_.find({plane, chunk});
    if (known != homes_.end()) return known->second;
    const Tier tier = home_of(inputs_, plane, chunk);
    const bool is_whole = tier == Tier::kDevice && !chunks::is_sharded(plane, inputs_.plan().zero_stage);
    const int index = is_whole ? inputs_.layout().chunks()[static_cast<std::size_t>(chunk)].run : chunk;
    static const std::map<Plane, BufferTag> kTags{{Plane::kWorking, BufferTag::kWorking},
                                                  {Plane::kGradient, BufferTag::kGradient},
                                                  {Plane::kMaster, BufferTag::kMaster},
                                                  {Plane::kMoment1, BufferTag::kMoments},
                                                  {Plane::kMoment2, BufferTag::kMoments}};
    const bool passes = plane == Plane::kGradient && inputs_.plan().update_mode == UpdateMode::kInBackward;
    // The two moments share a tag: the first one's buffers come first.
    std::vector<BufferId> found;
    for (BufferId b = 0; b < graph_.buffers.size(); ++b) {
      const Buffer& buffer = graph_.buffers[b];
      if (buffer.persistent != passes && buffer.index == index && buffer.tier == tier && buffer.tag == kTags.at(plane)) found.push_back(b);
    }
    return homes_[{plane, chunk}] = plane == Plane::kMoment2 ? found.back() : found.front();
  }

  void run(const Task& task, const std::string& name) {
    const Use* source = graph_.use_of(task, Role::kSource);
    const Use* target = graph_.use_of(task, Role::kTarget);
    const Key key{task.plane, task.chunk};
    const auto value = [&](const Use* use, const Key& of) {
      const auto& held = holds_[use->buffer];
      const auto at = held.find(of);
      EXPECT_TRUE(at != held.end()) << name << " reads " << chunks::name_of(of.first) << " of chunk " << of.second << " in "
                                    << graph_.buffer_name(use->buffer);
      return at == held.end() ? -1 : at->second;
    };
    switch (task.kind) {
      case TaskKind::kMove: {
        const int moved = value(source, key);
        if (!task.accumulate && !graph_.buffers[target->buffer].persistent && graph_.buffers[target->buffer].tag != BufferTag::kGathered)
          holds_[target->buffer].clear();
        holds_[target->buffer][key] = task.accumulate ? value(target, key) + moved : moved;
        break;
      }
      case TaskKind::kScatter: {
        const int before = task.accumulate ? value(target, key) : 0;
        const bool sums_before = inputs_.plan().zero_stage < 2;
        holds_[target->buffer][key] = sums_before ? static_cast<int>(inputs_.plan().accumulation) : before + 1;
        break;
      }
      case TaskKind::kGather:
        if (task.plane == Plane::kWorking) holds_[target->buffer][key] = value(source != nullptr ? source : target, key);
        break;
      case TaskKind::kNorm:
        if (task.chunk >= 0) {
          EXPECT_EQ(value(source, {Plane::kGradient, task.chunk}), inputs_.plan().accumulation) << name;
          EXPECT_EQ(task.lane, home_of(inputs_, Plane::kGradient, task.chunk) != Tier::kDevice ? Lane::kHostCompute : Lane::kCompute)
              << name;
        }
        break;
      case TaskKind::kUpdate:
        update(task, value);
        break;
      case TaskKind::kCompute: {
        std::size_t next = 0;
        const auto params = inputs_.model().segments[static_cast<std::size_t>(task.segment)]->params();
        for (const Use& use : graph_.uses_of(task)) {
          if (use.role != Role::kParam) continue;
          const int run_of_param = inputs_.layout().place(params[next++]).run;
          for (const int c : chunks_of_run(inputs_, run_of_param)) {
            const bool is_updated = graph_.kind == GraphKind::kStep && inputs_.plan().update_mode == UpdateMode::kNextForward &&
                                    inputs_.layout().trains(inputs_.layout().chunks()[static_cast<std::size_t>(c)]);
            EXPECT_EQ(value(&use, {Plane::kWorking, c}), is_updated ? 1 : 0) << name << ", chunk " << c;
          }
        }
        break;
      }
      case TaskKind::kForeign:
        saved[key] = value(source, key);
        break;
      default:
        break;
    }
  }

  template <typename Value>
  void update(const Task& task, Value value) {
    ++updates[task.chunk];
    const Plane master = inputs_.layout().has_master() ? Plane::kMaster : Plane::kWorking;
    const std::map<Role, Plane> planes{
        {Role::kParam, master}, {Role::kMoment1, Plane::kMoment1}, {Role::kMoment2, Plane::kMoment2}, {Role::kTarget, Plane::kWorking}};
    const Tier expected = home_of(inputs_, Plane::kMoment1, task.chunk) == Tier::kDevice ? Tier::kDevice : Tier::kHost;
    EXPECT_EQ(task.lane, expected == Tier::kDevice ? Lane::kCompute : Lane::kHostCompute);
    for (const Use& use : graph_.uses_of(task)) {
      if (use.role == Role::kReport || use.role == Role::kValidCount) continue;
      EXPECT_EQ(graph_.buffers[use.buffer].tier, expected) << name_of(use.role) << " of chunk " << task.chunk;
      if (use.role == Role::kParamGrad) {
        const int wanted = gradient_of_earlier_graph_ ? 0 : static_cast<int>(inputs_.plan().accumulation);
        EXPECT_EQ(value(&use, {Plane::kGradient, task.chunk}), wanted) << "chunk " << task.chunk;
        continue;
      }
      const Key of{planes.at(use.role), task.chunk};
      if (use.access == Access::kReadWrite) {
        EXPECT_EQ(value(&use, of), 0) << name_of(use.role) << " of chunk " << task.chunk;
      }
      holds_[use.buffer][of] = 1;
    }
  }

  const GraphInputs& inputs_;
  const StepGraph& graph_;
  std::map<BufferId, std::map<Key, int>> holds_;
  std::map<Key, BufferId> homes_;
  bool gradient_of_earlier_graph_ = false;
};

TEST(Homes, EveryTaskFindsWhatItNeedsAndEverythingComesHome) {
  for (const int ranks : {1, 2, 3}) {
    for_each_home_case(ranks, [&](const GraphInputs& inputs, const std::string& what) {
      const bool next_forward = inputs.plan().update_mode == UpdateMode::kNextForward;
      for (const GraphKind kind : {GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate, GraphKind::kSave}) {
        SCOPED_TRACE(what + ", ranks " + std::to_string(ranks) + ", " + std::string(name_of(kind)));
        const StepGraph graph = inputs.build(kind);
        Contents contents(inputs, graph);
        contents.run();
        const bool updates = kind == GraphKind::kStep || (kind == GraphKind::kFlush && next_forward);
        const chunks::ChunkLayout& layout = inputs.layout();
        for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
          const chunks::Chunk& chunk = layout.chunks()[static_cast<std::size_t>(c)];
          const int expected = updates && layout.trains(chunk) ? 1 : 0;
          EXPECT_EQ(contents.updates[c], expected) << "chunk " << c;
          for (const Plane plane : {Plane::kWorking, Plane::kMaster, Plane::kMoment1, Plane::kMoment2}) {
            if (!layout.has(plane, chunk)) continue;
            EXPECT_EQ(contents.at_home(plane, c), expected) << chunks::name_of(plane) << " of chunk " << c;
            const bool is_saved = kind == GraphKind::kSave && (plane != Plane::kWorking || !layout.has(Plane::kMaster, chunk));
            EXPECT_EQ(contents.saved.count({plane, c}), is_saved ? 1U : 0U);
          }
          if (kind == GraphKind::kStep && layout.trains(chunk)) {
            EXPECT_EQ(contents.at_home(Plane::kGradient, c), inputs.plan().accumulation) << "chunk " << c;
          }
        }
      }
    });
    if (HasFailure()) return;
  }
}

/// Moves that change the state, and no others, know the condition of the update before them.
TEST(Homes, OnlyMovesAfterAnUpdateAreConditional) {
  std::size_t conditional = 0;
  for_each_home_case(2, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    for (const GraphKind kind : {GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate, GraphKind::kSave}) {
      const StepGraph graph = inputs.build(kind);
      const bool in_backward = inputs.plan().update_mode == UpdateMode::kInBackward;
      for (TaskId id = 0; id < graph.tasks.size(); ++id) {
        const Task& task = graph.tasks[id];
        if (task.kind != TaskKind::kMove) continue;
        const Use& target = *graph.use_of(task, Role::kTarget);
        const Buffer& buffer = graph.buffers[target.buffer];
        const bool is_state = buffer.persistent && buffer.tag != BufferTag::kGradient;
        EXPECT_EQ(graph.use_of(task, Role::kReport) != nullptr, is_state && !in_backward) << graph.task_name(id);
        EXPECT_EQ(graph.use_of(task, Role::kValidCount) != nullptr, is_state && in_backward) << graph.task_name(id);
        EXPECT_EQ(task.use_count, is_state ? 3U : 2U);
        EXPECT_EQ(target.access, is_state || task.accumulate ? Access::kReadWrite : Access::kWrite) << graph.task_name(id);
        EXPECT_TRUE(!is_state || kind == GraphKind::kStep || kind == GraphKind::kFlush);
        conditional += is_state ? 1 : 0;
      }
    }
  });
  EXPECT_GT(conditional, 1000U);
}

struct Moved {
  std::array<std::int64_t, kLaneCount> bytes{}, tasks{};
  std::int64_t of(Lane lane) const { return bytes[static_cast<std::size_t>(lane)]; }
};

/// Every move has host memory at one end, which holds exactly what is moved.
Moved moved_in(const StepGraph& graph) {
  Moved moved;
  for (const Task& task : graph.tasks) {
    if (task.kind != TaskKind::kMove) continue;
    const Buffer& source = graph.buffers[graph.use_of(task, Role::kSource)->buffer];
    const Buffer& target = graph.buffers[graph.use_of(task, Role::kTarget)->buffer];
    moved.bytes[static_cast<std::size_t>(task.lane)] += source.tier == Tier::kHost ? source.bytes : target.bytes;
    ++moved.tasks[static_cast<std::size_t>(task.lane)];
  }
  return moved;
}

/// Bytes a step moves, by the homes of the chunks: what each update and each gather needs from elsewhere, and what goes back.
Moved expected_moves(const GraphInputs& inputs, const std::vector<chunks::Residency>& stays) {
  const chunks::ChunkLayout& layout = inputs.layout();
  const spec::Plan& plan = inputs.plan();
  const bool wide = !layout.has_master();
  const int states = layout.grouping().moments + (wide ? 0 : 1);  // planes, f32
  Moved moved;
  const auto move = [&](Lane lane, std::int64_t bytes) {
    moved.bytes[static_cast<std::size_t>(lane)] += bytes;
    ++moved.tasks[static_cast<std::size_t>(lane)];
  };
  const auto part_of = [&](const chunks::Chunk& chunk) {
    return plan.zero_stage == 0 ? chunk.elements : divide_up(chunk.elements / 256, inputs.inputs().ranks) * 256;
  };
  for (std::size_t c = 0; c < layout.chunks().size(); ++c) {
    const chunks::Chunk& chunk = layout.chunks()[c];
    if (!layout.trains(chunk)) continue;
    const ChunkHomes homes = plan.home(c);
    const std::int64_t part = part_of(chunk);
    if (homes.gradient == Tier::kHost) {
      for (std::int64_t m = 0; m < plan.accumulation; ++m) move(Lane::kDownload, 4 * part);
    } else if (homes.gradient == Tier::kDisk) {  // the sum so far comes back for each micro-batch but the first, and for the update
      const std::int64_t bytes = round_up(4 * part, 4096);
      const std::int64_t written = plan.order == spec::MicroBatchOrder::kLayerByLayer ? 1 : plan.accumulation;
      for (std::int64_t m = 0; m < plan.accumulation; ++m) move(Lane::kDownload, bytes);
      for (std::int64_t m = 0; m < written; ++m) {
        move(Lane::kDiskWrite, bytes);
        move(Lane::kDiskRead, bytes);
      }
    } else if (homes.states != Tier::kDevice) {
      move(Lane::kDownload, 4 * part);
    }
    if (homes.states == Tier::kDisk) {
      for (int p = 0; p < states; ++p) {
        move(Lane::kDiskRead, round_up(4 * part, 4096));
        move(Lane::kDiskWrite, round_up(4 * part, 4096));
      }
    }
    if (homes.states != Tier::kDevice && homes.working == Tier::kDevice) {
      if (wide) move(Lane::kDownload, 4 * part);
      move(Lane::kUpload, (wide ? 4 : 2) * part);
    }
    if (homes.working == Tier::kDisk) {
      if (wide) move(Lane::kDiskRead, round_up(4 * part, 4096));
      move(Lane::kDiskWrite, round_up((wide ? 4 : 2) * part, 4096));
    }
  }
  std::set<int> gathered;
  for (const chunks::Residency& stay : stays) {
    const bool is_first = gathered.insert(stay.run).second;
    for (const int c : chunks_of_run(inputs, stay.run)) {
      const chunks::Chunk& chunk = layout.chunks()[static_cast<std::size_t>(c)];
      const Tier tier = home_of(inputs, Plane::kWorking, c);
      if (tier == Tier::kDevice) continue;
      const std::int64_t bytes = (wide ? 4 : 2) * part_of(chunk);
      move(Lane::kUpload, tier == Tier::kDisk ? round_up(bytes, 4096) : bytes);
      // The first gather after an update takes what that has just made.
      const bool is_just_made = is_first && layout.trains(chunk) && plan.update_mode == UpdateMode::kNextForward;
      if (tier == Tier::kDisk && !is_just_made) move(Lane::kDiskRead, round_up(bytes, 4096));
    }
  }
  return moved;
}

/// The gathers of a graph as stays of no particular time: one per run and gather of its first chunk.
std::vector<chunks::Residency> gathers_of(const GraphInputs& inputs, const StepGraph& graph) {
  std::vector<chunks::Residency> stays;
  if (inputs.plan().zero_stage < 3) return stays;
  for (const Task& task : graph.tasks) {
    if (task.kind != TaskKind::kGather || task.plane != Plane::kWorking) continue;
    const int run = inputs.layout().chunks()[static_cast<std::size_t>(task.chunk)].run;
    if (inputs.layout().runs()[static_cast<std::size_t>(run)].first_chunk == task.chunk) stays.push_back({.run = run});
  }
  return stays;
}

TEST(Homes, BytesMovedAreWhatTheHomesSay) {
  for (const int ranks : {1, 2, 3}) {
    for_each_home_case(ranks, [&](const GraphInputs& inputs, const std::string& what) {
      SCOPED_TRACE(what + ", ranks " + std::to_string(ranks));
      const StepGraph graph = inputs.build(GraphKind::kStep);
      const Moved expected = expected_moves(inputs, gathers_of(inputs, graph)), found = moved_in(graph);
      EXPECT_EQ(found.bytes, expected.bytes);
      EXPECT_EQ(found.tasks, expected.tasks);
      const DiskTraffic traffic = disk_traffic(graph, inputs.inputs());
      EXPECT_EQ(traffic.read_bytes, expected.of(Lane::kDiskRead));
      EXPECT_EQ(traffic.written_bytes, expected.of(Lane::kDiskWrite));
    });
  }
}

/// Of the whole model, in words: with all states on disk a step reads and writes 12 bytes an element in mixed precision (master and two
/// moments) and 8 in fp32, where working parameters are the master.
TEST(Homes, BytesAnElement) {
  const auto per_element = [](const GraphInputs& inputs, Lane lane) {
    return static_cast<double>(moved_in(inputs.build(GraphKind::kStep)).of(lane)) / static_cast<double>(inputs.layout().elements());
  };
  // One rank and a chunk size of whole blocks of the disk: no padding but the last block's of the last chunk.
  for (const std::int64_t accumulation : {1, 3}) {
    Choice choice{.ranks = 1, .stage = 2, .accumulation = accumulation, .precision = spec::Precision::kBf16, .chunk_elements = 1 << 20};
    const auto mixed = inputs_of(choice, {{Tier::kDevice, Tier::kHost, Tier::kDisk}});
    EXPECT_NEAR(per_element(*mixed, Lane::kDiskRead), 12, 0.1);
    EXPECT_NEAR(per_element(*mixed, Lane::kDiskWrite), 12, 0.1);
    EXPECT_NEAR(per_element(*mixed, Lane::kDownload), 4.0 * static_cast<double>(accumulation), 0.1) << "each micro-batch's gradient";
    EXPECT_NEAR(per_element(*mixed, Lane::kUpload), 2, 0.1) << "new working parameters";
    const auto with_gradients = inputs_of(choice, {{Tier::kDevice, Tier::kDisk, Tier::kDisk}});
    EXPECT_NEAR(per_element(*with_gradients, Lane::kDiskRead), 12 + 4.0 * static_cast<double>(accumulation), 0.2);
    EXPECT_NEAR(per_element(*with_gradients, Lane::kDiskWrite), 12 + 4.0 * static_cast<double>(accumulation), 0.2);
    choice.precision = spec::Precision::kFp32;
    const auto wide = inputs_of(choice, {{Tier::kDevice, Tier::kDevice, Tier::kDisk}});
    EXPECT_NEAR(per_element(*wide, Lane::kDiskRead), 8, 0.1);
    EXPECT_NEAR(per_element(*wide, Lane::kDiskWrite), 8, 0.1);
    EXPECT_NEAR(per_element(*wide, Lane::kDownload), 8, 0.1) << "the sum over micro-batches, and the parameters";
    EXPECT_NEAR(per_element(*wide, Lane::kUpload), 4, 0.1);
    choice.stage = 3;
    const auto on_host = inputs_of(choice, {{Tier::kHost, Tier::kHost, Tier::kHost}});
    EXPECT_EQ(per_element(*on_host, Lane::kDiskRead) + per_element(*on_host, Lane::kDiskWrite), 0);
    EXPECT_NEAR(per_element(*on_host, Lane::kDownload), 4.0 * static_cast<double>(accumulation), 0.1) << "gradients alone";
    const auto on_disk = inputs_of(choice, {kAllOnDisk});
    EXPECT_NEAR(per_element(*on_disk, Lane::kDiskWrite), 12, 0.1);
    const StepGraph graph = on_disk->build(GraphKind::kStep);
    double gathered = 0;
    for (const chunks::Residency& stay : gathers_of(*on_disk, graph))
      gathered += 4 * static_cast<double>(on_disk->layout().runs()[static_cast<std::size_t>(stay.run)].elements);
    gathered /= static_cast<double>(on_disk->layout().elements());
    EXPECT_NEAR(per_element(*on_disk, Lane::kDiskRead), 12 + gathered, 0.2);
    EXPECT_NEAR(per_element(*on_disk, Lane::kUpload), gathered, 0.1);
    // What the update before the first gather has made isn't read again.
    choice.mode = UpdateMode::kNextForward;
    for (const auto& [precision, states, working] : {std::tuple{spec::Precision::kFp32, 12, 4}, {spec::Precision::kBf16, 12, 2}}) {
      choice.precision = precision;
      const auto just_made = inputs_of(choice, {kAllOnDisk});
      const double all = per_element(*just_made, Lane::kUpload);  // as many as are gathered
      EXPECT_GT(all, working - 0.1);
      EXPECT_NEAR(per_element(*just_made, Lane::kDiskRead), states + all - working, 0.2);
      EXPECT_NEAR(per_element(*just_made, Lane::kDiskWrite), precision == spec::Precision::kFp32 ? 12 : 14, 0.2);
    }
  }
}

// --- the pipeline -----------------------------------------------------------------------------------------------------------

struct Stages {
  std::map<int, std::vector<TaskId>> reads, writes;  // of states, per chunk
  std::map<int, TaskId> update;
  std::vector<int> order;  // of updates
};

Stages stages_of(const StepGraph& graph) {
  Stages stages;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    const bool is_state = task.plane == Plane::kMaster || task.plane == Plane::kMoment1 || task.plane == Plane::kMoment2;
    if (task.kind == TaskKind::kUpdate) {
      stages.update[task.chunk] = id;
      stages.order.push_back(task.chunk);
    } else if (task.kind == TaskKind::kMove && is_state) {
      if (task.lane == Lane::kDiskRead) stages.reads[task.chunk].push_back(id);
      if (task.lane == Lane::kDiskWrite) stages.writes[task.chunk].push_back(id);
    }
  }
  return stages;
}

/// While chunk k is updated, the states of k + 1 are read and those of k - 1 written, in every mode and graph: nothing orders them. Reads
/// wait for what gives them their bytes alone: with p chunks ahead, the write of the chunk p + 2 before.
TEST(Pipeline, ReadsUpdatesAndWritesOverlap) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    for (const ChunkHomes& homes :
         {kAllOnDisk, ChunkHomes{Tier::kDevice, Tier::kDevice, Tier::kDisk}, ChunkHomes{Tier::kHost, Tier::kHost, Tier::kDisk}}) {
      for (const int ahead : {1, 2}) {
        for (const GraphKind kind : {GraphKind::kStep, GraphKind::kFlush}) {
          if (kind == GraphKind::kFlush && mode != UpdateMode::kNextForward) continue;
          SCOPED_TRACE(std::string(name_of(mode)) + ", " + testing::words_of(homes) + ", ahead " + std::to_string(ahead) + ", " +
                       std::string(name_of(kind)));
          const auto inputs = inputs_of({.mode = mode, .precision = spec::Precision::kBf16, .state_prefetch = ahead}, {homes});
          const StepGraph graph = inputs->build(kind);
          const Clocks clocks(graph);
          const Stages stages = stages_of(graph);
          ASSERT_GT(stages.order.size(), 8U);
          const auto together = [&](TaskId a, TaskId b) { return !clocks.happens_before(a, b) && !clocks.happens_before(b, a); };
          for (std::size_t k = 1; k + 1 < stages.order.size(); ++k) {
            const int before = stages.order[k - 1], chunk = stages.order[k], after = stages.order[k + 1];
            for (const TaskId read : stages.reads.at(after)) {
              EXPECT_TRUE(together(read, stages.update.at(chunk))) << graph.task_name(read) << " and update " << chunk;
              for (const TaskId write : stages.writes.at(before))
                EXPECT_TRUE(together(read, write)) << graph.task_name(read) << " and " << graph.task_name(write);
            }
            for (const TaskId write : stages.writes.at(before))
              EXPECT_TRUE(together(write, stages.update.at(chunk))) << graph.task_name(write) << " and update " << chunk;
          }
          for (std::size_t k = 0; k < stages.order.size(); ++k) {
            for (const TaskId read : stages.reads.at(stages.order[k])) {
              for (std::size_t j = 0; j < k; ++j) {
                for (const TaskId write : stages.writes.at(stages.order[j])) {
                  if (clocks.happens_before(write, read)) {
                    EXPECT_GE(k - j, static_cast<std::size_t>(ahead) + 2)
                        << graph.task_name(read) << " waits for " << graph.task_name(write);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

/// Staging is as large as the chunks under way at once.
TEST(Pipeline, StagesNoMoreChunksThanAreUnderWay) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    for (const int ahead : {0, 1, 2}) {
      SCOPED_TRACE(std::string(name_of(mode)) + ", ahead " + std::to_string(ahead));
      const auto inputs = inputs_of({.stage = 2, .mode = mode, .precision = spec::Precision::kBf16, .state_prefetch = ahead},
                                    {{Tier::kDevice, Tier::kHost, Tier::kDisk}});
      const StepGraph graph = inputs->build(GraphKind::kStep);
      std::int64_t largest = 0, tokens = 0, gradients = 0;  // with in_backward those that are homed here come and go
      for (const chunks::Chunk& chunk : inputs->layout().chunks()) largest = std::max(largest, chunks::largest_shard(chunk.elements, 2));
      for (const Buffer& buffer : graph.buffers) {
        if (buffer.tag == BufferTag::kTokens) tokens += round_up(buffer.bytes, 4096);
        const bool is_home = buffer.tag == BufferTag::kGradient && buffer.tier == Tier::kHost && !buffer.persistent;
        if (is_home && mode == UpdateMode::kInBackward) gradients += round_up(buffer.bytes, 4096);
      }
      const std::int64_t of_chunk = 3 * round_up(4 * largest, 4096) + round_up(2 * largest, 4096);
      const std::int64_t host = graph.live_bytes_peak[1] - tokens;
      EXPECT_LE(host, (ahead + 2) * of_chunk + gradients);
      EXPECT_GT(host, (ahead + 1) * of_chunk) << "and no fewer";
    }
  }
}

/// A gradient on its way to disk doesn't hold up the next one: that neither waits for its write nor takes its bytes. Two stand in host
/// memory at once; layer by layer those of one segment, for all of its micro-batches.
TEST(Pipeline, GradientsGoToDiskBehindTheBackward) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
    for (const auto order : {spec::MicroBatchOrder::kDepthFirst, spec::MicroBatchOrder::kLayerByLayer}) {
      for (const std::int64_t accumulation : {1, 3}) {
        SCOPED_TRACE(std::string(name_of(mode)) + ", " + std::string(name_of(order)) + ", " + std::to_string(accumulation));
        const auto inputs = inputs_of({.stage = 2, .accumulation = accumulation, .mode = mode, .order = order},
                                      {{Tier::kDevice, Tier::kDisk, Tier::kDisk}});
        const StepGraph graph = inputs->build(GraphKind::kStep);
        const Clocks clocks(graph);
        std::vector<TaskId> downloads, writes;
        std::map<BufferId, std::pair<TaskId, TaskId>> sums;  // first and last use of what is written
        for (TaskId id = 0; id < graph.tasks.size(); ++id) {
          const Task& task = graph.tasks[id];
          if (task.kind != TaskKind::kMove || task.plane != Plane::kGradient) continue;
          if (task.lane == Lane::kDownload) downloads.push_back(id);
          if (task.lane != Lane::kDiskWrite) continue;
          writes.push_back(id);
          const BufferId sum = graph.use_of(task, Role::kSource)->buffer;
          sums[sum] = {graph.buffers[sum].first, graph.buffers[sum].last};
        }
        const auto chunks = inputs->layout().chunks().size();
        const bool is_kept = order == spec::MicroBatchOrder::kLayerByLayer;
        ASSERT_EQ(downloads.size(), chunks * static_cast<std::size_t>(accumulation));
        ASSERT_EQ(writes.size(), chunks * static_cast<std::size_t>(is_kept ? 1 : accumulation));
        ASSERT_EQ(sums.size(), writes.size()) << "each has a buffer of its own";
        if (is_kept && accumulation > 1) continue;
        for (std::size_t i = 0; i + 1 < writes.size(); ++i) {
          EXPECT_LT(downloads[i], writes[i]);
          EXPECT_FALSE(clocks.happens_before(writes[i], downloads[i + 1])) << graph.task_name(downloads[i + 1]);
        }
        for (TaskId id = 0; id < graph.tasks.size(); ++id) {
          EXPECT_LE(
              std::count_if(sums.begin(), sums.end(), [&](const auto& sum) { return sum.second.first <= id && id <= sum.second.second; }),
              2);
        }
      }
    }
  }
}

/// The states that the first update needs are asked for before it is known what happens to them.
TEST(Pipeline, TheFirstReadsComeBeforeTheNorm) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kInBackward}) {
    for (const int ahead : {0, 2}) {
      const auto inputs = inputs_of({.mode = mode, .precision = spec::Precision::kBf16, .state_prefetch = ahead}, {kAllOnDisk});
      const StepGraph graph = inputs->build(GraphKind::kStep);
      const Stages stages = stages_of(graph);
      TaskId limit = kNone;
      for (TaskId id = 0; id < graph.tasks.size() && limit == kNone; ++id) {
        const Task& task = graph.tasks[id];
        const bool is_first = mode == UpdateMode::kAtEnd ? task.kind == TaskKind::kNorm : task.kind == TaskKind::kScatter;
        if (is_first) limit = id;
      }
      for (int k = 0; k <= ahead; ++k) {
        for (const TaskId read : stages.reads.at(stages.order[static_cast<std::size_t>(k)])) {
          EXPECT_LT(read, limit) << graph.task_name(read);
          EXPECT_EQ(graph.tasks[read].governed_by, 0) << "not skipped with the update alone";
        }
      }
    }
  }
}

// --- gathers ----------------------------------------------------------------------------------------------------------------

/// Parameters on disk are on their way to host memory while those needed sooner go to the device.
TEST(Homes, ParametersAreReadAheadOfTheirUpload) {
  for (const GraphKind kind : {GraphKind::kStep, GraphKind::kEvaluate, GraphKind::kGenerate}) {
    const auto inputs = inputs_of({.prefetch = 1}, {kAllOnDisk});
    const StepGraph graph = inputs->build(kind);
    const Clocks clocks(graph);
    std::size_t ahead = 0, uploads = 0;
    std::map<BufferId, TaskId> read;
    TaskId last_compute = kNone;
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      const Task& task = graph.tasks[id];
      if (task.kind == TaskKind::kCompute) last_compute = id;
      if (task.kind != TaskKind::kMove || task.plane != Plane::kWorking) continue;
      if (task.lane == Lane::kDiskRead) read[graph.use_of(task, Role::kTarget)->buffer] = id;
      if (task.lane != Lane::kUpload) continue;
      const TaskId source = read.at(graph.use_of(task, Role::kSource)->buffer);
      EXPECT_TRUE(clocks.happens_before(source, id));
      ++uploads;
      if (last_compute != kNone && source < last_compute) ++ahead;
    }
    EXPECT_GT(uploads, 10U);
    EXPECT_GT(ahead, uploads * 2 / 3) << "a compute task stands between them";
  }
}

/// With next_forward the first gather of updated parameters takes them from where they were updated: it waits for no write of theirs, and
/// they stand there until both are through. Later gathers read what was written.
TEST(Homes, UpdatedParametersAreUploadedFromWhereTheyWereUpdated) {
  for (const auto precision : {spec::Precision::kFp32, spec::Precision::kBf16}) {
    for (const int prefetch : {0, 1, 2}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", prefetch " + std::to_string(prefetch));
      const auto inputs = inputs_of({.mode = UpdateMode::kNextForward, .precision = precision, .prefetch = prefetch}, {kAllOnDisk});
      const StepGraph graph = inputs->build(GraphKind::kStep);
      const Clocks clocks(graph);
      std::map<int, BufferId> made;  // by updates, per chunk
      std::map<int, TaskId> written;
      std::map<int, TaskId> uploaded;  // the first time
      std::size_t read_again = 0;
      for (TaskId id = 0; id < graph.tasks.size(); ++id) {
        const Task& task = graph.tasks[id];
        const Role role = inputs->layout().has_master() ? Role::kTarget : Role::kParam;
        if (task.kind == TaskKind::kUpdate) made[task.chunk] = graph.use_of(task, role)->buffer;
        if (task.kind != TaskKind::kMove || task.plane != Plane::kWorking) continue;
        const BufferId source = graph.use_of(task, Role::kSource)->buffer;
        if (task.lane == Lane::kDiskWrite) written[task.chunk] = id;
        if (task.lane == Lane::kDiskRead && written.contains(task.chunk)) {
          EXPECT_TRUE(clocks.happens_before(written.at(task.chunk), id)) << graph.task_name(id);
          ++read_again;
        }
        if (task.lane != Lane::kUpload) continue;
        if (!uploaded.emplace(task.chunk, id).second) {
          EXPECT_NE(source, made.at(task.chunk)) << graph.task_name(id);
          continue;
        }
        EXPECT_EQ(source, made.at(task.chunk)) << graph.task_name(id);
        EXPECT_FALSE(clocks.happens_before(written.at(task.chunk), id)) << graph.task_name(id);
      }
      EXPECT_EQ(uploaded.size(), inputs->layout().chunks().size());
      for (const auto& [chunk, upload] : uploaded)
        EXPECT_EQ(graph.buffers[made.at(chunk)].last, std::max(upload, written.at(chunk))) << "chunk " << chunk;
      EXPECT_GT(read_again, 5U) << "the backward gathers again";
    }
  }
}

/// The first words of a step's end, written out: what a chunk with states in host memory needs.
TEST(Homes, TasksAroundAnUpdate) {
  const auto tail = [](const Choice& choice, const ChunkHomes& homes, int chunk) {
    const StepGraph graph = inputs_of(choice, {homes})->build(GraphKind::kStep);
    std::vector<std::string> names;
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      const Task& task = graph.tasks[id];
      if (task.chunk == chunk && (task.kind != TaskKind::kGather || choice.stage < 3)) names.push_back(graph.task_name(id));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(tail({.stage = 1}, {Tier::kDevice, Tier::kDevice, Tier::kHost}, 0),
            (Names{"scatter gradient of chunk 0, micro-batch 0", "download working of chunk 0", "download gradient of chunk 0",
                   "norm of chunk 0", "update chunk 0", "upload working of chunk 0", "gather working of chunk 0"}));
  EXPECT_EQ(tail({.stage = 2, .accumulation = 2, .precision = spec::Precision::kBf16}, {Tier::kDevice, Tier::kHost, Tier::kDisk}, 0),
            (Names{"scatter gradient of chunk 0, micro-batch 0", "download gradient of chunk 0, micro-batch 0",
                   "scatter gradient of chunk 0, micro-batch 1", "download gradient of chunk 0, micro-batch 1",
                   "disk_read master of chunk 0", "disk_read exp_avg of chunk 0", "disk_read exp_avg_sq of chunk 0", "norm of chunk 0",
                   "update chunk 0", "disk_write master of chunk 0", "disk_write exp_avg of chunk 0", "disk_write exp_avg_sq of chunk 0",
                   "upload working of chunk 0", "gather working of chunk 0"}));
  Names on_disk{"scatter gradient of chunk 0, micro-batch 0",
                "download gradient of chunk 0, micro-batch 0",
                "disk_write gradient of chunk 0, micro-batch 0",
                "disk_read gradient of chunk 0, micro-batch 1",
                "scatter gradient of chunk 0, micro-batch 1",
                "download gradient of chunk 0, micro-batch 1",
                "norm of chunk 0",
                "disk_write gradient of chunk 0, micro-batch 1",
                "disk_read master of chunk 0",
                "disk_read gradient of chunk 0",
                "disk_read exp_avg of chunk 0",
                "disk_read exp_avg_sq of chunk 0",
                "update chunk 0",
                "disk_write master of chunk 0",
                "disk_write exp_avg of chunk 0",
                "disk_write exp_avg_sq of chunk 0",
                "upload working of chunk 0",
                "gather working of chunk 0"};
  Choice choice{.stage = 2, .accumulation = 2, .precision = spec::Precision::kBf16};
  EXPECT_EQ(tail(choice, {Tier::kDevice, Tier::kDisk, Tier::kDisk}, 0), on_disk);
  choice.order = spec::MicroBatchOrder::kLayerByLayer;
  on_disk.erase(on_disk.begin() + 2, on_disk.begin() + 4);
  EXPECT_EQ(tail(choice, {Tier::kDevice, Tier::kDisk, Tier::kDisk}, 0), on_disk);
  EXPECT_EQ(tail({.stage = 0}, {Tier::kDevice, Tier::kDevice, Tier::kDisk}, 0),
            (Names{"scatter gradient of chunk 0, micro-batch 0", "gather gradient of chunk 0, micro-batch 0", "download working of chunk 0",
                   "download gradient of chunk 0", "disk_read exp_avg of chunk 0", "disk_read exp_avg_sq of chunk 0", "norm of chunk 0",
                   "update chunk 0", "upload working of chunk 0", "disk_write exp_avg of chunk 0", "disk_write exp_avg_sq of chunk 0"}));
}

}  // namespace
}  // namespace sluice::schedule
