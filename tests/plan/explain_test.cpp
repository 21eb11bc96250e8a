#include "plan/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/plan_requests.hpp"
#include "support/expect_error.hpp"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

spec::ArithmeticSignature signature() {
  return {.mesh = {.data = 2},
          .micro_batch = 4,
          .accumulation = 2,
          .reduce_point = "step",
          .dtypes = "f32",
          .isa = "avx2",
          .threads = 4,
          .libraries = "onednn 2.6.3"};
}

class Explain : public ::testing::Test {
 protected:
  Explain() : request(test::plan_request("gpt2-124m", 2, 16, 512, 1500 * kMiB)) {
    request.hints.zero_stage = 0;
    result = search(request);
  }
  PlanRequest request;
  PlanResult result;
};

TEST_F(Explain, TellsTheChoiceItsBytesItsTimeAndItsReasons) {
  const std::string text = explain(request, result);
  EXPECT_THAT(text, HasSubstr("plan for gpt2-124m on round\n"));
  EXPECT_THAT(text, HasSubstr(cat("2 ranks; zero_stage ", result.plan.zero_stage)));
  EXPECT_THAT(text, HasSubstr("of 1.46 GiB, and 20.0 MiB outside the plan"));
  EXPECT_THAT(text, HasSubstr("moments "));
  EXPECT_THAT(text, HasSubstr("predicted: " + format_seconds(result.prediction.seconds) + " a step"));
  EXPECT_THAT(text, HasSubstr(cat("bound by ", schedule::name_of(result.prediction.bound))));
  EXPECT_THAT(text, HasSubstr("your file: does not fit, " + format_bytes(result.hint->missing_bytes) + " more than"));
  for (const Refusal& refusal : result.refused) EXPECT_THAT(text, HasSubstr(refusal.reason));
  EXPECT_THAT(text, HasSubstr(cat(result.considered, " plans considered")));
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(Explain, TellsWhatIsStoredIn16Bits) {
  EXPECT_THAT(explain(request, result), ::testing::Not(HasSubstr("master")));
  request.training.precision = spec::Precision::kBf16;
  request.budget.device_bytes = 3 * kGiB;
  const std::string text = explain(request, search(request));
  EXPECT_THAT(text, HasSubstr("bf16: working parameters, activations and saved tensors in 2 bytes a number"));
  EXPECT_THAT(text, HasSubstr("master "));
  EXPECT_THAT(text, HasSubstr("master parameters, gradients and moments in f32"));
  request.training.optimizer.kind = spec::OptimizerKind::kSgd;
  const std::string plain = explain(request, search(request));
  EXPECT_THAT(plain, HasSubstr("master parameters and gradients in f32"));
  EXPECT_THAT(plain, ::testing::Not(HasSubstr("moments")));
}

TEST_F(Explain, TellsWhatIsFrozen) {
  EXPECT_THAT(explain(request, result), ::testing::Not(HasSubstr("frozen")));
  request.training.trainable = {"h\\.11\\."};
  EXPECT_THAT(explain(request, search(request)), HasSubstr("trains 7.09 M of 124 M parameters; the others are frozen"));
}

TEST_F(Explain, ComparesWithTheFileInSeconds) {
  request = test::plan_request("gpt2-124m", 2, 16, 512, 6 * kGiB);
  request.training.batch.micro_batch = 4;
  request.hints.recompute = true;
  result = search(request);
  EXPECT_THAT(explain(request, result), HasSubstr("your file: " + format_seconds(result.hint->seconds) + " a step; chosen: " +
                                                  format_seconds(result.prediction.seconds) + "; --pin zero_optimization keeps yours"));
}

TEST_F(Explain, JsonHoldsAllOfItAndComesBack) {
  const std::string text = to_json(request, result, spec::to_json(signature()));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("prediction").at("seconds").get<double>(), result.prediction.seconds);
  EXPECT_EQ(json.at("prediction").at("tiers").at("device").at("arena_bytes").get<std::int64_t>(), result.prediction.arena_bytes[0]);
  EXPECT_EQ(json.at("refused").size(), result.refused.size());
  EXPECT_EQ(json.at("hint").at("fits").get<bool>(), false);
  EXPECT_EQ(json.at("search").at("considered").get<std::int64_t>(), result.considered);
  const PlanRecord record = plan_record_from_json(text, "plan.json");
  EXPECT_EQ(record.plan, result.plan);
  EXPECT_EQ(record.signature, signature());
  EXPECT_EQ(record.segments_between_agrees, result.segments_between_agrees);
  EXPECT_EQ(record.predicted_seconds, result.prediction.seconds);
  EXPECT_EQ(record.graph_hash, json.at("graph_hash").get<std::string>());
}

TEST_F(Explain, DamagedRecordsAreRefusedByKey) {
  const std::string text = to_json(request, result, spec::to_json(signature()));
  using ::sluice::testing::expect_error;
  using ::sluice::testing::replaced;
  const auto refuse = [](const std::string& damaged, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { plan_record_from_json(damaged, "plan.json"); }, pieces);
  };
  refuse(text.substr(0, text.size() / 2), {"plan.json"});
  refuse(replaced(text, "\"graph_hash\"", "\"graph_hush\""), {"plan.json", "\"graph_hash\" is missing"});
  refuse(replaced(text, "\"segments_between_agrees\": ", "\"segments_between_agrees\": -"), {"segments_between_agrees"});
  refuse("[]", {"\"plan\" is missing"});
}

}  // namespace
}  // namespace sluice::plan
