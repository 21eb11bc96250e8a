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
  EXPECT_THAT(text, HasSubstr(cat("of 1.46 GiB, and ", format_bytes(result.prediction.unplanned_bytes), " outside the arenas")));
  EXPECT_THAT(text, HasSubstr("moments "));
  EXPECT_THAT(text, HasSubstr("predicted: " + format_seconds(result.prediction.seconds) + " a step"));
  EXPECT_THAT(text, HasSubstr(cat("bound by ", schedule::name_of(result.prediction.bound))));
  EXPECT_THAT(text, HasSubstr("your file: does not fit, needs "));
  EXPECT_THAT(text, HasSubstr(format_bytes(result.hint->missing_bytes[0]) + " more than the 1.46 GiB given; chosen: "));
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
  const auto compared = [&] {
    result = search(request);
    return "your file: " + format_seconds(result.hint->seconds) + " a step; chosen: " + format_seconds(result.prediction.seconds);
  };
  std::string expected = compared();
  EXPECT_THAT(explain(request, result), HasSubstr(expected + "\n"));  // no pin keeps that
  request.hints.zero_stage = 3;
  expected = compared();
  EXPECT_THAT(explain(request, result), HasSubstr(expected + "; --pin zero_optimization keeps yours"));
  request.pins.zero_stage = 3;
  request.hints.host_activations = false;
  expected = compared();
  EXPECT_THAT(explain(request, result), HasSubstr(expected));
  EXPECT_THAT(explain(request, result), Not(HasSubstr("--pin zero_optimization")));
}

TEST_F(Explain, JsonHoldsAllOfItAndComesBack) {
  const std::string text = to_json(request, result, spec::to_json(signature()));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("prediction").at("seconds").get<double>(), result.prediction.seconds);
  EXPECT_EQ(json.at("prediction").at("tiers").at("device").at("arena_bytes").get<std::int64_t>(), result.prediction.arena_bytes[0]);
  ASSERT_EQ(json.at("refused").size(), result.refused.size());
  for (std::size_t i = 0; i < result.refused.size(); ++i) {
    const auto& missing = json.at("refused")[i].at("missing_bytes");
    const char* tiers[] = {"device", "host", "disk"};
    for (std::size_t t = 0; t < std::size(tiers); ++t)
      EXPECT_EQ(missing.value(tiers[t], std::int64_t{0}), result.refused[i].missing_bytes[t]) << tiers[t];
    EXPECT_EQ(missing.empty(), result.refused[i].seconds > 0) << "it fits, or something misses";
  }
  EXPECT_EQ(json.at("hint").at("fits").get<bool>(), false);
  EXPECT_EQ(json.at("search").at("considered").get<std::int64_t>(), result.considered);
  const PlanRecord record = plan_record_from_json(text, "plan.json");
  EXPECT_EQ(record.plan, result.plan);
  EXPECT_EQ(record.signature, signature());
  EXPECT_EQ(record.segments_between_agrees, result.segments_between_agrees);
  EXPECT_EQ(record.predicted_seconds, result.prediction.seconds);
  EXPECT_EQ(record.graph_hash, json.at("graph_hash").get<std::string>());
}

TEST_F(Explain, TellsWhatLeavesTheDeviceWhyAndWhatThatCosts) {
  request = test::tiered_request("gpt2-124m", 2, 8, 512, {900 * kMiB, kGiB, 40 * kGiB});
  result = search(request);
  ASSERT_TRUE(result.plan.uses_tier(spec::Tier::kDisk));
  const Prediction& p = result.prediction;
  const std::string text = explain(request, result);
  EXPECT_THAT(text, HasSubstr(cat("host memory per rank: ", format_bytes(p.arena_bytes[1]), ", a node ", format_bytes(2 * p.arena_bytes[1]),
                                  " of 1.00 GiB (")));
  EXPECT_THAT(text, HasSubstr(cat("disk per rank: ", format_bytes(p.arena_bytes[2]), ", a node ", format_bytes(2 * p.arena_bytes[2]),
                                  " of 40.0 GiB (moments ")));
  EXPECT_THAT(
      text,
      HasSubstr(cat("disk traffic per rank and step: ", format_bytes(p.disk_read_bytes), " read, ", format_bytes(p.disk_write_bytes),
                    " written; a node writes ",
                    format_bytes(static_cast<std::int64_t>(2.0 * 86400 * static_cast<double>(p.disk_write_bytes) / p.seconds)), " a day")));
  EXPECT_THAT(text, HasSubstr(cat("all of them need ", format_bytes(result.state_bytes), " a rank, the device has ",
                                  format_bytes(result.device_bytes_for_states), " left for them, host memory 512 MiB for everything")));
  const auto json = nlohmann::json::parse(to_json(request, result, spec::to_json(signature())));
  const auto& prediction = json.at("prediction");
  EXPECT_EQ(prediction.at("disk").at("read_bytes").get<std::int64_t>(), p.disk_read_bytes);
  EXPECT_EQ(prediction.at("tiers").at("disk").at("node_bytes").get<std::int64_t>(), 2 * p.arena_bytes[2]);
  std::int64_t chunks = 0;
  for (const auto& [tier, count] : json.at("moves").at("chunks").at("states").items()) chunks += count.get<std::int64_t>();
  EXPECT_EQ(chunks, static_cast<std::int64_t>(result.plan.homes.size()));
  EXPECT_EQ(json.at("budget").at("disk_bytes").get<std::int64_t>(), 40 * kGiB);
  const PlanRecord record = plan_record_from_json(json.dump(), "plan.json");
  EXPECT_EQ(record.plan, result.plan);
  EXPECT_EQ(record.disk_read_bytes, p.disk_read_bytes);
  EXPECT_EQ(record.disk_write_bytes, p.disk_write_bytes);
}

TEST(Describe, CountsHomesAndActivations) {
  spec::Plan plan;
  plan.zero_stage = 3;
  plan.chunk_elements = 1'000'192;
  plan.rcache_elements = 4'200'192;
  plan.micro_batch = 4;
  plan.accumulation = 8;
  plan.order = spec::MicroBatchOrder::kLayerByLayer;
  plan.activations.assign(26, spec::Activation::kKeep);
  plan.activations[3] = spec::Activation::kRecompute;
  plan.activations[4] = plan.activations[5] = spec::Activation::kHost;
  EXPECT_EQ(describe(plan),
            "zero 3, chunks of 1.00 M elements, rCache 4.20 M, prefetch 1, 8 micro-batches of 4 layer by layer, 1 of 24 half-layers "
            "recomputed, 2 saved on host, update at_end");
  plan.homes.assign(12, {spec::Tier::kDevice, spec::Tier::kHost, spec::Tier::kHost});
  plan.homes[11].states = plan.homes[10].states = spec::Tier::kDisk;
  EXPECT_THAT(describe(plan), HasSubstr("update at_end, of 12 chunks states 10 on host 2 on disk, gradients 12 on host"));
  plan.homes[11].gradient = spec::Tier::kDisk;
  EXPECT_THAT(describe(plan), HasSubstr("gradients 11 on host 1 on disk"));
}

TEST(PlanProblem, NamesTheRuleThatAPlanFromElsewhereBreaks) {
  PlanRequest request = test::tiered_request("gpt2-micro", 2, 8, 128, {kGiB, kGiB, kGiB});
  Workbench bench(request);
  spec::Plan good;
  good.zero_stage = 3;
  good.chunk_elements = 131'072;
  good.activations.assign(bench.model().segments.size(), spec::Activation::kKeep);
  good.mesh = request.mesh;
  good.homes.assign(bench.layout(good.chunk_elements).chunks().size(), {spec::Tier::kHost, spec::Tier::kHost, spec::Tier::kDisk});
  EXPECT_EQ(plan_problem(good, request), "");
  const auto refuse = [&](auto change, const std::vector<std::string>& pieces) {
    spec::Plan plan = good;
    change(plan);
    const std::string problem = plan_problem(plan, request);
    for (const std::string& piece : pieces) EXPECT_THAT(problem, HasSubstr(piece));
    EXPECT_NE(problem, "");
  };
  refuse([](spec::Plan& p) { p.homes.pop_back(); }, {"\"homes\" has ", "chunks of 131072 elements"});
  refuse([](spec::Plan& p) { p.activations.pop_back(); }, {"\"activations\" has "});
  refuse([](spec::Plan& p) { p.zero_stage = 2; }, {"chunk 0 has its working parameters on host", "zero_stage 3, not 2"});
  refuse(
      [](spec::Plan& p) {
        p.homes[1] = {spec::Tier::kHost, spec::Tier::kDisk, spec::Tier::kHost};
      },
      {"chunk 1 has its states on host", "faster tier"});
  refuse([](spec::Plan& p) { p.homes[1].states = spec::Tier::kDevice; }, {"chunk 1 has its states on device", "faster tier"});
  refuse(
      [](spec::Plan& p) {
        p.zero_stage = 1;
        p.homes.assign(p.homes.size(), {spec::Tier::kDevice, spec::Tier::kHost, spec::Tier::kHost});
      },
      {"gradient on host", "zero_stage 2 or 3, not 1"});
  refuse(
      [](spec::Plan& p) {
        p.zero_stage = 1;
        p.homes.clear();
        p.order = spec::MicroBatchOrder::kLayerByLayer;
      },
      {"layer_by_layer", "stage 2 or 3"});
  refuse([](spec::Plan& p) { p.update_mode = spec::UpdateMode::kInBackward; }, {"clip"});
  refuse([](spec::Plan& p) { p.state_prefetch = -1; }, {"state_prefetch"});
  refuse([](spec::Plan& p) { p.chunk_elements = 1000; }, {"chunk_elements"});
  good.homes[1].gradient = spec::Tier::kDisk;
  EXPECT_EQ(plan_problem(good, request), "");
  request.training.optimizer.gradient_clipping = 0;
  refuse([](spec::Plan& p) { p.update_mode = spec::UpdateMode::kInBackward; },
         {"chunk 1 has its gradient on disk", "updates in backward use it up"});
  request.budget.disk_bytes = 0;
  EXPECT_EQ(plan_problem(good, request), "") << "what it needs of a tier is the caller's to compare";
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
