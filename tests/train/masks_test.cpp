// Tokens without loss, from whole rows to whole micro-batches: the step is that of the tokens that count, wherever they lie.

#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::UpdateMode;

/// From rows where everything counts to rows where nothing does, so that ranks and micro-batches hold very different numbers.
bool uneven(std::int64_t sample, std::int64_t t) {
  return t >= sample % 12 * 3 / 2;
}

TinyRun run_of(int ranks, int zero_stage, std::int64_t accumulation, UpdateMode mode) {
  TinyRun run;
  run.ranks = ranks;
  run.counts = uneven;
  run.plan = tiny_plan(ranks, zero_stage, accumulation, mode, false, 4096);
  return run;
}

TEST(Masks, UnevenTokensGiveTheGradientOfOneRank) {
  const TinyRun whole = run_of(1, 0, 1, UpdateMode::kAtEnd);
  const TinyResult expected = run_tiny(whole);
  for (const auto& [ranks, accumulation] : {std::pair{1, 4}, {2, 3}, {3, 4}, {4, 1}}) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, accumulation " << accumulation << ", zero_stage " << stage);
      const TinyResult result = run_tiny(run_of(ranks, stage, accumulation, UpdateMode::kNextForward));
      for (std::size_t i = 0; i < expected.losses.size(); ++i) {
        EXPECT_NEAR(result.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << "step " << i + 1;
        EXPECT_NEAR(result.grad_norms[i], expected.grad_norms[i], 1e-4 * expected.grad_norms[i]) << "step " << i + 1;
      }
    }
  }
  // Weighting rows or micro-batches equally would not have gone unnoticed.
  TinyRun even = whole;
  even.counts = [](std::int64_t, std::int64_t) { return true; };
  EXPECT_GT(std::abs(run_tiny(even).grad_norms[0] - expected.grad_norms[0]), 1e-3 * expected.grad_norms[0]);
}

TEST(Masks, AMicroBatchWithoutATokenThatCountsContributesNothing) {
  for (const int ranks : {1, 2}) {
    for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kInBackward}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, update " << name_of(mode));
      TinyRun masked = run_of(ranks, 1, 2, mode);
      masked.steps = 1;
      masked.counts = [](std::int64_t sample, std::int64_t t) { return sample < 6 && uneven(sample, t); };  // the second one is empty
      TinyRun half = masked;
      half.training.batch.global_batch = 6;
      half.plan.accumulation = 1;
      if (mode == UpdateMode::kInBackward) masked.training.optimizer.gradient_clipping = half.training.optimizer.gradient_clipping = 0;
      EXPECT_EQ(difference(run_tiny(masked), run_tiny(half)), "") << "to the bit";
    }
  }
}

}  // namespace
}  // namespace sluice::testing
