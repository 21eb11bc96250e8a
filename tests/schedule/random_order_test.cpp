// The same bits, whatever order the device takes: every strategy on a device that runs ready work at random, with every lane on a
// thread of its own and dead buffers full of NaN, against the cpu device with lanes folded.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.hpp"
#include "comm/local/local_communicator.hpp"
#include "schedule/check.hpp"
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

/// The state after the run with the k-th wait of a task taken out of every rank's step graph; empty where a rank failed.
std::string state_without(const TinyRun& run, schedule::TaskId id, std::uint32_t k) {
  std::vector<std::unique_ptr<TinyRank>> ranks(static_cast<std::size_t>(run.ranks));
  std::string state;
  try {
    comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
      auto& rank = ranks[static_cast<std::size_t>(world.rank())];
      rank = std::make_unique<TinyRank>(run, world);
      // The executor has proved the engine's own graph, and reads its waits when it runs.
      schedule::drop_wait(const_cast<schedule::StepGraph&>(rank->engine().graph(schedule::GraphKind::kStep)), id, k);
      for (int s = 1; s <= run.steps; ++s) rank->step(s);
      const std::string mine = rank->state();
      if (world.rank() == 0) state = mine;
    });
  } catch (const Error&) {
    return {};
  }
  return state;
}

/// What makes the tests above worth something: each wait of a compute task for a collective, and of a collective for a compute task, is
/// taken out in turn. The bits change on this device, in one of a few orders, or the proof of what is left objects; most are noticed by
/// both. A lost wait for tokens isn't tried, since it would read beyond tables.
TEST(RandomOrder, AMissingWaitShows) {
  constexpr std::uint64_t kSeeds = 2;
  TinyRun run = small_run(2, 3, 2, UpdateMode::kAtEnd, false, 5120, 1);
  run.steps = 1;
  const std::string expected = run_tiny(run).state;
  schedule::StepGraph graph = GraphInputs(run.model, run.training, run.plan).build(schedule::GraphKind::kStep);
  const auto is_of = [&](schedule::TaskId id, std::initializer_list<schedule::TaskKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), graph.tasks[id].kind) != kinds.end();
  };
  constexpr auto kCompute = schedule::TaskKind::kCompute, kGather = schedule::TaskKind::kGather, kScatter = schedule::TaskKind::kScatter;
  int dropped = 0, by_proof = 0, by_device = 0;
  for (schedule::TaskId id = 0; id < graph.tasks.size(); ++id) {
    for (std::uint32_t k = 0; k < graph.tasks[id].wait_count; ++k) {
      const schedule::TaskId on = graph.waits_of(graph.tasks[id])[k];
      const bool is_tried =
          (is_of(id, {kCompute}) && is_of(on, {kGather, kScatter})) || (is_of(id, {kGather, kScatter}) && is_of(on, {kCompute}));
      if (!is_tried) continue;
      ++dropped;
      schedule::drop_wait(graph, id, k);
      bool is_proved = false;
      try {
        schedule::check_races(graph);
      } catch (const LogicError&) {
        is_proved = true;
      }
      schedule::restore_wait(graph, id, k);
      bool is_seen = false;
      for (std::uint64_t seed = 7; seed < 7 + kSeeds && !is_seen; ++seed)
        is_seen = state_without(on_random_device(run, seed, 1), id, k) != expected;
      EXPECT_TRUE(is_proved || is_seen) << "nobody misses the wait of " << graph.task_name(id) << " (" << id << ") for "
                                        << graph.task_name(on) << " (" << on << ")";
      by_proof += is_proved ? 1 : 0;
      by_device += is_seen ? 1 : 0;
    }
  }
  std::printf("%d waits taken away: the proof misses %d of them, the device %d\n", dropped, dropped - by_proof, dropped - by_device);
  EXPECT_GE(dropped, 60);
  EXPECT_GE(by_device, dropped / 2);  // timing may keep a few in order
}

}  // namespace
}  // namespace sluice::testing
