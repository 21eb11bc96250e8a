// Frozen parameters: they stay as they are, cost no gradient and no optimizer state, and the others train as they would beside them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "support/graph_inputs.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using schedule::BufferTag;
using schedule::GraphKind;
using schedule::TaskKind;
using spec::UpdateMode;

const std::vector<std::vector<std::string>> kChoices{
    {"bias$"},                        // vectors everywhere
    {"^transformer\\.h\\.1\\."},      // a layer in the middle
    {"ln_f"},                         // of the head only
    {"wte"},                          // the tied table: first and last segment
    {"h\\.2\\.mlp", "h\\.1\\.ln_2"},  // two places
};

std::string text_of(const std::vector<std::string>& expressions) {
  std::string text;
  for (const std::string& each : expressions) text += each + " ";
  return text;
}

/// Values of one plane of every parameter of a state, f32.
std::map<std::pair<int, int>, std::vector<float>> parts_of(const std::string& state, const model::Model& model,
                                                           const optim::Grouping& grouping) {
  std::map<std::pair<int, int>, std::vector<float>> parts;
  std::size_t at = 0;
  for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
    const auto elements = static_cast<std::size_t>(model.params[static_cast<std::size_t>(p)].elements());
    for (int plane = 0; plane < (grouping.trains(p) ? 3 : 1); ++plane) {
      auto& values = parts[{p, plane}];
      values.resize(elements);
      std::memcpy(values.data(), state.data() + at, elements * sizeof(float));
      at += elements * sizeof(float);
    }
  }
  EXPECT_EQ(at, state.size());
  return parts;
}

TinyRun run_of(int ranks, int stage, std::int64_t accumulation, UpdateMode mode, bool recompute,
               const std::vector<std::string>& trainable) {
  TinyRun run;
  run.ranks = ranks;
  run.plan = tiny_plan(ranks, stage, accumulation, mode, recompute, stage % 2 == 0 ? 20480 : 2048);
  run.training.trainable = trainable;
  // The plan's rCache was made for chunks that hold trained and frozen parameters alike.
  run.plan.rcache_elements = std::int64_t{1} << 20;
  return run;
}

TEST(Frozen, TheOthersTrainAsTheyWouldBesideTrainedOnes) {
  int n = 0;
  for (const spec::Precision precision : {spec::Precision::kFp32, spec::Precision::kBf16}) {
    for (const std::vector<std::string>& trainable : kChoices) {
      for (const int stage : {0, 1, 2, 3}) {
        constexpr std::array<UpdateMode, 3> kModes{UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward};
        const UpdateMode mode = kModes[static_cast<std::size_t>(n % 3)];
        const int ranks = 1 + n % 3, accumulation = 1 + n / 2 % 2;
        const bool recompute = n % 2 == 1;
        ++n;
        SCOPED_TRACE(text_of(trainable) + ", zero_stage " + std::to_string(stage) + ", " + std::string(name_of(mode)) + ", ranks " +
                     std::to_string(ranks) + ", " + std::string(name_of(precision)));
        TinyRun run = run_of(ranks, stage, accumulation, mode, recompute, trainable);
        run.steps = 1;
        run.training.precision = precision;
        run.training.optimizer.gradient_clipping = 0;  // else the others' gradients would count
        TinyRun all = run;
        all.training.trainable = {};
        TinyRun none = all;
        none.steps = 0;
        const TinyResult frozen = run_tiny(run), trained = run_tiny(all), start = run_tiny(none);
        EXPECT_EQ(frozen.losses, trained.losses);
        const GraphInputs inputs(run.model, run.training, run.plan), whole(all.model, all.training, all.plan);
        const auto now = parts_of(frozen.state, inputs.model(), inputs.grouping()),
                   expected = parts_of(trained.state, whole.model(), whole.grouping()),
                   before = parts_of(start.state, whole.model(), whole.grouping());
        int kept = 0, moved = 0;
        for (const auto& [key, values] : now) {
          const bool trains = inputs.grouping().trains(key.first);
          const std::string& name = inputs.model().params[static_cast<std::size_t>(key.first)].name;
          if (trains) {
            EXPECT_EQ(values, expected.at(key)) << name << ", plane " << key.second;
            moved += values != before.at(key) ? 1 : 0;
          } else if (precision == spec::Precision::kFp32) {
            EXPECT_EQ(values, before.at(key)) << name;
            ++kept;
          } else {  // saved as it is stored
            for (std::size_t i = 0; i < values.size(); ++i)
              ASSERT_NEAR(values[i], before.at(key)[i], std::abs(before.at(key)[i]) * 0x1p-8) << name;
            ++kept;
          }
        }
        EXPECT_GT(kept, 0);
        EXPECT_GT(moved, 0);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Frozen, EveryStrategyGivesTheSameBits) {
  for (const std::vector<std::string>& trainable : kChoices) {
    std::map<std::string, TinyResult> of_signature;
    int n = 0;
    for (const int ranks : {1, 3}) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
          SCOPED_TRACE(text_of(trainable) + ", ranks " + std::to_string(ranks) + ", zero_stage " + std::to_string(stage) + ", " +
                       std::string(name_of(mode)));
          TinyRun run = run_of(ranks, stage, 2, mode, n++ % 2 == 0, trainable);
          run.steps = 3;
          run.poison = n % 3 == 0;
          const std::string signature = std::to_string(ranks) + (stage >= 2 ? "/micro" : "/step");
          const TinyResult result = run_tiny(run);
          EXPECT_EQ(difference(of_signature.try_emplace(signature, result).first->second, result), "");
          EXPECT_LT(result.losses.back(), result.losses.front());
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Frozen, CostNoGradientNoStateAndNoBackward) {
  for (const spec::Precision precision : {spec::Precision::kFp32, spec::Precision::kBf16}) {
    for (const std::vector<std::string>& trainable : kChoices) {
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(text_of(trainable) + ", zero_stage " + std::to_string(stage) + ", " + std::string(name_of(precision)));
        TinyRun run = run_of(2, stage, 2, UpdateMode::kAtEnd, true, trainable);
        run.training.precision = precision;
        const GraphInputs inputs(run.model, run.training, run.plan);
        const optim::Grouping& grouping = inputs.grouping();
        std::int64_t trained = 0, all = 0;  // elements of what one rank holds of a plane that is sharded or not
        for (const chunks::Chunk& chunk : inputs.layout().chunks()) {
          bool is_trained = false;
          for (const chunks::Slot& slot : chunk.slots) {
            EXPECT_TRUE(&slot == chunk.slots.data() || grouping.trains(slot.param) == is_trained) << "a chunk of both kinds";
            is_trained = grouping.trains(slot.param);
          }
          const std::int64_t held = stage >= 1 ? chunks::largest_shard(chunk.elements, 2) : chunk.elements;
          all += chunk.elements;
          trained += is_trained ? held : 0;
        }
        const schedule::StepGraph graph = inputs.build(GraphKind::kStep);
        std::map<BufferTag, std::int64_t> bytes;
        for (const schedule::Buffer& buffer : graph.buffers) bytes[buffer.tag] += buffer.persistent ? buffer.bytes : 0;
        EXPECT_EQ(bytes[BufferTag::kMoments], 2 * 4 * trained);
        EXPECT_EQ(bytes[BufferTag::kMaster], precision == spec::Precision::kFp32 ? 0 : 4 * trained);
        if (stage < 3) {
          EXPECT_EQ(bytes[BufferTag::kWorking], all * (precision == spec::Precision::kFp32 ? 4 : 2));
        }

        std::size_t first = 0;
        while (std::none_of(inputs.model().segments[first]->params().begin(), inputs.model().segments[first]->params().end(),
                            [&](int param) { return grouping.trains(param); }))
          ++first;
        std::size_t updates = 0, backwards = 0;
        for (const schedule::Task& task : graph.tasks) {
          const bool has_chunk = task.kind == TaskKind::kUpdate || task.kind == TaskKind::kScatter || task.kind == TaskKind::kNorm;
          if (has_chunk && task.chunk >= 0) {
            EXPECT_TRUE(inputs.layout().trains(inputs.layout().chunks()[static_cast<std::size_t>(task.chunk)]));
            updates += task.kind == TaskKind::kUpdate ? 1 : 0;
          }
          if (task.kind != TaskKind::kCompute || task.phase == model::Phase::kForward) continue;
          EXPECT_GE(task.segment, static_cast<std::int32_t>(first)) << "nothing before it wants a gradient";
          backwards += task.phase == model::Phase::kBackward ? 1 : 0;
        }
        EXPECT_EQ(backwards, 2 * (inputs.model().segments.size() - 1 - first));
        EXPECT_GT(updates, 0U);
      }
    }
  }
}

/// A stop at any agree of a step leaves the state of the step before, also where the backward stops early.
TEST(Frozen, ACancelledStepLeavesNoTrace) {
  TinyRun run = run_of(2, 2, 2, UpdateMode::kAtEnd, false, {"h\\.2\\."});
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();
    TinyRank rank(run, world);
    rank.step(1);
    for (int question = 0; question < 3; ++question) {
      const std::string before = rank.state();
      int asked = 0;
      const schedule::RunResult result = rank.step(2, [&] { return asked++ == question && world.rank() == 1; });
      EXPECT_TRUE(result.cancelled) << question;
      EXPECT_TRUE(rank.state() == before) << question;
    }
    EXPECT_FALSE(rank.step(2).cancelled);
  });
}

}  // namespace
}  // namespace sluice::testing
