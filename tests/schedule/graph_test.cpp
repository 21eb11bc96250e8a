#include "schedule/graph.hpp"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/error.hpp"
#include "schedule/random_graph.hpp"
#include "schedule/reachability.hpp"
#include "schedule/uses.hpp"

namespace sluice::schedule {
namespace {

class Small {
 public:
  BufferId buffer() { return builder_.add_buffer({.bytes = 64}); }
  TaskId add(Lane lane, const std::vector<Use>& uses) { return builder_.add_task({.kind = TaskKind::kCompute, .lane = lane}, uses); }
  TaskId agree() { return builder_.add_task({.kind = TaskKind::kAgree, .lane = Lane::kMeshComm}, {}); }
  std::vector<TaskId> waits(TaskId id) const {
    const auto span = builder_.graph().waits_of(builder_.graph().tasks[id]);
    return {span.begin(), span.end()};
  }
  GraphBuilder& builder() { return builder_; }

 private:
  GraphBuilder builder_{GraphKind::kStep};
};

using Waits = std::vector<TaskId>;

TEST(GraphBuilder, ReadWaitsForTheLastWriter) {
  Small g;
  const BufferId a = g.buffer();
  g.add(Lane::kUpload, {write(a)});
  const TaskId second = g.add(Lane::kGatherComm, {write(a)});
  const TaskId reader = g.add(Lane::kCompute, {read(a)});
  EXPECT_EQ(g.waits(second), Waits{0});
  EXPECT_EQ(g.waits(reader), Waits{second}) << "the first writer is implied";
}

TEST(GraphBuilder, WriteWaitsForAllReadersSince) {
  Small g;
  const BufferId a = g.buffer();
  const TaskId writer = g.add(Lane::kUpload, {write(a)});
  const TaskId first = g.add(Lane::kCompute, {read(a)});
  const TaskId second = g.add(Lane::kHostCompute, {read(a)});
  const TaskId third = g.add(Lane::kCompute, {read(a)});  // after `first` on its lane
  EXPECT_EQ(g.waits(first), Waits{writer});
  EXPECT_EQ(g.waits(second), Waits{writer}) << "readers don't wait for each other";
  EXPECT_EQ(g.waits(third), Waits{}) << "its lane's order implies the writer";
  const TaskId next = g.add(Lane::kUpload, {write(a)});
  EXPECT_EQ(g.waits(next), (Waits{third, second}));
  const TaskId after = g.add(Lane::kScatterComm, {both(a)});
  EXPECT_EQ(g.waits(after), Waits{next}) << "readers before the last write no longer count";
}

TEST(GraphBuilder, AReadWriteIsBoth) {
  Small g;
  const BufferId a = g.buffer(), b = g.buffer();
  const TaskId w = g.add(Lane::kUpload, {write(a), write(b)});
  const TaskId adds = g.add(Lane::kCompute, {both(a)});
  const TaskId adds_too = g.add(Lane::kHostCompute, {both(a), read(b)});
  EXPECT_EQ(g.waits(adds), Waits{w});
  EXPECT_EQ(g.waits(adds_too), Waits{adds});
}

TEST(GraphBuilder, LaneOrderIsImplied) {
  Small g;
  const BufferId a = g.buffer();
  g.add(Lane::kCompute, {write(a)});
  EXPECT_EQ(g.waits(g.add(Lane::kCompute, {both(a)})), Waits{});
  EXPECT_EQ(g.waits(g.add(Lane::kCompute, {read(a)})), Waits{});
}

/// A task of such a lane starts when what it waits for is complete and those before it have started; they complete in order.
TEST(Clocks, TasksOfAnAsynchronousLaneOverlap) {
  for (const Lane lane : {Lane::kUpload, Lane::kScatterComm, Lane::kDiskRead}) {
    Small g;
    const BufferId a = g.buffer(), b = g.buffer();
    const TaskId load = g.add(Lane::kHostCompute, {write(a)});
    const TaskId first = g.add(lane, {read(a)});
    const TaskId second = g.add(lane, {write(b)});
    const TaskId after = g.add(Lane::kCompute, {read(b)});
    const StepGraph graph = std::move(g.builder()).finish();
    EXPECT_EQ(is_asynchronous(lane), lane != Lane::kUpload);
    for (const bool walks : {false, true}) {
      const Clocks clocks(graph);
      const Reachability reach(graph);
      const auto before = [&](TaskId x, TaskId y) { return walks ? reach.happens_before(x, y) : clocks.happens_before(x, y); };
      EXPECT_EQ(before(first, second), lane == Lane::kUpload);
      EXPECT_TRUE(before(load, second)) << "what the one before it waited for";
      EXPECT_TRUE(before(second, after));
      EXPECT_TRUE(before(first, after)) << "complete in order";
    }
  }
}

TEST(GraphBuilder, OneTaskMayUseABufferTwice) {
  Small g;
  const BufferId a = g.buffer();
  const TaskId w = g.add(Lane::kUpload, {write(a)});
  const TaskId twice = g.add(Lane::kCompute, {read(a), read(a)});
  EXPECT_EQ(g.waits(twice), Waits{w});
  const TaskId self = g.add(Lane::kHostCompute, {write(a), both(a)});
  EXPECT_EQ(g.waits(self), Waits{twice}) << "not for itself";
}

TEST(GraphBuilder, AGovernedTaskWaitsForItsAgree) {
  Small g;
  const BufferId a = g.buffer();
  const TaskId before = g.add(Lane::kCompute, {write(a)});
  const TaskId agree = g.agree();
  const TaskId between = g.add(Lane::kCompute, {read(a)});
  g.builder().govern_by(agree);
  const TaskId after = g.add(Lane::kUpload, {});
  const TaskId later = g.add(Lane::kUpload, {});
  const StepGraph& graph = g.builder().graph();
  EXPECT_EQ(graph.tasks[before].governed_by, -1);
  EXPECT_EQ(graph.tasks[between].governed_by, -1);
  EXPECT_EQ(graph.tasks[after].governed_by, 0);
  EXPECT_EQ(g.waits(between), Waits{});
  EXPECT_EQ(g.waits(after), Waits{agree});
  EXPECT_EQ(g.waits(later), Waits{}) << "implied by its lane";
  const TaskId second = g.agree();
  EXPECT_EQ(graph.tasks[second].governed_by, 0);
  g.builder().govern_by(second);
  EXPECT_EQ(graph.tasks[g.add(Lane::kCompute, {})].governed_by, 1);
  EXPECT_THROW(g.builder().govern_by(agree), LogicError) << "an earlier agree";
  EXPECT_THROW(g.builder().govern_by(before), LogicError) << "not an agree";
}

TEST(GraphBuilder, NumbersTheCollectivesOfEachLane) {
  Small g;
  g.add(Lane::kGatherComm, {});
  g.add(Lane::kCompute, {});
  g.add(Lane::kScatterComm, {});
  g.add(Lane::kGatherComm, {});
  const StepGraph& graph = g.builder().graph();
  EXPECT_EQ(graph.tasks[0].sequence, 0);
  EXPECT_EQ(graph.tasks[1].sequence, -1);
  EXPECT_EQ(graph.tasks[2].sequence, 0);
  EXPECT_EQ(graph.tasks[3].sequence, 1);
}

TEST(GraphBuilder, RecordsLifetimes) {
  Small g;
  const BufferId a = g.buffer(), unused = g.buffer();
  g.add(Lane::kCompute, {});
  g.add(Lane::kCompute, {write(a)});
  g.add(Lane::kCompute, {read(a)});
  g.add(Lane::kCompute, {});
  EXPECT_EQ(g.builder().graph().buffers[a].first, 1U);
  EXPECT_EQ(g.builder().graph().buffers[a].last, 2U);
  EXPECT_EQ(g.builder().graph().buffers[unused].first, kNone);
  EXPECT_THROW(g.builder().add_buffer({.bytes = -1}), LogicError);
}

TEST(GraphBuilder, HoldsBytesBeforeTheFirstUse) {
  Small g;
  const BufferId a = g.buffer(), b = g.buffer();
  g.add(Lane::kCompute, {write(a)});
  g.builder().hold(b);
  g.add(Lane::kUpload, {});
  g.add(Lane::kCompute, {write(b)});
  EXPECT_EQ(g.builder().graph().buffers[b].first, 1U);
  EXPECT_EQ(g.builder().graph().buffers[b].last, 2U);
  EXPECT_EQ(g.waits(2), Waits{}) << "nothing is read or written before its use";
  EXPECT_THROW(g.builder().hold(a), LogicError) << "in use already";
  EXPECT_THROW(g.builder().hold(b), LogicError) << "held already";
}

/// Every conflict is ordered, no wait is implied by the others, and clocks say what walking all paths says.
TEST(GraphBuilder, WaitsAreEnoughAndNoMoreOnRandomGraphs) {
  std::size_t waits = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    StepGraph graph = random_graph(seed, 70);
    const Reachability reach(graph);
    const Clocks clocks(graph);
    for (TaskId b = 0; b < graph.tasks.size(); ++b) {
      for (TaskId a = 0; a < graph.tasks.size(); ++a) {
        ASSERT_EQ(clocks.happens_before(a, b), reach.happens_before(a, b)) << "seed " << seed << ": " << a << " and " << b;
        if (a >= b) continue;
        for (const Use& x : graph.uses_of(graph.tasks[a])) {
          for (const Use& y : graph.uses_of(graph.tasks[b])) {
            if (x.buffer != y.buffer || (x.access == Access::kRead && y.access == Access::kRead)) continue;
            if (is_lanes_order(graph, a, x, b, y)) continue;
            ASSERT_TRUE(reach.happens_before(a, b)) << "seed " << seed << ": tasks " << a << " and " << b << " share buffer " << x.buffer;
          }
        }
      }
    }
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      for (std::uint32_t k = 0; k < graph.tasks[id].wait_count; ++k) {
        const TaskId on = graph.waits_of(graph.tasks[id])[k];
        drop_wait(graph, id, k);
        if (seed <= 5) {
          EXPECT_FALSE(Reachability(graph).happens_before(on, id))
              << "seed " << seed << ": the wait of " << id << " for " << on << " is implied";
        }
        EXPECT_FALSE(Clocks(graph).happens_before(on, id)) << "seed " << seed;
        restore_wait(graph, id, k);
        ++waits;
      }
    }
  }
  EXPECT_GT(waits, 1000U);
}

/// More candidates than fit anywhere small: one task after hundreds of readers.
TEST(GraphBuilder, ManyBuffersInOneTask) {
  Small g;
  std::vector<Use> all;
  constexpr std::array<Lane, 5> kLanes{Lane::kUpload, Lane::kDownload, Lane::kHostCompute, Lane::kDiskRead, Lane::kDiskWrite};
  for (int i = 0; i < 300; ++i) {
    const BufferId b = g.buffer();
    g.add(kLanes[static_cast<std::size_t>(i) % 5], {write(b)});
    all.push_back(both(b));
  }
  const TaskId last = g.add(Lane::kCompute, all);
  EXPECT_EQ(g.waits(last), (Waits{299, 298, 297, 296, 295})) << "the last of each lane implies the others";
}

TEST(StepGraph, HashSeesEverything) {
  const StepGraph graph = random_graph(9, 30);
  std::set<std::uint64_t> hashes{graph.hash()};
  EXPECT_EQ(StepGraph(graph).hash(), graph.hash());
  const auto differs = [&](auto change) {
    StepGraph other = graph;
    change(other);
    EXPECT_TRUE(hashes.insert(other.hash()).second);
  };
  differs([](StepGraph& g) { g.kind = GraphKind::kSave; });
  differs([](StepGraph& g) { g.tasks[3].kind = TaskKind::kUpdate; });
  differs([](StepGraph& g) { g.tasks[3].lane = Lane::kSend; });
  differs([](StepGraph& g) { g.tasks[3].phase = model::Phase::kBackward; });
  differs([](StepGraph& g) { g.tasks[3].plane = chunks::Plane::kMoment1; });
  differs([](StepGraph& g) { g.tasks[3].can_cancel = true; });
  differs([](StepGraph& g) { g.tasks[3].accumulate = true; });
  differs([](StepGraph& g) { g.tasks[3].governed_by = 2; });
  differs([](StepGraph& g) { g.tasks[3].segment = 99; });
  differs([](StepGraph& g) { g.tasks[3].chunk = 99; });
  differs([](StepGraph& g) { g.tasks[3].micro = 99; });
  differs([](StepGraph& g) { g.tasks[3].sequence = 99; });
  differs([](StepGraph& g) {
    g.uses[5].access = Access::kRead;
    g.uses[5].buffer ^= 1U;
  });
  differs([](StepGraph& g) { g.uses[6].role = Role::kLogits; });
  differs([](StepGraph& g) { g.waits[4] ^= 1U; });
  differs([](StepGraph& g) { g.buffers[4].bytes += 1; });
  differs([](StepGraph& g) { g.buffers[4].offset += 64; });
  differs([](StepGraph& g) { g.buffers[4].tier = spec::Tier::kDisk; });
  differs([](StepGraph& g) { g.buffers[4].tag = BufferTag::kSaved; });
  differs([](StepGraph& g) { g.buffers.emplace_back(); });
}

TEST(StepGraph, NamesOfMovesSayWhichWay) {
  StepGraph graph;
  graph.tasks.push_back({.kind = TaskKind::kMove, .lane = Lane::kDiskRead, .plane = chunks::Plane::kMoment2, .chunk = 7});
  graph.tasks.push_back({.kind = TaskKind::kMove, .lane = Lane::kDownload, .plane = chunks::Plane::kGradient, .chunk = 2, .micro = 1});
  graph.tasks.push_back({.kind = TaskKind::kMove, .lane = Lane::kUpload, .segment = 3, .micro = 0});
  EXPECT_EQ(graph.task_name(0), "disk_read exp_avg_sq of chunk 7");
  EXPECT_EQ(graph.task_name(1), "download gradient of chunk 2, micro-batch 1");
  EXPECT_EQ(graph.task_name(2), "upload saved of segment 3, micro-batch 0");
}

TEST(StepGraph, NamesAndDumpAreForPeople) {
  GraphBuilder builder(GraphKind::kStep);
  const BufferId b = builder.add_buffer({.tag = BufferTag::kGathered, .index = 4, .micro = 1, .bytes = 256});
  builder.add_task({.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .chunk = 4, .micro = 1},
                   std::array<Use, 1>{{{b, Access::kWrite, Role::kTarget}}});
  builder.add_task({.kind = TaskKind::kCompute, .lane = Lane::kCompute, .phase = model::Phase::kBackward, .segment = 3, .micro = 1},
                   std::array<Use, 2>{{{b, Access::kRead, Role::kParam}, {b, Access::kRead, Role::kParam}}});
  const StepGraph graph = std::move(builder).finish();
  EXPECT_EQ(graph.task_name(0), "gather working of chunk 4, micro-batch 1");
  EXPECT_EQ(graph.task_name(1), "backward segment 3, micro-batch 1");
  EXPECT_EQ(graph.buffer_name(b), "gathered 4/1");
  std::ostringstream text;
  graph.dump(text);
  EXPECT_NE(text.str().find("1 [compute] backward segment 3, micro-batch 1 | waits 0 | r param=gathered 4/1@device"), std::string::npos)
      << text.str();
  EXPECT_EQ(text.str().find("r param="), text.str().rfind("r param=")) << text.str();  // two parameters in one buffer
  EXPECT_EQ(graph.use_of(graph.tasks[1], Role::kParam)->buffer, b);
  EXPECT_EQ(graph.use_of(graph.tasks[1], Role::kLoss), nullptr);
}

}  // namespace
}  // namespace sluice::schedule
