// Where saved tensors stand between a segment's forward and its backward, and the order in which micro-batches pass the segments.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "schedule/check.hpp"
#include "schedule/staging.hpp"
#include "spec/preset.hpp"
#include "support/activation_cases.hpp"
#include "support/expect_error.hpp"

namespace sluice::schedule {
namespace {

using model::Phase;
using spec::Activation;
using spec::MicroBatchOrder;
using spec::Tier;
using spec::UpdateMode;
using testing::expect_error;
using testing::for_each_activation_case;
using testing::GraphInputs;

struct Choice {
  int ranks = 2;
  int stage = 3;
  MicroBatchOrder order = MicroBatchOrder::kLayerByLayer;
  std::int64_t accumulation = 3;
  int prefetch = 1;
  UpdateMode mode = UpdateMode::kAtEnd;
  Activation activation = Activation::kKeep;
  bool tied = false;
  std::int64_t chunk_elements = 2560;  // of one parameter, or a few small ones
  int between = 0;
  std::vector<std::string> trainable = {};
};

std::unique_ptr<GraphInputs> inputs_of(const Choice& choice) {
  spec::TrainingSpec training;
  training.batch.sequence_length = 16;
  training.optimizer.gradient_clipping = choice.mode == UpdateMode::kInBackward ? 0 : 1;
  training.trainable = choice.trainable;
  spec::Plan plan;
  plan.zero_stage = choice.stage;
  plan.mesh.data = choice.ranks;
  plan.order = choice.order;
  plan.update_mode = choice.mode;
  plan.micro_batch = 3;
  plan.accumulation = choice.accumulation;
  plan.prefetch_segments = choice.prefetch;
  plan.chunk_elements = choice.chunk_elements;
  plan.activations.assign(8, choice.activation);
  spec::ModelSpec model = testing::tiny_model_without_dropout();
  model.tied_head = choice.tied;
  return std::make_unique<GraphInputs>(model, training, plan, choice.between);
}

StepGraph step_of(const Choice& choice) {
  return inputs_of(choice)->build(GraphKind::kStep);
}

std::vector<TaskId> tasks_of(const StepGraph& graph, TaskKind kind) {
  std::vector<TaskId> list;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    if (graph.tasks[id].kind == kind) list.push_back(id);
  }
  return list;
}

/// Segment, phase, micro-batch of every compute task, in order.
std::vector<std::tuple<int, Phase, int>> computes_of(const StepGraph& graph) {
  std::vector<std::tuple<int, Phase, int>> list;
  for (const TaskId id : tasks_of(graph, TaskKind::kCompute))
    list.emplace_back(graph.tasks[id].segment, graph.tasks[id].phase, graph.tasks[id].micro);
  return list;
}

// --- order ----------------------------------------------------------------------------------------------------------------

TEST(LayerByLayer, PassesEachSegmentForAllMicroBatchesBeforeTheNext) {
  const StepGraph graph = step_of({});
  std::vector<std::tuple<int, Phase, int>> expected;
  for (int s = 0; s < 7; ++s) {
    for (int m = 0; m < 3; ++m) expected.emplace_back(s, Phase::kForward, m);
  }
  for (int m = 0; m < 3; ++m) expected.emplace_back(7, Phase::kForwardBackward, m);
  for (int s = 6; s >= 0; --s) {
    for (int m = 0; m < 3; ++m) expected.emplace_back(s, Phase::kBackward, m);
  }
  EXPECT_EQ(computes_of(graph), expected);

  const auto recomputed = computes_of(step_of({.activation = Activation::kRecompute}));
  EXPECT_EQ(recomputed.size(), expected.size() + 6 * 3) << "the embedding has nothing to compute again";
  for (std::size_t i = 0; i < recomputed.size(); ++i) {
    const auto [segment, phase, micro] = recomputed[i];
    if (phase == Phase::kRecompute) {
      EXPECT_EQ(recomputed[i + 1], std::tuple(segment, Phase::kBackward, micro)) << "what it makes serves one backward";
    }
  }
}

TEST(LayerByLayer, DoesTheWorkOfDepthFirst) {
  for (const Activation activation : {Activation::kKeep, Activation::kRecompute, Activation::kDisk}) {
    for (const int stage : {2, 3}) {
      Choice choice{.stage = stage, .activation = activation, .tied = stage == 2};
      auto here = computes_of(step_of(choice));
      choice.order = MicroBatchOrder::kDepthFirst;
      auto there = computes_of(step_of(choice));
      EXPECT_NE(here, there);
      std::sort(here.begin(), here.end());
      std::sort(there.begin(), there.end());
      EXPECT_EQ(here, there);
      choice.accumulation = 1;
      const std::uint64_t hash = step_of(choice).hash();
      choice.order = MicroBatchOrder::kLayerByLayer;
      EXPECT_EQ(step_of(choice).hash(), hash) << "one micro-batch has one order";
    }
  }
}

/// Bits: a chunk's micro-batches are added to its shard in index order, each once and complete.
TEST(LayerByLayer, ScattersMicroBatchesInIndexOrder) {
  for (const bool tied : {false, true}) {
    for (const std::int64_t chunk : {2560, 20480}) {
      for (const int stage : {2, 3}) {
        const StepGraph graph = step_of({.stage = stage, .tied = tied, .chunk_elements = chunk});
        std::map<int, std::vector<int>> micros;
        std::map<BufferId, TaskId> scattered;
        for (const TaskId id : tasks_of(graph, TaskKind::kScatter)) {
          const Task& task = graph.tasks[id];
          micros[task.chunk].push_back(task.micro);
          EXPECT_EQ(task.accumulate, task.micro > 0);
          EXPECT_EQ(graph.buffers[graph.use_of(task, Role::kSource)->buffer].micro, task.micro);
          scattered[graph.use_of(task, Role::kSource)->buffer] = id;
        }
        for (const auto& [of_chunk, list] : micros) EXPECT_EQ(list, (std::vector<int>{0, 1, 2})) << "chunk " << of_chunk;
        for (TaskId id = 0; id < graph.tasks.size(); ++id) {
          for (const Use& use : graph.uses_of(graph.tasks[id])) {
            if (use.role == Role::kParamGrad && graph.tasks[id].kind == TaskKind::kCompute) {
              EXPECT_EQ(graph.buffers[use.buffer].micro, graph.tasks[id].micro);
              EXPECT_LT(id, scattered.at(use.buffer)) << "nothing is added after the reduction";
            }
          }
        }
      }
    }
  }
}

/// How often each chunk is gathered in a step.
std::map<int, int> gathers_of(const StepGraph& graph) {
  std::map<int, int> counts;
  for (const TaskId id : tasks_of(graph, TaskKind::kGather)) ++counts[graph.tasks[id].chunk];
  return counts;
}

TEST(LayerByLayer, GathersOncePerPassInTheSmallestCache) {
  for (const int prefetch : {0, 1, 2}) {
    for (const Activation activation : {Activation::kKeep, Activation::kRecompute}) {
      SCOPED_TRACE("prefetch " + std::to_string(prefetch) + ", " + std::string(name_of(activation)));
      const Choice here{.accumulation = 5, .prefetch = prefetch, .activation = activation};
      Choice there = here;
      there.order = MicroBatchOrder::kDepthFirst;
      const auto inputs = inputs_of(here), depth_first = inputs_of(there);
      EXPECT_EQ(inputs->plan().rcache_elements, depth_first->plan().rcache_elements) << "the same segments are needed at once";
      int twice = 0;
      for (const auto& [chunk, count] : gathers_of(inputs->build(GraphKind::kStep))) {
        EXPECT_LE(count, 2) << "chunk " << chunk << ": forward and backward";
        twice += count == 2 ? 1 : 0;
      }
      EXPECT_GT(twice, 0);
      int most = 0;
      for (const auto& [chunk, count] : gathers_of(depth_first->build(GraphKind::kStep))) most = std::max(most, count);
      EXPECT_GE(most, 9) << "depth-first fetches them again for every micro-batch";
    }
  }
}

/// A gather is issued so many segments ahead, not so many micro-batches.
TEST(LayerByLayer, PrefetchesByTheSegment) {
  for (const int prefetch : {1, 2}) {
    const auto inputs = inputs_of({.stage = 3, .accumulation = 4, .prefetch = prefetch});
    const StepGraph graph = inputs->build(GraphKind::kStep);
    // Compute tasks that stand between a gather and the first that reads what it brings, all of the forward.
    std::map<BufferId, int> computes_at;
    int computes = 0, seen = 0;
    for (const Task& task : graph.tasks) {
      if (task.kind == TaskKind::kGather) computes_at.try_emplace(graph.use_of(task, Role::kTarget)->buffer, computes);
      if (task.kind != TaskKind::kCompute) continue;
      if (task.phase == Phase::kForward && task.micro == 0 && task.segment > prefetch) {
        for (const Use& use : graph.uses_of(task)) {
          if (use.role != Role::kParam || computes_at.count(use.buffer) == 0) continue;
          EXPECT_EQ(computes - computes_at.at(use.buffer), 4 * prefetch) << graph.buffer_name(use.buffer);
          ++seen;
        }
      }
      for (const Use& use : graph.uses_of(task)) computes_at.erase(use.buffer);
      ++computes;
    }
    EXPECT_GT(seen, 6);
  }
}

TEST(LayerByLayer, UpdatesAChunkOnceItsLastMicroBatchIsReduced) {
  for (const bool tied : {false, true}) {
    for (const int stage : {2, 3}) {
      const StepGraph graph = step_of({.stage = stage, .mode = UpdateMode::kInBackward, .tied = tied});
      std::map<int, TaskId> reduced;
      for (const TaskId id : tasks_of(graph, TaskKind::kScatter)) reduced[graph.tasks[id].chunk] = id;
      std::set<int> updated;
      TaskId last_compute = tasks_of(graph, TaskKind::kCompute).back();
      int early = 0;
      for (const TaskId id : tasks_of(graph, TaskKind::kUpdate)) {
        const int chunk = graph.tasks[id].chunk;
        EXPECT_TRUE(updated.insert(chunk).second);
        EXPECT_LT(reduced.at(chunk), id);
        early += id < last_compute ? 1 : 0;
      }
      EXPECT_EQ(updated.size(), reduced.size());
      EXPECT_GT(early, 0) << "within the backward";
    }
  }
}

/// As many cancel points as depth-first has, never further apart than a micro-batch's tasks.
TEST(LayerByLayer, AgreesAfterAMicroBatchsWorth) {
  for (const std::int64_t accumulation : {1, 2, 5, 40}) {
    for (const int between : {0, 4}) {
      SCOPED_TRACE(std::to_string(accumulation) + ", " + std::to_string(between));
      Choice choice{.accumulation = accumulation, .between = between};
      const StepGraph here = step_of(choice);
      choice.order = MicroBatchOrder::kDepthFirst;
      const StepGraph there = step_of(choice);
      const auto of_micro_batches = [](const StepGraph& graph) {
        const auto agrees = tasks_of(graph, TaskKind::kAgree);
        return std::count_if(agrees.begin(), agrees.end(), [&](TaskId id) { return graph.tasks[id].agree_role == AgreeRole::kMicroBatch; });
      };
      if (between == 0) {
        EXPECT_EQ(of_micro_batches(here), accumulation - 1);
        EXPECT_EQ(of_micro_batches(there), accumulation - 1);
      }
      int since = 0;
      for (const Task& task : here.tasks) {
        if (task.kind == TaskKind::kAgree) {
          EXPECT_LE(since, between == 0 ? 15 : 4) << "7 forwards, the head, 7 backwards";
          since = 0;
        }
        since += task.kind == TaskKind::kCompute ? 1 : 0;
      }
    }
  }
}

TEST(LayerByLayer, IsRefusedWhereBitsWouldChange) {
  for (const int stage : {0, 1})
    expect_error<LogicError>([&] { inputs_of({.stage = stage}); }, {"layer_by_layer", "zero_stage " + std::to_string(stage)});
}

// --- saved tensors --------------------------------------------------------------------------------------------------------

/// The life of one segment's saved tensors in one micro-batch.
struct Journey {
  std::vector<TaskId> moves;
  TaskId forward = kNone, backward = kNone;
};

std::map<std::pair<int, int>, Journey> journeys_of(const StepGraph& graph) {
  std::map<std::pair<int, int>, Journey> journeys;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    if (task.kind == TaskKind::kMove && task.chunk < 0) journeys[{task.segment, task.micro}].moves.push_back(id);
    if (task.kind != TaskKind::kCompute) continue;
    if (task.phase == Phase::kForward) journeys[{task.segment, task.micro}].forward = id;
    if (task.phase == Phase::kBackward) journeys[{task.segment, task.micro}].backward = id;
  }
  return journeys;
}

TEST(SavedTensors, LeaveTheDeviceAfterForwardAndComeBackBeforeBackward) {
  const std::map<Activation, std::vector<Lane>> lanes{
      {Activation::kKeep, {}},
      {Activation::kRecompute, {}},
      {Activation::kHost, {Lane::kDownload, Lane::kUpload}},
      {Activation::kDisk, {Lane::kDownload, Lane::kDiskWrite, Lane::kDiskRead, Lane::kUpload}}};
  int moved = 0;
  for_each_activation_case(2, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    const StepGraph graph = inputs.build(GraphKind::kStep);
    const int first_trained = first_trained_segment(inputs.model(), inputs.grouping());
    for (const auto& [key, journey] : journeys_of(graph)) {
      const auto [s, m] = key;
      SCOPED_TRACE("segment " + std::to_string(s) + ", micro-batch " + std::to_string(m));
      const model::Segment& segment = *inputs.model().segments[static_cast<std::size_t>(s)];
      const std::int64_t bytes = stored_saved_bytes(segment, {2, 16}, inputs.layout().storage());
      const bool has_saved = bytes > 0 && s >= first_trained && journey.backward != kNone;
      std::vector<Lane> expected = lanes.at(inputs.plan().activations[static_cast<std::size_t>(s)]);
      if (!has_saved) expected.clear();
      ASSERT_EQ(journey.moves.size(), expected.size());
      if (expected.empty()) continue;
      ++moved;
      BufferId at = graph.use_of(graph.tasks[journey.forward], Role::kSaved)->buffer;
      EXPECT_EQ(graph.buffers[at].last, journey.moves.front()) << "the device's buffer dies with its download";
      EXPECT_EQ(graph.buffers[at].bytes, bytes);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Task& move = graph.tasks[journey.moves[i]];
        EXPECT_EQ(move.lane, expected[i]);
        const Use &source = *graph.use_of(move, Role::kSource), &target = *graph.use_of(move, Role::kTarget);
        EXPECT_EQ(source.buffer, at);
        EXPECT_EQ(source.access, Access::kRead);
        EXPECT_EQ(target.access, Access::kWrite);
        at = target.buffer;
        const Buffer& buffer = graph.buffers[at];
        EXPECT_FALSE(buffer.persistent);
        EXPECT_EQ(buffer.tag, BufferTag::kSaved);
        EXPECT_EQ(buffer.first, journey.moves[i]);
        const bool disk = expected.size() == 4;
        EXPECT_EQ(buffer.tier, i + 1 == expected.size() ? Tier::kDevice : disk && i == 1 ? Tier::kDisk : Tier::kHost);
        EXPECT_GE(buffer.bytes, bytes);
        if (disk && buffer.tier != Tier::kDevice) {
          EXPECT_EQ(buffer.bytes % 4096, 0);
          EXPECT_LT(buffer.bytes, bytes + 4096);
        }
      }
      EXPECT_LT(journey.forward, journey.moves.front());
      EXPECT_LT(journey.moves.back(), journey.backward);
      EXPECT_EQ(graph.use_of(graph.tasks[journey.backward], Role::kSaved)->buffer, at);
    }
  });
  EXPECT_GT(moved, 300);
}

TEST(SavedTensors, AreMovedInStepsAlone) {
  for_each_activation_case(2, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    spec::Plan plan = inputs.plan();
    plan.activations.assign(plan.activations.size(), Activation::kKeep);
    BuildInputs keep = inputs.inputs();
    keep.plan = plan;
    // Alignment where a disk is used aside, what doesn't train is the same.
    for (const GraphKind kind : {GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate, GraphKind::kSave}) {
      const StepGraph here = inputs.build(kind), there = build(kind, keep);
      EXPECT_EQ(here.tasks.size(), there.tasks.size()) << name_of(kind);
      EXPECT_TRUE(tasks_of(here, TaskKind::kMove).empty()) << name_of(kind);
      EXPECT_EQ(here.arena_bytes[0], there.arena_bytes[0]) << name_of(kind);
    }
  });
}

/// Uploads so many compute tasks ahead of the backward as gathers are ahead, reads from disk twice as many.
TEST(SavedTensors, ComeBackSomeSegmentsAhead) {
  for (const MicroBatchOrder order : {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer}) {
    for (const int prefetch : {0, 1, 3}) {
      SCOPED_TRACE(std::string(name_of(order)) + ", prefetch " + std::to_string(prefetch));
      const int ahead = std::max(1, prefetch);
      const StepGraph graph = step_of({.order = order, .accumulation = 2, .prefetch = prefetch, .activation = Activation::kDisk});
      std::vector<int> before;  // compute tasks, by task
      int computes = 0;
      for (const Task& task : graph.tasks) {
        before.push_back(computes);
        computes += task.kind == TaskKind::kCompute ? 1 : 0;
      }
      std::map<TaskId, Journey> by_backward;
      for (const auto& [key, journey] : journeys_of(graph)) {
        if (!journey.moves.empty()) by_backward[journey.backward] = journey;
      }
      EXPECT_EQ(by_backward.size(), 12U);
      // Never before their forward, and in the order in which they are needed.
      int upload = 0, read = 0;
      for (const auto& [backward, journey] : by_backward) {
        upload = std::max({upload, before[backward] - ahead, before[journey.forward] + 1});
        read = std::max({read, before[backward] - 2 * ahead, before[journey.forward] + 1});
        EXPECT_EQ(before[journey.moves[3]], upload);
        EXPECT_EQ(before[journey.moves[2]], read);
      }
    }
  }
}

TEST(SavedTensors, FreeTheDeviceThenTheHost) {
  for (const MicroBatchOrder order : {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer}) {
    SCOPED_TRACE(name_of(order));
    const auto arena = [&](Activation activation) {
      return step_of({.order = order, .accumulation = 4, .activation = activation}).arena_bytes;
    };
    const auto keep = arena(Activation::kKeep), host = arena(Activation::kHost), disk = arena(Activation::kDisk);
    const auto inputs = inputs_of({});
    std::int64_t saved = 0;  // of a micro-batch, those that are far from their backward
    for (std::size_t s = 0; s + 4 < inputs->model().segments.size(); ++s)
      saved += stored_saved_bytes(*inputs->model().segments[s], {3, 16}, DType::kF32);
    if (order == MicroBatchOrder::kLayerByLayer) saved *= 4;
    EXPECT_LT(host[0], keep[0] - saved / 2);
    EXPECT_LE(disk[0], host[0]);
    EXPECT_GT(host[1], keep[1] + saved);
    EXPECT_LT(disk[1], host[1] - saved / 2);
    EXPECT_EQ(keep[2], 0);
    EXPECT_EQ(host[2], 0);
    EXPECT_GT(disk[2], saved);
  }
}

/// In real models, where sizes are alike, little is left unused; no compute task waits for the download it has just started, and two
/// host buffers let the disk and the downloads take turns.
TEST(SavedTensors, OfRealModelsKeepNobodyWaiting) {
  for (const MicroBatchOrder order : {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer}) {
    for (const Activation activation : {Activation::kHost, Activation::kDisk}) {
      for (const int stage : {2, 3}) {
        SCOPED_TRACE(std::string(name_of(order)) + ", " + std::string(name_of(activation)) + ", zero_stage " + std::to_string(stage));
        const spec::ModelSpec model = spec::load_preset("gpt2-124m", {SLUICE_SOURCE_DIR "/configs/models"});
        spec::TrainingSpec training;
        training.batch.sequence_length = 512;
        spec::Plan plan;
        plan.zero_stage = stage;
        plan.mesh.data = 2;
        plan.order = order;
        plan.micro_batch = 4;
        plan.accumulation = 3;
        plan.chunk_elements = 4 << 20;
        plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2), activation);
        const GraphInputs inputs(model, training, plan);
        const StepGraph graph = inputs.build(GraphKind::kStep);
        EXPECT_NO_THROW(check_order(graph));
        EXPECT_NO_THROW(check_races(graph));
        EXPECT_LT(static_cast<double>(graph.arena_bytes[0] - graph.persistent_bytes[0]),
                  1.12 * static_cast<double>(graph.live_bytes_peak[0]));
        std::vector<int> before;                         // compute tasks, by task
        std::map<std::pair<int, int>, int> download_of;  // its number, by segment and micro-batch
        int computes = 0, downloads = 0, reused = 0;
        for (TaskId id = 0; id < graph.tasks.size(); ++id) {
          const Task& task = graph.tasks[id];
          before.push_back(computes);
          computes += task.kind == TaskKind::kCompute ? 1 : 0;
          for (const TaskId on : graph.waits_of(task)) {
            const Lane lane = graph.tasks[on].lane;
            if (task.kind == TaskKind::kCompute && lane == Lane::kDownload) {
              EXPECT_GE(before[id] - before[on], 1) << graph.task_name(id) << " waits for " << graph.task_name(on);
            }
            if (task.lane == Lane::kDownload && lane == Lane::kDiskWrite) {
              EXPECT_LE(download_of.at({graph.tasks[on].segment, graph.tasks[on].micro}), downloads - 2)
                  << graph.task_name(id) << " waits for " << graph.task_name(on);
              ++reused;
            }
          }
          if (task.lane == Lane::kDownload) download_of[{task.segment, task.micro}] = downloads++;
        }
        EXPECT_EQ(downloads, 24 * 3);
        if (activation == Activation::kDisk) {
          EXPECT_GT(reused, 10);
        }
      }
    }
  }
}

/// Nothing is moved that nobody reads again.
TEST(SavedTensors, OfFrozenSegmentsBeforeTheFirstTrainedStay) {
  const StepGraph graph = step_of({.activation = Activation::kHost, .trainable = {"h\\.2\\."}});
  std::set<int> segments;
  for (const TaskId id : tasks_of(graph, TaskKind::kMove)) segments.insert(graph.tasks[id].segment);
  EXPECT_EQ(segments, (std::set<int>{5, 6}));
}

}  // namespace
}  // namespace sluice::schedule
