// The whole program against PyTorch and transformers: it starts from the committed weights and tokens (tests/golden/make_models.py), and
// twenty steps of AdamW with accumulation, clipping and a cosine schedule give the committed losses.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "support/llmc_bytes.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using nlohmann::json;

struct Case {
  const char* fixture;
  int ranks;
  int zero_stage;
};

class Parity : public ::testing::TestWithParam<Case> {};

TEST_P(Parity, TwentyStepsHaveTheLossesOfTransformers) {
  const Case chosen = GetParam();
  const RunArea area;
  const std::string folder = std::string(SLUICE_SOURCE_DIR) + "/tests/golden/" + chosen.fixture;
  const json expected = json::parse(read_all(folder + "/expected.json"));
  const json config = json::parse(read_all(folder + "/config.json"));

  const std::string raw = read_all(folder + "/tokens.bin");
  std::vector<std::int32_t> tokens(raw.size() / 4);
  std::memcpy(tokens.data(), raw.data(), raw.size());
  const std::string data = area.write("tokens.bin", llmc_bytes({tokens.begin(), tokens.end()}));

  // Rows 0 and 1 of a step are its first micro-batch on one rank, rows 2 and 3 the second; two ranks share them.
  const json &optimizer = expected.at("optimizer"), &schedule = expected.at("schedule");
  const int micro = expected.at("micro_batch"), accumulation = expected.at("accumulation");
  const json run = {{"train_batch_size", micro * accumulation},
                    {"gradient_clipping", optimizer.at("gradient_clipping")},
                    {"optimizer",
                     {{"type", "AdamW"},
                      {"params",
                       {{"lr", schedule.at("peak")},
                        {"betas", {optimizer.at("beta1"), optimizer.at("beta2")}},
                        {"eps", optimizer.at("eps")},
                        {"weight_decay", optimizer.at("weight_decay")}}}}},
                    {"sluice",
                     {{"model", {{"path", folder}}},
                      {"data", {{"train", {data}}, {"order", "sequential"}}},
                      {"weight_decay_on", optimizer.at("decay_on")},
                      {"schedule", {{"kind", schedule.at("kind")}, {"warmup_steps", schedule.at("warmup_steps")}}},
                      {"sequence_length", expected.at("sequence")},
                      {"steps", schedule.at("total_steps")},
                      {"threads", 1},
                      {"checkpoint", {{"interval", 0}}}}}};
  const std::string file = area.write("parity.json", run.dump());
  const std::string plan = area.plan({.ranks = chosen.ranks,
                                      .zero_stage = chosen.zero_stage,
                                      .micro_batch = micro / chosen.ranks,
                                      .accumulation = accumulation,
                                      .rcache_elements = chosen.zero_stage == 3 ? 65536 : 0,
                                      .layers = config.value(config.at("model_type") == "gpt2" ? "n_layer" : "num_hidden_layers", 0)});
  const ProgramOutcome outcome = run_program(area.launch(chosen.ranks, {"train", file, "--output", area / "run", "--plan", plan}));
  ASSERT_TRUE(ended_with(outcome, 0));

  ASSERT_TRUE(has_each_step_once(area / "run", 20));
  const Records records = read_records(area / "run");
  for (std::size_t i = 0; i < 20; ++i) {
    const json& step = expected.at("steps").at(i);
    const double loss = step.at("loss"), norm = step.at("grad_norm");
    EXPECT_NEAR(records.steps[i].loss_value(), loss, 1e-5 * loss) << "step " << i + 1;
    EXPECT_NEAR(std::stod(records.steps[i].grad_norm), norm, 1e-3 * norm) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Parity,
                         ::testing::Values(Case{"gpt2_tiny", 1, 0}, Case{"gpt2_tiny", 2, 1}, Case{"gpt2_tiny", 2, 3},
                                           Case{"gpt2_odd", 2, 2}, Case{"gpt2_untied", 1, 0}, Case{"opt_tiny", 2, 1},
                                           Case{"llama_tiny", 2, 3}, Case{"llama_smol", 2, 2}, Case{"mistral_tiny", 1, 0},
                                           Case{"mistral_sliding", 2, 1}, Case{"qwen2_tiny", 2, 3}, Case{"qwen3_tiny", 2, 1}),
                         [](const auto& each) {
                           return std::string(each.param.fixture) + "_ranks" + std::to_string(each.param.ranks) + "_zero" +
                                  std::to_string(each.param.zero_stage);
                         });

}  // namespace
}  // namespace sluice::testing
