// The waits of built graphs are exactly what is needed: with any one of them taken away, a proof that shares no code with builder
// and placement objects.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/check.hpp"
#include "schedule/reachability.hpp"
#include "support/graph_cases.hpp"

namespace sluice::schedule {
namespace {

using testing::for_each_graph_case;
using testing::GraphInputs;

constexpr std::array<GraphKind, 5> kKinds{GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate,
                                          GraphKind::kSave};

template <typename Check>
bool objects(Check check, const StepGraph& graph, const std::string& name) {
  try {
    check(graph);
    return false;
  } catch (const LogicError& error) {
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << "the message must name " << name << ": " << error.what();
    return true;
  }
}

TEST(Waits, BuiltGraphsPassEveryProof) {
  for (const int ranks : {1, 2, 3}) {
    for_each_graph_case(ranks, [&](const GraphInputs& inputs, const std::string& what) {
      for (const GraphKind kind : kKinds) {
        SCOPED_TRACE(std::string(name_of(kind)) + ", ranks " + std::to_string(ranks) + ", " + what);
        const StepGraph graph = inputs.build(kind);
        EXPECT_NO_THROW(check_order(graph));
        EXPECT_NO_THROW(check_races(graph));
        EXPECT_NO_THROW(check_cancel(graph));
        const StepGraph* one = &graph;
        EXPECT_NO_THROW(check_meetings({&one, 1}));
        EXPECT_EQ(graph.hash(), inputs.build(kind).hash()) << "building is a function of its inputs";
      }
    });
  }
}

TEST(Waits, EveryOneIsNeeded) {
  std::size_t of_data = 0, of_cancel = 0;
  for_each_graph_case(2, [&](const GraphInputs& inputs, const std::string& what) {
    for (const GraphKind kind : kKinds) {
      SCOPED_TRACE(std::string(name_of(kind)) + ", " + what);
      StepGraph graph = inputs.build(kind);
      std::int16_t agrees = 0;
      std::vector<std::int16_t> ordinal;
      for (const Task& task : graph.tasks) ordinal.push_back(task.kind == TaskKind::kAgree ? agrees++ : std::int16_t{-1});
      for (TaskId id = 0; id < graph.tasks.size(); ++id) {
        for (std::uint32_t k = 0; k < graph.tasks[id].wait_count; ++k) {
          const TaskId on = graph.waits_of(graph.tasks[id])[k];
          const std::string name = "(" + std::to_string(id) + ")";
          drop_wait(graph, id, k);
          const bool races = objects(&check_races, graph, "");
          // Some waits order no bytes: they let an agree decide first, or ask when the step has come so far.
          const bool governed = (ordinal[on] >= 0 && ordinal[on] == graph.tasks[id].governed_by) ||
                                (graph.tasks[id].kind == TaskKind::kAgree && graph.tasks[on].lane == Lane::kCompute);
          if (governed && !races) {
            EXPECT_TRUE(objects(&check_cancel, graph, name)) << graph.task_name(id) << " may start before " << graph.task_name(on);
            ++of_cancel;
          } else {
            EXPECT_TRUE(races) << "nobody misses the wait of " << graph.task_name(id) << " (" << id << ") for " << graph.task_name(on)
                               << " (" << on << ")";
            ++of_data;
          }
          restore_wait(graph, id, k);
        }
      }
      EXPECT_NO_THROW(check_races(graph));
    }
  });
  EXPECT_GT(of_data, 1000U);
  EXPECT_GT(of_cancel, 50U);
}

/// The waits as walked, not as counted by clocks: governed tasks come after their agree on some path.
TEST(Waits, GovernedTasksFollowTheirAgree) {
  for_each_graph_case(2, [&](const GraphInputs& inputs, const std::string& what) {
    SCOPED_TRACE(what);
    const StepGraph graph = inputs.build(GraphKind::kStep);
    const Reachability reach(graph);
    std::vector<TaskId> agrees;
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      if (graph.tasks[id].kind == TaskKind::kAgree) agrees.push_back(id);
    }
    ASSERT_GE(agrees.size(), 2U);
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      const int governor = graph.tasks[id].governed_by;
      if (governor < 0) continue;
      const TaskId agree = agrees[static_cast<std::size_t>(governor)];
      ASSERT_TRUE(reach.happens_before(agree, id) || graph.tasks[id].lane == graph.tasks[agree].lane) << graph.task_name(id);
    }
    // Whatever a cancel point skips, it lies after the last update of the step before or before the first of this step.
    const bool next_forward = inputs.plan().update_mode == spec::UpdateMode::kNextForward;
    for (std::size_t k = 0; k < agrees.size(); ++k) {
      if (!graph.tasks[agrees[k]].can_cancel) continue;
      for (const Task& task : graph.tasks) {
        // A move that knows an update's condition takes what it wrote home.
        const bool takes_home = task.kind == TaskKind::kMove && task.use_count > 2;
        if (task.kind != TaskKind::kUpdate && !takes_home) continue;
        EXPECT_EQ(task.governed_by >= static_cast<int>(k), !next_forward) << "agree " << k << ", chunk " << task.chunk;
      }
    }
    EXPECT_TRUE(std::any_of(agrees.begin(), agrees.end(), [&](TaskId id) { return graph.tasks[id].can_cancel; }) ||
                (next_forward && inputs.plan().accumulation == 1));
  });
}

}  // namespace
}  // namespace sluice::schedule
