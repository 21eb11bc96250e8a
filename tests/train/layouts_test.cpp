// The layouts matrix: the same training under every strategy gives the same losses, and the same bits wherever the arithmetic
// signature is equal (design section 6).

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::UpdateMode;

void expect_close(const TinyResult& a, const TinyResult& b, const std::string& what, double tolerance = 1e-5) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    ASSERT_NEAR(a.losses[i], b.losses[i], tolerance * std::abs(a.losses[i])) << what << ", step " << i + 1;
    ASSERT_NEAR(a.grad_norms[i], b.grad_norms[i], 10 * tolerance * std::abs(a.grad_norms[i])) << what << ", step " << i + 1;
  }
}

TEST(Layouts, LossFalls) {
  TinyRun run;
  run.steps = 12;
  run.plan = tiny_plan(1, 0, 1, UpdateMode::kAtEnd, false, 4096);
  const TinyResult result = run_tiny(run);
  EXPECT_LT(result.losses.back(), result.losses.front() - 0.3);
  EXPECT_LT(result.evaluation, result.losses.front() - 0.3);
}

/// Ten steps with dropout, losses within 1e-5. ranks x accumulation x ZeRO stage x update mode in full; keep or recompute and the chunk
/// size change along, so that each pair of values of two axes comes together somewhere.
TEST(Layouts, EveryStrategyTrainsTheSame) {
  constexpr std::array<UpdateMode, 3> kModes{UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward};
  std::map<std::string, TinyResult> of_signature;
  std::map<bool, TinyResult> first;           // by whether it clips
  std::set<std::array<int, 4>> combinations;  // stage, mode, recompute, chunk size
  int n = 0;
  for (const auto& [ranks, accumulation] : {std::pair{1, 1}, {1, 4}, {2, 1}, {2, 4}, {3, 1}, {3, 4}, {4, 1}, {4, 4}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int mode = 0; mode < 3; ++mode) {
        const int choice = (n / 12 + stage + mode) % 4;
        const bool recompute = choice % 2 == 1;
        const std::int64_t chunk = choice / 2 == 1 ? 1024 : 20480;
        combinations.insert({stage, mode, choice % 2, choice / 2});
        ++n;
        TinyRun run;
        run.steps = 10;
        run.ranks = ranks;
        run.training.batch.global_batch = 48;  // what 3 and 4 ranks of 4 micro-batches divide
        run.plan = tiny_plan(ranks, stage, accumulation, kModes[static_cast<std::size_t>(mode)], recompute, chunk);
        run.plan.micro_batch = run.training.batch.global_batch / (ranks * accumulation);
        const std::string what = "ranks " + std::to_string(ranks) + ", accumulation " + std::to_string(accumulation) + ", zero_stage " +
                                 std::to_string(stage) + ", update " + std::string(name_of(run.plan.update_mode)) +
                                 (recompute ? ", recompute" : ", keep") + ", chunk " + std::to_string(chunk);
        SCOPED_TRACE(what);
        const bool clips = run.plan.update_mode != UpdateMode::kInBackward;
        const std::string signature =
            std::to_string(ranks) + "/" + std::to_string(accumulation) + (stage >= 2 ? "/micro" : "/step") + (clips ? "/clipped" : "/free");
        if (!clips) run.training.optimizer.gradient_clipping = 0;
        if (!clips && !of_signature.contains(signature)) {  // what in_backward is held against
          TinyRun at_end = run;
          at_end.plan.update_mode = UpdateMode::kAtEnd;
          of_signature[signature] = run_tiny(at_end);
        }
        const TinyResult result = run_tiny(run);
        expect_close(first.try_emplace(clips, result).first->second, result, what);
        ASSERT_EQ(difference(of_signature.try_emplace(signature, result).first->second, result), "") << what;
        if (HasFatalFailure()) return;
      }
    }
  }
  for (int stage = 0; stage <= 3; ++stage) {
    for (int mode = 0; mode < 3; ++mode) {
      for (int choice = 0; choice < 4; ++choice)
        EXPECT_TRUE(combinations.contains({stage, mode, choice % 2, choice / 2})) << stage << " " << mode << " " << choice;
    }
  }
}

/// The same with 16-bit storage: equal bits wherever the signature is equal; elsewhere f32 sums in another order are rounded to
/// 8 or 11 bits, so losses agree to a thousandth.
TEST(Layouts, EveryStrategyTrainsTheSameIn16Bits) {
  constexpr std::array<UpdateMode, 3> kModes{UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward};
  for (const spec::Precision precision : {spec::Precision::kBf16, spec::Precision::kFp16}) {
    std::map<std::string, TinyResult> of_signature;
    std::map<bool, TinyResult> first;
    int n = 0;
    for (const auto& [ranks, accumulation] : {std::pair{1, 1}, {2, 3}, {3, 2}}) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (int mode = 0; mode < (precision == spec::Precision::kFp16 ? 2 : 3); ++mode) {
          const int choice = (n / 6 + stage + mode) % 4;
          ++n;
          TinyRun run;
          run.steps = 2;
          run.ranks = ranks;
          run.training.precision = precision;
          run.plan = tiny_plan(ranks, stage, accumulation, kModes[static_cast<std::size_t>(mode)], choice % 2 == 1,
                               choice / 2 == 1 ? 1024 : 20480);
          const bool clips = run.plan.update_mode != UpdateMode::kInBackward;
          if (!clips) run.training.optimizer.gradient_clipping = 0;
          const std::string signature = std::to_string(ranks) + (stage >= 2 ? "/micro" : "/step") + (clips ? "/clipped" : "/free");
          const std::string what = std::string(name_of(precision)) + ", " + signature + ", zero_stage " + std::to_string(stage) +
                                   ", update " + std::string(name_of(run.plan.update_mode)) + ", choice " + std::to_string(choice);
          SCOPED_TRACE(what);
          if (!clips && !of_signature.contains(signature)) {
            TinyRun at_end = run;
            at_end.plan.update_mode = UpdateMode::kAtEnd;
            of_signature[signature] = run_tiny(at_end);
          }
          const TinyResult result = run_tiny(run);
          expect_close(first.try_emplace(clips, result).first->second, result, what, 1e-3);
          ASSERT_EQ(difference(of_signature.try_emplace(signature, result).first->second, result), "") << what;
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
