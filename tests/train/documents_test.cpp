// Rows of several documents: what the layout of ranks and memory must not change holds for them as for whole rows.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::UpdateMode;

TinyRun run_of(int ranks, int zero_stage, UpdateMode mode, bool recompute, std::int64_t chunk_elements, spec::Precision precision) {
  TinyRun run;
  run.steps = 2;
  run.ranks = ranks;
  run.training.document_attention = true;
  run.training.precision = precision;
  run.plan = tiny_plan(ranks, zero_stage, 2, mode, recompute, chunk_elements);
  return run;
}

TEST(DocumentAttention, EveryStrategyTrainsTheSame) {
  for (const spec::Precision precision : {spec::Precision::kFp32, spec::Precision::kBf16}) {
    const double tolerance = precision == spec::Precision::kFp32 ? 1e-5 : 1e-3;
    std::map<std::string, TinyResult> of_signature;
    TinyResult first;
    for (const int ranks : {1, 2, 3}) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (const bool recompute : {false, true}) {
          const UpdateMode mode = (stage + recompute) % 2 == 0 ? UpdateMode::kAtEnd : UpdateMode::kNextForward;
          const TinyResult result = run_tiny(run_of(ranks, stage, mode, recompute, stage % 2 == 0 ? 1024 : 20480, precision));
          SCOPED_TRACE(::testing::Message() << name_of(precision) << ", " << ranks << " ranks, zero_stage " << stage << ", recompute "
                                            << recompute);
          if (first.losses.empty()) first = result;
          for (std::size_t i = 0; i < result.losses.size(); ++i)
            ASSERT_NEAR(result.losses[i], first.losses[i], tolerance * first.losses[i]) << "step " << i + 1;
          const std::string signature = std::to_string(ranks) + (stage >= 2 ? "/micro" : "/step");
          ASSERT_EQ(difference(of_signature.try_emplace(signature, result).first->second, result), "");
        }
      }
    }
  }
}

TEST(DocumentAttention, ChangesWhatIsSeenAndCounted) {
  TinyRun apart = run_of(1, 0, UpdateMode::kAtEnd, false, 4096, spec::Precision::kFp32), joined = apart;
  joined.training.document_attention = false;
  const TinyResult a = run_tiny(apart), b = run_tiny(joined);
  EXPECT_GT(std::abs(a.losses[0] - b.losses[0]), 1e-3);
  EXPECT_GT(std::abs(a.evaluation - b.evaluation), 1e-3);
}

}  // namespace
}  // namespace sluice::testing
