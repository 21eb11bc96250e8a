// The same bits wherever saved tensors stand between forward and backward, and in whichever order micro-batches pass the segments.

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "support/activation_cases.hpp"
#include "support/graph_inputs.hpp"
#include "support/home_cases.hpp"
#include "support/random_device.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::Activation;
using spec::MicroBatchOrder;
using spec::Precision;
using spec::UpdateMode;

constexpr std::array<UpdateMode, 3> kModes{UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward};

struct Choice {
  int ranks = 1;
  int stage = 3;
  int accumulation = 4;
  UpdateMode mode = UpdateMode::kAtEnd;
  Precision precision = Precision::kFp32;
  bool tied = true;
  std::int64_t chunk_elements = 5120;
  int prefetch = 1;
  std::vector<std::string> trainable = {};
};

std::string text_of(const Choice& choice) {
  std::string text = "ranks " + std::to_string(choice.ranks) + ", zero_stage " + std::to_string(choice.stage) + ", accumulation " +
                     std::to_string(choice.accumulation) + ", " + std::string(name_of(choice.mode)) + ", " +
                     std::string(name_of(choice.precision)) + (choice.tied ? ", tied" : ", untied") + ", chunk " +
                     std::to_string(choice.chunk_elements) + ", prefetch " + std::to_string(choice.prefetch);
  for (const std::string& expression : choice.trainable) text += ", trains " + expression;
  return text;
}

TinyRun run_of(const Choice& choice, MicroBatchOrder order, const std::vector<Activation>& activations) {
  TinyRun run;
  run.ranks = choice.ranks;
  run.steps = 2;
  run.model.tied_head = choice.tied;
  run.training.precision = choice.precision;
  run.training.trainable = choice.trainable;
  if (choice.mode == UpdateMode::kInBackward) run.training.optimizer.gradient_clipping = 0;
  run.plan = tiny_plan(choice.ranks, choice.stage, choice.accumulation, choice.mode, false, choice.chunk_elements, choice.prefetch);
  run.plan.order = order;
  run.plan.activations = activations;
  run.plan.rcache_elements = 0;  // the smallest of this very plan
  run.plan.rcache_elements = GraphInputs(run.model, run.training, run.plan).plan().rcache_elements;
  return run;
}

std::vector<Activation> all(Activation activation) {
  return std::vector<Activation>(static_cast<std::size_t>(2 * tiny_model().layers + 2), activation);
}

/// Every combination of ranks, accumulation and stage from `first_stage` on with two update modes each; all else changes along.
template <typename Visit>
void for_each_choice(int first_stage, Visit visit) {
  int n = 0;
  for (const int ranks : {1, 2, 3}) {
    for (const int accumulation : {1, 4}) {
      for (int stage = first_stage; stage <= 3; ++stage) {
        for (int mode = 0; mode < 3; ++mode) {
          if ((n + mode) % 3 == 0 && first_stage == 0) continue;
          Choice choice{.ranks = ranks,
                        .stage = stage,
                        .accumulation = accumulation,
                        .mode = kModes[static_cast<std::size_t>(mode)],
                        .precision = (n + mode) % 2 == 0 ? Precision::kFp32 : Precision::kBf16,
                        .tied = (n / 2 + mode) % 2 == 0,
                        .chunk_elements = (n + mode) % 3 == 0   ? 20480
                                          : (n + mode) % 3 == 1 ? 5120
                                                                : 1024,
                        .prefetch = (n + mode) % 3};
          SCOPED_TRACE(text_of(choice));
          visit(choice);
          if (::testing::Test::HasFailure()) return;
        }
        ++n;
      }
    }
  }
}

TEST(LayerByLayer, GivesTheBitsOfDepthFirst) {
  int n = 0;
  for_each_choice(2, [&](const Choice& choice) {
    const auto activations = all(n++ % 2 == 0 ? Activation::kKeep : Activation::kRecompute);
    const TinyResult depth_first = run_tiny(run_of(choice, MicroBatchOrder::kDepthFirst, activations));
    EXPECT_EQ(difference(run_tiny(run_of(choice, MicroBatchOrder::kLayerByLayer, activations)), depth_first), "");
  });
}

TEST(LayerByLayer, GivesTheBitsOfDepthFirstWithFrozenParameters) {
  const std::vector<std::vector<std::string>> choices{{"bias$"}, {"^transformer\\.h\\.1\\."}, {"ln_f"}, {"wte"}};
  int n = 0;
  for (const auto& trainable : choices) {
    for (const int stage : {2, 3}) {
      const Choice choice{.ranks = 1 + n % 3,
                          .stage = stage,
                          .accumulation = 4,
                          .mode = kModes[static_cast<std::size_t>(n % 3)],
                          .precision = n % 2 == 0 ? Precision::kBf16 : Precision::kFp32,
                          .tied = n % 4 < 2 || trainable.front() == "wte",
                          .trainable = trainable};
      ++n;
      SCOPED_TRACE(text_of(choice));
      const TinyResult depth_first = run_tiny(run_of(choice, MicroBatchOrder::kDepthFirst, all(Activation::kKeep)));
      EXPECT_EQ(difference(run_tiny(run_of(choice, MicroBatchOrder::kLayerByLayer, all(Activation::kKeep))), depth_first), "");
    }
  }
}

/// Counted where they are moved: four micro-batches fetch no more parameters than one.
TEST(LayerByLayer, GathersAsMuchAsOneMicroBatch) {
  for (const bool tied : {false, true}) {
    for (const int ranks : {2, 3}) {
      std::map<std::pair<MicroBatchOrder, int>, std::int64_t> bytes;
      for (const MicroBatchOrder order : {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer}) {
        for (const int accumulation : {1, 4}) {
          const TinyRun run =
              run_of({.ranks = ranks, .accumulation = accumulation, .tied = tied, .chunk_elements = 2560}, order, all(Activation::kKeep));
          comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
            TinyRank rank(run, world);
            rank.step(1);
            if (world.rank() == 0) bytes[{order, accumulation}] = rank.engine().traffic(schedule::Lane::kGatherComm).gathered_bytes;
          });
        }
      }
      SCOPED_TRACE(std::string(tied ? "tied" : "untied") + ", ranks " + std::to_string(ranks));
      const std::int64_t once = bytes.at({MicroBatchOrder::kDepthFirst, 1});
      EXPECT_GT(once, 0);
      EXPECT_EQ(bytes.at({MicroBatchOrder::kLayerByLayer, 1}), once);
      EXPECT_EQ(bytes.at({MicroBatchOrder::kLayerByLayer, 4}), once);
      EXPECT_GT(bytes.at({MicroBatchOrder::kDepthFirst, 4}), 3 * once);
    }
  }
}

TEST(SavedTensors, GiveTheSameBitsWhereverTheyStand) {
  int n = 0;
  for_each_choice(0, [&](const Choice& choice) {
    const TinyResult keep = run_tiny(run_of(choice, MicroBatchOrder::kDepthFirst, all(Activation::kKeep)));
    const MicroBatchOrder order = choice.stage >= 2 && n % 3 != 0 ? MicroBatchOrder::kLayerByLayer : MicroBatchOrder::kDepthFirst;
    for (const Activation activation : {Activation::kRecompute, Activation::kHost, Activation::kDisk}) {
      SCOPED_TRACE(name_of(activation));
      EXPECT_EQ(difference(run_tiny(run_of(choice, order, all(activation))), keep), "");
    }
    SCOPED_TRACE("mixed from " + std::to_string(n % 4));
    EXPECT_EQ(difference(run_tiny(run_of(choice, order, mixed_activations(tiny_model().layers, n % 4))), keep), "");
    ++n;
  });
}

/// Beside chunks that stand everywhere, which use the same lanes.
TEST(SavedTensors, GiveTheSameBitsBesideOffloadedChunks) {
  int n = 0;
  for (const int ranks : {1, 3}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const Choice choice{.ranks = ranks,
                          .stage = stage,
                          .mode = kModes[static_cast<std::size_t>(n % 3)],
                          .precision = n % 2 == 0 ? Precision::kBf16 : Precision::kFp32,
                          .prefetch = n % 3};
      SCOPED_TRACE(text_of(choice));
      const TinyResult keep = run_tiny(run_of(choice, MicroBatchOrder::kDepthFirst, all(Activation::kKeep)));
      const MicroBatchOrder order = stage >= 2 ? MicroBatchOrder::kLayerByLayer : MicroBatchOrder::kDepthFirst;
      TinyRun run = run_of(choice, order, mixed_activations(tiny_model().layers, n % 4));
      std::vector<spec::ChunkHomes> homes = homes_of_stage(stage, choice.mode);
      homes.emplace_back();  // some stay
      run.plan = with_homes(run.model, run.training, run.plan, homes);
      EXPECT_EQ(difference(run_tiny(run), keep), "");
      ++n;
      if (HasFailure()) return;
    }
  }
}

/// A device that runs ready work at random, and dead buffers full of NaN.
TEST(SavedTensors, GiveTheSameBitsInAnyOrderOfLanes) {
  std::uint64_t seed = 300;
  for (const int stage : {0, 1, 2, 3}) {
    for (const MicroBatchOrder order : {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer}) {
      if (order == MicroBatchOrder::kLayerByLayer && stage < 2) continue;
      for (int first = 0; first < 2; ++first) {
        const Choice choice{.ranks = 2,
                            .stage = stage,
                            .accumulation = 2,
                            .mode = kModes[seed % 3],
                            .precision = seed % 2 == 0 ? Precision::kFp32 : Precision::kBf16,
                            .prefetch = static_cast<int>(seed % 3)};
        SCOPED_TRACE(text_of(choice) + ", seed " + std::to_string(seed));
        TinyRun run = run_of(choice, order, mixed_activations(tiny_model().layers, 2 * first));
        const TinyResult keep = run_tiny(run_of(choice, MicroBatchOrder::kDepthFirst, all(Activation::kKeep)));
        run.poison = true;
        EXPECT_EQ(difference(run_tiny(run), keep), "") << "on the cpu device";
        run.lag_seed = seed;
        run.threading = schedule::Threading::kPerLane;
        run.make_device = [seed](int rank) {
          return std::make_unique<RandomDevice>(RandomDeviceOptions{.seed = seed * 10 + static_cast<std::uint64_t>(rank)});
        };
        EXPECT_EQ(difference(run_tiny(run), keep), "") << "on a random one";
        ++seed;
        if (HasFailure()) return;
      }
    }
  }
}

/// Whatever is on its way when a step is cancelled: the state is that of the step before, and the next step is as it would have been.
TEST(SavedTensors, OfACancelledStepLeaveNoTrace) {
  for (const UpdateMode mode : kModes) {
    Choice choice{.ranks = 2, .accumulation = 3, .mode = mode};
    TinyRun run = run_of(choice, MicroBatchOrder::kLayerByLayer, mixed_activations(tiny_model().layers, 2));
    run.segments_between_agrees = 4;
    run.poison = true;
    const std::string what = std::string(name_of(mode));
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      device::flush_denormals_on_this_thread();
      TinyRank rank(run, world), undisturbed(run, world);
      std::vector<bool> can_cancel;  // by question: agrees in order
      for (const schedule::Task& task : rank.engine().graph(schedule::GraphKind::kStep).tasks) {
        if (task.kind == schedule::TaskKind::kAgree) can_cancel.push_back(task.can_cancel);
      }
      int step = 1, cancelled = 0;
      for (int question = 0; question < static_cast<int>(can_cancel.size()); ++question) {
        if (!can_cancel[static_cast<std::size_t>(question)]) continue;
        SCOPED_TRACE(what + ", question " + std::to_string(question));
        rank.step(step);
        undisturbed.step(step++);
        int asked = 0;
        EXPECT_TRUE(rank.step(step, [&] { return asked++ == question && world.rank() == 1; }).cancelled);
        EXPECT_TRUE(rank.state() == undisturbed.state());
        ++cancelled;
      }
      EXPECT_GT(cancelled, 2) << what;
    });
  }
}

TEST(SavedTensors, TakeTheArenasOfTheirTier) {
  const auto arenas = [](Activation activation) {
    std::array<std::int64_t, spec::kTierCount> bytes{};
    const TinyRun run = run_of({.stage = 0}, MicroBatchOrder::kDepthFirst, all(activation));
    comm::run_local_ranks(1, [&](comm::Communicator& world) { bytes = TinyRank(run, world).engine().arena_bytes(); });
    return bytes;
  };
  const auto keep = arenas(Activation::kKeep), host = arenas(Activation::kHost), disk = arenas(Activation::kDisk);
  EXPECT_LT(host[0], keep[0]);
  EXPECT_LE(disk[0], host[0]);
  EXPECT_GT(host[1], keep[1]);
  EXPECT_LT(disk[1], host[1]);
  EXPECT_EQ(host[2], 0);
  EXPECT_GT(disk[2], 0);
}

}  // namespace
}  // namespace sluice::testing
