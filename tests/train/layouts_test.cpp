// The layouts matrix: the same training under every strategy gives the same losses, and the same bits wherever the arithmetic
// signature is equal (design section 6).

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::UpdateMode;

void expect_same_bits(const TinyResult& a, const TinyResult& b, const std::string& what) {
  ASSERT_EQ(a.losses, b.losses) << what;
  ASSERT_EQ(a.grad_norms, b.grad_norms) << what;
  ASSERT_EQ(a.evaluation, b.evaluation) << what;
  ASSERT_TRUE(a.state == b.state) << what << ": parameters or moments differ in bits";
}

void expect_close(const TinyResult& a, const TinyResult& b, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    ASSERT_NEAR(a.losses[i], b.losses[i], 1e-5 * std::abs(a.losses[i])) << what << ", step " << i + 1;
    ASSERT_NEAR(a.grad_norms[i], b.grad_norms[i], 1e-4 * std::abs(a.grad_norms[i])) << what << ", step " << i + 1;
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

TEST(Layouts, EveryStrategyTrainsTheSame) {
  std::map<std::string, TinyResult> of_signature;
  TinyResult first;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int accumulation : {1, 3}) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
          for (const bool recompute : {false, true}) {
            for (const std::int64_t chunk : {1024, 20480}) {
              if (12 % (ranks * accumulation) != 0) continue;
              TinyRun run;
              run.ranks = ranks;
              run.plan = tiny_plan(ranks, stage, accumulation, mode, recompute, chunk);
              const std::string what = "ranks " + std::to_string(ranks) + ", accumulation " + std::to_string(accumulation) + ", zero_stage " + std::to_string(stage) + ", update " +
                                       std::string(name_of(mode)) + (recompute ? ", recompute" : ", keep") + ", chunk " + std::to_string(chunk);
              SCOPED_TRACE(what);
              const TinyResult result = run_tiny(run);
              if (first.losses.empty()) first = result;
              expect_close(first, result, what);
              const std::string signature = std::to_string(ranks) + "/" + std::to_string(accumulation) + "/" + (stage >= 2 ? "micro" : "step");
              const auto [at, is_new] = of_signature.emplace(signature, result);
              if (!is_new) expect_same_bits(at->second, result, what);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
