// Runs of the real program with 16-bit storage or frozen parameters: what they report, and that a killed one goes on to the same
// bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kSteps = 40;

class PrecisionRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { area_ = new RunArea; }
  static void TearDownTestSuite() { delete area_; }
  static std::string run(const std::string& name) { return *area_ / name; }

  /// Two ranks; bf16 shards its optimizer state, fp16 gradients and parameters as well.
  static ProgramCommand command(const std::string& name, const std::string& precision, std::vector<std::string> more = {}) {
    const PlanChoice choice = precision == "bf16" ? PlanChoice{} : PlanChoice{.zero_stage = 3, .rcache_elements = 1 << 20};
    std::vector<std::string> words{"--steps", std::to_string(kSteps), "--plan", area_->plan(choice), "--set", precision + ".enabled=true"};
    words.insert(words.end(), more.begin(), more.end());
    return area_->train(2, name, words);
  }

  static std::vector<json> metrics(const std::string& name) {
    std::vector<json> lines;
    std::ifstream file(run(name) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }

  static RunArea* area_;
};
RunArea* PrecisionRun::area_ = nullptr;

TEST_F(PrecisionRun, AKilledRunGoesOnToTheSameBits) {
  for (const std::string precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    // A scale that is too large at first, so that the state of the scaler counts.
    const std::vector<std::string> more = precision == "fp16" ? std::vector<std::string>{"--set", "fp16.initial_scale_power=26",
                                                                                         "--set", "fp16.loss_scale_window=5",
                                                                                         "--set", "fp16.hysteresis=2"}
                                                              : std::vector<std::string>{};
    const ProgramOutcome whole = run_program(command("whole-" + precision, precision, more));
    ASSERT_TRUE(ended_with(whole, 0));
    EXPECT_THAT(whole.all(), HasSubstr(precision == "bf16" ? ", bf16, " : ", f16, ")) << "the arithmetic signature";
    for (const std::int64_t step : {3, 17}) {
      Program program(command("killed-" + precision, precision, more));
      ASSERT_TRUE(program.wait_until([&] { return last_step(run("killed-" + precision)) >= step; })) << program.wait().all();
      program.kill_all();
    }
    ASSERT_TRUE(ended_with(run_program(command("killed-" + precision, precision, more)), 0));
    EXPECT_TRUE(has_each_step_once(run("killed-" + precision), kSteps));
    EXPECT_TRUE(same_bits(run("killed-" + precision), run("whole-" + precision)));
    const std::vector<json> expected = metrics("whole-" + precision), found = metrics("killed-" + precision);
    ASSERT_EQ(found.size(), expected.size());
    int skipped = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i].at("kind") != "train") continue;
      EXPECT_EQ(found[i].at("skipped"), expected[i].at("skipped")) << i;
      EXPECT_EQ(found[i].at("lr"), expected[i].at("lr")) << i;
      skipped += found[i].at("skipped").get<bool>() ? 1 : 0;
    }
    EXPECT_EQ(skipped > 0, precision == "fp16");
    const std::string last = run("killed-" + precision) + "/checkpoints/" + checkpoint_names(run("killed-" + precision)).back();
    const json manifest = json::parse(std::ifstream(last + "/manifest.json"));
    EXPECT_EQ(manifest.at("progress").at("adam_count"), kSteps - skipped);
    EXPECT_EQ(manifest.at("progress").contains("loss_scale"), precision == "fp16");
    EXPECT_EQ(manifest.at("signature").at("dtypes"), precision == "bf16" ? "bf16" : "f16");
    for (const json& param : manifest.at("parameters")) EXPECT_EQ(param.at("dtype"), "f32") << "the master is what is kept";
    ASSERT_TRUE(ended_with(run_program(area_->sluice({"checkpoint", "verify", run("killed-" + precision)})), 0));
  }
}

TEST_F(PrecisionRun, FrozenParametersAreTrainedByNobody) {
  const std::vector<std::string> frozen{"--trainable", "^transformer\\.h\\.1\\.", "--trainable", "ln_f"};
  const ProgramOutcome whole = run_program(command("frozen", "bf16", frozen));
  ASSERT_TRUE(ended_with(whole, 0));
  const json manifest =
      json::parse(std::ifstream(run("frozen") + "/checkpoints/" + checkpoint_names(run("frozen")).back() + "/manifest.json"));
  std::map<std::string, std::int64_t> elements;
  for (const json& shard : manifest.at("shards")) {
    for (const json& plane : shard.at("planes")) elements[plane.at("name").get<std::string>()] += plane.at("elements").get<std::int64_t>();
  }
  // Vocabulary 257, 64 positions, width 32, two layers: what a layer and the last norm have.
  const std::int64_t layer = 12 * 32 * 32 + 13 * 32, trained = layer + 2 * 32;
  EXPECT_EQ(elements["working"], (257 + 64) * 32 + 2 * layer + 2 * 32);
  EXPECT_EQ(elements["exp_avg"], trained);
  EXPECT_EQ(elements["exp_avg_sq"], trained);
  const Records records = read_records(run("frozen"));
  EXPECT_LT(records.steps.back().loss_value(), records.steps.front().loss_value());
  // Another set under the same directory would be another run.
  EXPECT_TRUE(refused_with(run_program(command("frozen", "bf16", {"--trainable", "ln_f"})), 2, {"trainable"}));
  EXPECT_TRUE(refused_with(run_program(command("nothing", "bf16", {"--trainable", "layers\\.7"})), 2,
                           {"sluice.trainable", "layers\\.7", "finds none of the 28 parameters", "wte.weight"}));
}

TEST_F(PrecisionRun, AnOverflowAtTheSmallestLossScaleEndsWith5) {
  const ProgramOutcome outcome = run_program(
      command("overflows", "fp16",
              {"--set", "fp16.initial_scale_power=40", "--set", "fp16.min_loss_scale=549755813888", "--set", "fp16.hysteresis=1"}));
  ASSERT_TRUE(ended_with(outcome, 5));
  EXPECT_THAT(outcome.all(), HasSubstr("step 2: gradients overflow in fp16 at the smallest loss scale, 5.49756e+11;"));
  EXPECT_THAT(outcome.all(), HasSubstr("step 1 changes nothing: gradients overflow in fp16; loss scale"));
  const RunStatus status = read_run_status(run("overflows"));
  EXPECT_EQ(status.exit_code, 5);
  EXPECT_FALSE(status.retriable);
}

}  // namespace
}  // namespace sluice::testing
