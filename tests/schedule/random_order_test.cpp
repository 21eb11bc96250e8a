// The same bits, whatever order the device takes: every strategy on a device that runs ready work at random, with every lane on a
// thread of its own and dead buffers full of NaN, against the cpu device with lanes folded.

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "comm/local/local_communicator.hpp"
#include "schedule/reachability.hpp"
#include "support/graph_inputs.hpp"
#include "support/random_device.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::UpdateMode;

TinyRun small_run(int ranks, int stage, int accumulation, UpdateMode mode, bool recompute, std::int64_t chunk, int prefetch) {
  TinyRun run;
  run.ranks = ranks;
  run.steps = 2;
  run.verify_graphs = false;
  run.plan = tiny_plan(ranks, stage, accumulation, mode, recompute, chunk, prefetch);
  if (mode == UpdateMode::kInBackward) run.training.optimizer.gradient_clipping = 0;
  return run;
}

TinyRun on_random_device(TinyRun run, std::uint64_t seed, int workers) {
  run.threading = schedule::Threading::kPerLane;
  run.poison = true;
  run.lag_seed = seed + 1;
  run.make_device = [seed, workers](int rank) {
    return std::make_unique<RandomDevice>(RandomDeviceOptions{.seed = seed * 100 + static_cast<std::uint64_t>(rank), .workers = workers});
  };
  return run;
}

TEST(RandomOrder, EveryStrategyGivesTheSameBits) {
  std::map<std::string, TinyResult> of_signature;
  int n = 0;
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
        for (const bool recompute : {false, true}) {
          const int accumulation = n % 3 == 0 ? 1 : 2;
          TinyRun run = small_run(ranks, stage, accumulation, mode, recompute, n % 2 == 0 ? 20480 : 5120, n % 4 % 3);
          if (n % 5 == 0) run.plan.rcache_elements *= 2;
          if (n % 3 == 1) run.training.precision = spec::Precision::kBf16;
          const std::string signature = std::string(name_of(run.training.precision)) + "/" + std::to_string(ranks) + "/" +
                                        std::to_string(accumulation) + (stage >= 2 ? "/micro-batch" : "/step") +
                                        (mode == UpdateMode::kInBackward ? "/free" : "/clipped");
          SCOPED_TRACE(signature + ", zero_stage " + std::to_string(stage) + ", " + std::string(name_of(mode)) +
                       (recompute ? ", recompute" : ", keep") + ", seed " + std::to_string(n));
          const auto [expected, is_new] = of_signature.try_emplace(signature);
          if (is_new) expected->second = run_tiny(run);
          EXPECT_EQ(difference(run_tiny(on_random_device(run, static_cast<std::uint64_t>(n), n % 4 == 1 ? 2 : 1)), expected->second), "");
          if (HasFailure()) return;
          ++n;
        }
      }
    }
  }
}

/// The plan with the most going on, in many orders.
TEST(RandomOrder, ManyOrdersOfOnePlan) {
  const TinyRun run = small_run(2, 3, 2, UpdateMode::kNextForward, true, 5120, 2);
  const TinyResult expected = run_tiny(run);
  for (std::uint64_t seed = 1000; seed < 1010; ++seed) {
    SCOPED_TRACE(seed);
    TinyRun random = on_random_device(run, seed, seed % 2 == 0 ? 1 : 2);
    if (seed % 3 == 0) random.threading = schedule::Threading::kFolded;
    EXPECT_EQ(difference(run_tiny(random), expected), "");
  }
}

/// Lanes on threads of their own, where bodies run at once and events complete as they are recorded.
TEST(RandomOrder, LanesOnThreadsOfTheCpu) {
  for (const int stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    TinyRun run = small_run(2, stage, 2, stage == 0 ? UpdateMode::kInBackward : UpdateMode::kNextForward, stage == 2, 5120, 1);
    const TinyResult expected = run_tiny(run);
    run.poison = true;
    EXPECT_EQ(difference(run_tiny(run), expected), "");
    run.threading = schedule::Threading::kPerLane;
    EXPECT_EQ(difference(run_tiny(run), expected), "");
  }
}

/// What makes the tests above worth something: with a wait for a collective taken out of the graph, the bits change. Some of these
/// waits are kept by luck of timing; most are not. Compute waits alone: a lost wait for tokens would read beyond tables.
TEST(RandomOrder, AMissingWaitShows) {
  const TinyRun run = on_random_device(small_run(2, 3, 2, UpdateMode::kAtEnd, false, 5120, 1), 7, 1);
  const TinyResult expected = run_tiny(run);
  const schedule::StepGraph graph = [&] {
    const GraphInputs inputs(run.model, run.training, run.plan);
    return inputs.build(schedule::GraphKind::kStep);
  }();
  int dropped = 0, noticed = 0;
  for (schedule::TaskId id = 0; id < graph.tasks.size(); ++id) {
    for (std::uint32_t k = 0; k < graph.tasks[id].wait_count; ++k) {
      const schedule::TaskKind on = graph.tasks[graph.waits_of(graph.tasks[id])[k]].kind;
      if (graph.tasks[id].kind != schedule::TaskKind::kCompute || (on != schedule::TaskKind::kGather && on != schedule::TaskKind::kScatter))
        continue;
      if (dropped == 12) break;
      std::vector<std::unique_ptr<TinyRank>> ranks(2);
      std::array<std::string, 2> state;
      const auto body = [&](comm::Communicator& world) {
        const auto r = static_cast<std::size_t>(world.rank());
        ranks[r] = std::make_unique<TinyRank>(run, world);
        // The executor reads the waits of the engine's own graph when it runs.
        schedule::drop_wait(const_cast<schedule::StepGraph&>(ranks[r]->engine().graph(schedule::GraphKind::kStep)), id, k);
        for (int s = 1; s <= run.steps; ++s) ranks[r]->step(s);
        state[r] = ranks[r]->state();
      };
      ++dropped;
      try {
        comm::run_local_ranks(2, body);
        noticed += state[0] != expected.state ? 1 : 0;
      } catch (const Error&) {
        ++noticed;
      }
    }
  }
  EXPECT_EQ(dropped, 12);
  EXPECT_GE(noticed, dropped / 4) << "of " << dropped;
  RecordProperty("noticed", noticed);
}

}  // namespace
}  // namespace sluice::testing
