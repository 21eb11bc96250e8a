// A stop request cancels a step on all ranks or on none, and a cancelled step leaves no trace.

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "base/rng.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "support/random_device.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using schedule::GraphKind;
using schedule::RunResult;
using spec::UpdateMode;

/// A training that nobody stops.
struct Reference {
  std::vector<std::string> states;  // after step 0, 1, ...
  std::vector<double> losses;       // of step 1, 2, ...
};

Reference train_undisturbed(TinyRun run, int steps) {
  Reference reference;
  run.make_device = {};
  run.threading = schedule::Threading::kFolded;
  run.poison = false;
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();
    TinyRank rank(run, world);
    std::string state = rank.state();
    if (world.rank() == 0) reference.states.push_back(state);
    for (int s = 1; s <= steps; ++s) {
      const RunResult result = rank.step(s);
      state = rank.state();
      if (world.rank() != 0) continue;
      reference.losses.push_back(result.report.loss);
      reference.states.push_back(state);
    }
  });
  return reference;
}

/// Both the same on all ranks.
void expect_agreed(comm::Communicator& world, const RunResult& result) {
  const std::string mine = {result.cancelled ? 'c' : '-', result.report.stop_requested ? 's' : '-'};
  for (const std::string& other : world.all_gather(mine)) EXPECT_EQ(other, mine);
}

/// What may stand between agrees and updates: one of each kind of plan.
TinyRun run_of(int ranks, int stage, UpdateMode mode, int accumulation, int segments_between_agrees) {
  TinyRun run;
  run.ranks = ranks;
  run.plan = tiny_plan(ranks, stage, accumulation, mode, stage % 2 == 1, stage == 2 ? 5120 : 20480);
  if (mode == UpdateMode::kInBackward) run.training.optimizer.gradient_clipping = 0;
  run.segments_between_agrees = segments_between_agrees;
  return run;
}

TinyRun on_random_device(TinyRun run, std::uint64_t seed) {
  run.threading = schedule::Threading::kPerLane;
  run.poison = true;
  run.make_device = [seed](int rank) {
    return std::make_unique<RandomDevice>(RandomDeviceOptions{.seed = seed + static_cast<std::uint64_t>(rank)});
  };
  return run;
}

/// Step s is stopped by one rank in its s-th question; a cancelled step is run again. Every question of a step has its turn.
/// Returns how many steps were cancelled.
int stop_at_every_question(const TinyRun& run) {
  std::atomic<int> cancelled{0};
  Reference reference;
  int questions = 0;
  {
    comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
      TinyRank rank(run, world);
      if (world.rank() == 0) {
        for (const schedule::Task& task : rank.engine().graph(GraphKind::kStep).tasks)
          questions += task.lane == schedule::Lane::kMeshComm ? 1 : 0;
      }
    });
    reference = train_undisturbed(run, questions);
  }
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();
    TinyRank rank(run, world);
    std::vector<bool> can_cancel;  // by question: agrees in order, then the report
    for (const schedule::Task& task : rank.engine().graph(GraphKind::kStep).tasks) {
      if (task.lane == schedule::Lane::kMeshComm) can_cancel.push_back(task.can_cancel);
    }
    for (int s = 1; s <= questions; ++s) {
      SCOPED_TRACE("stopped at question " + std::to_string(s - 1) + " of step " + std::to_string(s) + ", rank " +
                   std::to_string(world.rank()));
      const int stopping = static_cast<int>(
          bounded_at(rng_key(5, RngPurpose::kSample, 0), static_cast<std::uint64_t>(s), static_cast<std::uint64_t>(run.ranks)));
      int question = 0;
      const RunResult result = rank.step(s, [&] { return question++ == s - 1 && world.rank() == stopping; });
      expect_agreed(world, result);
      EXPECT_TRUE(result.report.stop_requested);
      EXPECT_EQ(result.cancelled, can_cancel[static_cast<std::size_t>(s - 1)]);
      if (!result.cancelled) {
        EXPECT_EQ(question, questions) << "a step that goes on asks to its end";
        EXPECT_EQ(result.report.loss, reference.losses[static_cast<std::size_t>(s - 1)]);
        continue;
      }
      if (world.rank() == 0) ++cancelled;
      // What was pending stood before every cancel point; were it still pending, reading the state would do it again.
      EXPECT_TRUE(rank.state() == reference.states[static_cast<std::size_t>(s - 1)]) << "the state isn't that of the step before";
      const RunResult again = rank.step(s);
      EXPECT_FALSE(again.cancelled || again.report.stop_requested);
      EXPECT_EQ(again.report.loss, reference.losses[static_cast<std::size_t>(s - 1)]);
    }
    EXPECT_TRUE(rank.state() == reference.states.back());
  });
  return cancelled;
}

TEST(Cancel, LeavesTheStateOfTheStepBefore) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(name_of(mode)) + ", zero_stage " + std::to_string(stage));
      // Agrees: at the start, after the first micro-batch, before the first update. With next_forward only the second may cancel.
      const TinyRun run = run_of(stage == 3 ? 3 : 2, stage, mode, 2, 0);
      EXPECT_EQ(stop_at_every_question(run), mode == UpdateMode::kNextForward ? 1 : 3);
      if (HasFailure()) return;
    }
  }
}

TEST(Cancel, OnARandomDevice) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    for (const int stage : {1, 3}) {
      SCOPED_TRACE(std::string(name_of(mode)) + ", zero_stage " + std::to_string(stage));
      stop_at_every_question(on_random_device(run_of(2, stage, mode, 2, 0), 40 + static_cast<std::uint64_t>(stage)));
      if (HasFailure()) return;
    }
  }
}

/// Long segments have agrees between them, some of them while updates are under way.
TEST(Cancel, WithAgreesInsideMicroBatches) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    SCOPED_TRACE(name_of(mode));
    EXPECT_GT(stop_at_every_question(run_of(2, mode == UpdateMode::kAtEnd ? 2 : 1, mode, 1, 2)), 1);
    if (HasFailure()) return;
  }
}

TEST(Cancel, OneRankAlone) {
  EXPECT_EQ(stop_at_every_question(run_of(1, 0, UpdateMode::kAtEnd, 3, 0)), 4);
}

/// Ranks that want to stop at different agrees, or several at once.
TEST(Cancel, ManyWishes) {
  constexpr int kSteps = 12;
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    SCOPED_TRACE(name_of(mode));
    const TinyRun run = run_of(3, mode == UpdateMode::kNextForward ? 3 : 1, mode, 2, 3);
    const Reference reference = train_undisturbed(run, kSteps);
    std::atomic<int> cancelled{0};
    comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
      device::flush_denormals_on_this_thread();
      TinyRank rank(run, world);
      std::uint64_t draws = 0;
      const auto key = rng_key(static_cast<std::uint64_t>(mode), RngPurpose::kSample, static_cast<std::uint64_t>(world.rank()));
      for (int s = 1; s <= kSteps; ++s) {
        for (int attempt = 0;; ++attempt) {
          ASSERT_LT(attempt, 60);
          const RunResult result = rank.step(s, [&] { return bounded_at(key, draws++, 60) == 0; });
          expect_agreed(world, result);
          if (!result.cancelled) {
            EXPECT_EQ(result.report.loss, reference.losses[static_cast<std::size_t>(s - 1)]) << "step " << s;
            break;
          }
          if (world.rank() == 0) ++cancelled;
        }
      }
      EXPECT_TRUE(rank.state() == reference.states.back());
    });
    EXPECT_GT(cancelled, 3);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice::testing
