#include "schedule/place.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "schedule/check.hpp"
#include "schedule/random_graph.hpp"
#include "schedule/reachability.hpp"
#include "spec/preset.hpp"
#include "support/graph_cases.hpp"

namespace sluice::schedule {
namespace {

using testing::for_each_graph_case;
using testing::GraphInputs;

/// By brute force: alignment, no two buffers that are alive together share a byte, bytes alive at once, and that two tasks which
/// touch the same byte, one of them writing, are ordered.
void expect_placed(const StepGraph& graph, bool prove_order) {
  std::array<std::int64_t, spec::kTierCount> end{};
  for (BufferId a = 0; a < graph.buffers.size(); ++a) {
    const Buffer& x = graph.buffers[a];
    if (!x.persistent && x.first == kNone) continue;
    ASSERT_GE(x.offset, 0) << graph.buffer_name(a);
    ASSERT_EQ(x.offset % graph.alignment[static_cast<std::size_t>(x.tier)], 0) << graph.buffer_name(a);
    auto& tier_end = end[static_cast<std::size_t>(x.tier)];
    tier_end = std::max(tier_end, x.offset + x.bytes);
    for (BufferId b = 0; b < a; ++b) {
      const Buffer& y = graph.buffers[b];
      if (!y.persistent && y.first == kNone) continue;
      const bool together = x.persistent || y.persistent || (x.first <= y.last && y.first <= x.last);
      ASSERT_FALSE(together && x.bytes > 0 && y.bytes > 0 && overlap(x, y)) << graph.buffer_name(a) << " and " << graph.buffer_name(b);
    }
  }
  for (std::size_t tier = 0; tier < spec::kTierCount; ++tier) {
    std::int64_t peak = 0;
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      std::int64_t live = 0;
      for (const Buffer& buffer : graph.buffers) {
        if (static_cast<std::size_t>(buffer.tier) == tier && !buffer.persistent && buffer.first <= id && id <= buffer.last &&
            buffer.first != kNone)
          live += round_up(buffer.bytes, graph.alignment[tier]);
      }
      peak = std::max(peak, live);
    }
    EXPECT_EQ(graph.live_bytes_peak[tier], peak);
    EXPECT_GE(graph.arena_bytes[tier], graph.persistent_bytes[tier] + peak);
    EXPECT_GE(graph.arena_bytes[tier], end[tier]);
  }
  if (!prove_order) return;
  const Reachability reach(graph);
  for (TaskId b = 0; b < graph.tasks.size(); ++b) {
    for (const Use& y : graph.uses_of(graph.tasks[b])) {
      for (TaskId a = 0; a < b; ++a) {
        for (const Use& x : graph.uses_of(graph.tasks[a])) {
          if (x.access == Access::kRead && y.access == Access::kRead) continue;
          const Buffer &bx = graph.buffers[x.buffer], &by = graph.buffers[y.buffer];
          if (bx.bytes == 0 || by.bytes == 0 || !overlap(bx, by) || is_lanes_order(graph, a, x, b, y)) continue;
          ASSERT_TRUE(reach.happens_before(a, b)) << a << " and " << b << " touch the same bytes";
        }
      }
    }
  }
}

TEST(Place, RandomGraphs) {
  double waste = 0;
  constexpr int kGraphs = 200;
  for (unsigned seed = 100; seed < 100 + kGraphs; ++seed) {
    SCOPED_TRACE(seed);
    StepGraph graph = random_graph(seed, 70);
    place(graph);
    expect_placed(graph, true);
    EXPECT_NO_THROW(check_order(graph));
    EXPECT_NO_THROW(check_races(graph));
    waste += static_cast<double>(graph.arena_bytes[0] - graph.persistent_bytes[0]) /
                 static_cast<double>(std::max<std::int64_t>(64, graph.live_bytes_peak[0])) -
             1;
    if (HasFailure()) return;
  }
  EXPECT_LT(waste / kGraphs, 0.15) << "bytes that placement leaves unused, on the average of odd sizes and lifetimes";
}

TEST(Place, ReusesBytesOfTheDead) {
  GraphBuilder builder(GraphKind::kStep);
  for (int t = 0; t < 10; ++t) {
    const BufferId b = builder.add_buffer({.tag = BufferTag::kWorkspace, .bytes = 1000});
    builder.add_task({.kind = TaskKind::kCompute}, std::array<Use, 1>{{{b, Access::kWrite, Role::kWorkspace}}});
  }
  StepGraph graph = std::move(builder).finish();
  place(graph);
  EXPECT_EQ(graph.arena_bytes[0], 1024);
}

TEST(Place, ReuseWaitsForTheLastUserOfEveryLane) {
  GraphBuilder builder(GraphKind::kStep);
  const auto buffer = [&] { return builder.add_buffer({.bytes = 256}); };
  const auto add = [&](Lane lane, BufferId b, Access access) {
    return builder.add_task({.kind = TaskKind::kCompute, .lane = lane}, std::array<Use, 1>{{{b, access, Role::kInput}}});
  };
  const BufferId a = buffer();
  add(Lane::kCompute, a, Access::kWrite);
  const TaskId first = add(Lane::kHostCompute, a, Access::kRead);
  const TaskId second = add(Lane::kDownload, a, Access::kRead);
  const TaskId reuser = add(Lane::kUpload, buffer(), Access::kWrite);
  StepGraph graph = std::move(builder).finish();
  EXPECT_EQ(graph.tasks[reuser].wait_count, 0U) << "nothing but the bytes connects them";
  place(graph);
  EXPECT_EQ(graph.arena_bytes[0], 256);
  const auto waits = graph.waits_of(graph.tasks[reuser]);
  EXPECT_EQ(std::vector<TaskId>(waits.begin(), waits.end()), (std::vector<TaskId>{second, first}));
}

/// Tasks of communication and disk lanes overlap those before them, so bytes that one leaves are waited for there, too; a lane that runs
/// one task at a time needs no wait.
TEST(Place, ReuseWithinALaneWaitsWhereTasksOverlap) {
  for (const Lane lane :
       {Lane::kCompute, Lane::kUpload, Lane::kDownload, Lane::kScatterComm, Lane::kGatherComm, Lane::kDiskRead, Lane::kDiskWrite}) {
    GraphBuilder builder(GraphKind::kStep);
    const auto buffer = [&] { return builder.add_buffer({.bytes = 256}); };
    const auto add = [&](BufferId b, Access access, Lane on) {
      return builder.add_task({.kind = TaskKind::kCompute, .lane = on}, std::array<Use, 1>{{{b, access, Role::kInput}}});
    };
    const BufferId a = buffer();
    add(a, Access::kWrite, Lane::kHostCompute);
    const TaskId last = add(a, Access::kRead, lane);
    const TaskId reuser = add(buffer(), Access::kWrite, lane);
    StepGraph graph = std::move(builder).finish();
    place(graph);
    ASSERT_EQ(graph.arena_bytes[0], 256);
    const auto waits = graph.waits_of(graph.tasks[reuser]);
    EXPECT_EQ(std::vector<TaskId>(waits.begin(), waits.end()), is_asynchronous(lane) ? std::vector<TaskId>{last} : std::vector<TaskId>{})
        << name_of(lane);
    EXPECT_NO_THROW(check_races(graph));
    if (!is_asynchronous(lane)) continue;
    graph.tasks[reuser].wait_count = 0;
    EXPECT_THROW(check_races(graph), LogicError) << name_of(lane);
  }
}

/// Bytes that are held from before their first use are those of a buffer that was dead then, not of one that dies in between.
TEST(Place, HeldBytesAreNobodyElses) {
  GraphBuilder builder(GraphKind::kStep);
  const auto buffer = [&] { return builder.add_buffer({.bytes = 256}); };
  const auto add = [&](Lane lane, BufferId b, Access access) {
    return builder.add_task({.kind = TaskKind::kCompute, .lane = lane}, std::array<Use, 1>{{{b, access, Role::kInput}}});
  };
  const BufferId a = buffer(), b = buffer(), c = buffer();
  add(Lane::kDownload, a, Access::kWrite);
  add(Lane::kDownload, b, Access::kWrite);
  const TaskId last_of_a = add(Lane::kUpload, a, Access::kRead);
  builder.hold(c);
  add(Lane::kDiskWrite, b, Access::kRead);
  const BufferId d = buffer();
  const TaskId between = add(Lane::kDiskRead, d, Access::kWrite);
  const TaskId use = add(Lane::kCompute, c, Access::kWrite);
  StepGraph graph = std::move(builder).finish();
  EXPECT_EQ(graph.buffers[c].first, 3U);
  place(graph);
  EXPECT_EQ(graph.arena_bytes[0], 512);
  EXPECT_EQ(graph.buffers[c].offset, graph.buffers[a].offset);
  EXPECT_EQ(graph.buffers[d].offset, graph.buffers[b].offset) << "what is held isn't given to another";
  const auto waits = graph.waits_of(graph.tasks[use]);
  EXPECT_EQ(std::vector<TaskId>(waits.begin(), waits.end()), std::vector<TaskId>{last_of_a});
  EXPECT_EQ(graph.tasks[between].wait_count, 1U);
  expect_placed(graph, true);
}

/// Each tier's buffers begin at multiples of its own number of bytes.
TEST(Place, AlignsEachTierOnItsOwn) {
  GraphBuilder builder(GraphKind::kStep);
  std::vector<Use> uses;
  for (const spec::Tier tier : {spec::Tier::kDevice, spec::Tier::kHost, spec::Tier::kDisk}) {
    for (const bool persistent : {true, true, false, false}) {
      uses.push_back({builder.add_buffer({.tier = tier, .persistent = persistent, .bytes = 100}), Access::kWrite, Role::kOutput});
    }
  }
  builder.add_task({.kind = TaskKind::kCompute}, uses);
  StepGraph graph = std::move(builder).finish();
  graph.alignment = {64, 4096, 4096};
  place(graph);
  EXPECT_EQ(graph.persistent_bytes, (std::array<std::int64_t, 3>{256, 8192, 8192}));
  EXPECT_EQ(graph.live_bytes_peak, graph.persistent_bytes);
  EXPECT_EQ(graph.arena_bytes, (std::array<std::int64_t, 3>{512, 16384, 16384}));
  expect_placed(graph, true);
}

/// A reduction's source isn't overwritten by the very next compute task, unless placement is told not to care.
TEST(Place, SlackKeepsComputeFromWaitingForTheCollectiveItStarted) {
  GraphBuilder builder(GraphKind::kStep);
  std::vector<TaskId> compute;
  for (int t = 0; t < 6; ++t) {
    const BufferId b = builder.add_buffer({.tag = BufferTag::kMicroGradient, .bytes = 256});
    compute.push_back(builder.add_task({.kind = TaskKind::kCompute}, std::array<Use, 1>{{{b, Access::kWrite, Role::kParamGrad}}}));
    builder.add_task({.kind = TaskKind::kScatter, .lane = Lane::kScatterComm, .chunk = t},
                     std::array<Use, 1>{{{b, Access::kRead, Role::kSource}}});
  }
  const StepGraph plain = std::move(builder).finish();
  for (const int slack : {0, 1, 2}) {
    StepGraph graph = plain;
    place(graph, slack);
    EXPECT_EQ(graph.arena_bytes[0], 256 * (1 + slack));
    EXPECT_EQ(graph.live_bytes_peak[0], 256);
    for (std::size_t t = static_cast<std::size_t>(slack) + 1; t < compute.size(); ++t) {
      const auto waits = graph.waits_of(graph.tasks[compute[t]]);
      ASSERT_EQ(waits.size(), 1U);
      EXPECT_EQ(waits[0], compute[t - 1 - static_cast<std::size_t>(slack)] + 1) << "the scatter " << slack + 1 << " compute tasks back";
    }
    EXPECT_NO_THROW(check_order(graph));
    EXPECT_NO_THROW(check_races(graph));
  }
}

TEST(Place, NothingToPlace) {
  StepGraph graph;
  place(graph);
  EXPECT_EQ(graph.arena_bytes[0], 0);
  GraphBuilder builder(GraphKind::kStep);
  const BufferId empty = builder.add_buffer({.bytes = 0}), unused = builder.add_buffer({.bytes = 64});
  builder.add_task({.kind = TaskKind::kCompute}, std::array<Use, 1>{{{empty, Access::kWrite, Role::kOutput}}});
  graph = std::move(builder).finish();
  place(graph);
  EXPECT_EQ(graph.buffers[empty].offset, 0);
  EXPECT_EQ(graph.buffers[unused].offset, -1) << "what nobody uses has no place";
  EXPECT_EQ(graph.arena_bytes[0], 0);
  EXPECT_NO_THROW(check_order(graph));
}

TEST(Place, EveryStrategyOfATinyModel) {
  double worst = 0;
  for_each_graph_case(2, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    for (const GraphKind kind : {GraphKind::kStep, GraphKind::kEvaluate, GraphKind::kGenerate}) {
      const StepGraph graph = inputs.build(kind);
      expect_placed(graph, false);
      if (kind == GraphKind::kStep)
        worst = std::max(
            worst, static_cast<double>(graph.arena_bytes[0] - graph.persistent_bytes[0]) / static_cast<double>(graph.live_bytes_peak[0]));
    }
  });
  EXPECT_LT(worst, 1.45) << "few buffers of very different sizes";
}

/// Of real models, where sizes are alike and lifetimes nest, placement leaves next to nothing unused; compute never waits for the
/// reduction it has just started; and the graph of the largest model is small, since planning must work on a laptop.
TEST(Place, RealModels) {
  struct Case {
    const char* preset;
    std::int64_t ranks, rows, sequence, chunk_elements;
  };
  for (const Case& c :
       {Case{"gpt2-124m", 4, 4, 1024, 4 << 20}, {"gpt2-1.5b", 2, 1, 1024, 8 << 20}, {"gpt3-175b", 64, 1, 2048, 128 << 20}}) {
    const spec::ModelSpec model = spec::load_preset(c.preset, {SLUICE_SOURCE_DIR "/configs/models"});
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::string what : {"keep", "recompute", "offload"}) {
        SCOPED_TRACE(std::string(c.preset) + ", zero_stage " + std::to_string(stage) + ", " + what);
        spec::TrainingSpec training;
        training.batch.sequence_length = c.sequence;
        spec::Plan plan;
        plan.zero_stage = stage;
        plan.mesh.data = c.ranks;
        plan.micro_batch = c.rows;
        plan.accumulation = 2;
        plan.chunk_elements = c.chunk_elements;
        plan.threads = 1;
        plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2),
                                what == "recompute" ? spec::Activation::kRecompute : spec::Activation::kKeep);
        if (what == "offload") plan = testing::with_homes(model, training, plan, {testing::homes_of_stage(stage, plan.update_mode).back()});
        const StepGraph graph = GraphInputs(model, training, plan).build(GraphKind::kStep);
        EXPECT_NO_THROW(check_order(graph));
        EXPECT_NO_THROW(check_races(graph));
        EXPECT_LT(static_cast<double>(graph.arena_bytes[0] - graph.persistent_bytes[0]),
                  1.08 * static_cast<double>(graph.live_bytes_peak[0]));
        EXPECT_LT(static_cast<double>(graph.arena_bytes[1] - graph.persistent_bytes[1]),
                  1.2 * static_cast<double>(graph.live_bytes_peak[1]) + (1 << 20))
            << "staging of few sizes";
        std::vector<TaskId> compute_before;  // how many compute tasks, by task
        for (const Task& task : graph.tasks)
          compute_before.push_back((compute_before.empty() ? 0 : compute_before.back()) + (task.kind == TaskKind::kCompute ? 1 : 0));
        for (TaskId id = 0; id < graph.tasks.size(); ++id) {
          if (graph.tasks[id].kind != TaskKind::kCompute) continue;
          for (const TaskId on : graph.waits_of(graph.tasks[id])) {
            if (graph.tasks[on].kind != TaskKind::kScatter && graph.tasks[on].lane != Lane::kDownload) continue;
            EXPECT_GE(compute_before[id] - compute_before[on], 2U) << graph.task_name(id) << " waits for " << graph.task_name(on);
          }
        }
        const std::size_t bytes = graph.tasks.size() * sizeof(Task) + graph.buffers.size() * sizeof(Buffer) +
                                  graph.uses.size() * sizeof(Use) + graph.waits.size() * sizeof(TaskId);
        EXPECT_LT(bytes, std::size_t{8} << 20);
      }
    }
  }
}

/// Graphs of a set share their persistent buffers: same numbers, same offsets, beyond them nothing persistent.
TEST(Place, AllGraphsOfASetShareThePersistentPart) {
  for_each_graph_case(3, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    const StepGraph step = inputs.build(GraphKind::kStep);
    for (const GraphKind kind : {GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate, GraphKind::kSave}) {
      const StepGraph other = inputs.build(kind);
      EXPECT_EQ(other.persistent_bytes, step.persistent_bytes);
      for (BufferId b = 0; b < std::max(step.buffers.size(), other.buffers.size()); ++b) {
        const bool here = b < step.buffers.size() && step.buffers[b].persistent;
        ASSERT_EQ(here, b < other.buffers.size() && other.buffers[b].persistent) << name_of(kind) << ", buffer " << b;
        if (!here) continue;
        ASSERT_EQ(step.buffers[b].offset, other.buffers[b].offset);
        ASSERT_EQ(step.buffers[b].bytes, other.buffers[b].bytes);
        ASSERT_EQ(step.buffer_name(b), other.buffer_name(b));
      }
    }
  });
}

}  // namespace
}  // namespace sluice::schedule
