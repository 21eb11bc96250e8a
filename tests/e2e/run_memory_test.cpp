// GPT-2 with 124 M parameters, ZeRO-3 on four ranks: what is planned is a quarter of the states and the cache of gathered chunks, and
// what the ranks come to occupy is what is planned and what they had before.

#include <gtest/gtest.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using nlohmann::json;

constexpr double kParameters = 124439808;  // of GPT-2 small with its tied head
constexpr int kRanks = 4;

TEST(RunMemory, Zero3OnFourRanksHoldsAQuarterEach) {
  const RunArea area;
  const std::string config = area.write("large.json", json{{"train_batch_size", 4},
                                                           {"train_micro_batch_size_per_gpu", 1},
                                                           {"gradient_clipping", 1.0},
                                                           {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}}}}},
                                                           {"zero_optimization", {{"stage", 3}}},
                                                           {"sluice",
                                                            {{"model", {{"preset", "gpt2-124m"}}},
                                                             {"data", {{"train", {area.text()}}}},
                                                             {"sequence_length", 64},
                                                             {"steps", 3},
                                                             {"threads", 1},
                                                             {"pin", {"zero_optimization"}},
                                                             {"checkpoint", {{"interval", 0}}}}}}
                                                          .dump());
  ProgramCommand command = area.launch(kRanks, {"train", config, "--output", area / "run"});
  command.limit_seconds = 1000;
  const ProgramOutcome outcome = run_program(command);
  ASSERT_TRUE(ended_with(outcome, 0));
  ASSERT_TRUE(has_each_step_once(area / "run", 3));

  std::ifstream file(area / "run/plan.json");
  const json plan = json::parse(file);
  ASSERT_EQ(plan.at("plan").at("zero_stage"), 3);
  const json& tags = plan.at("prediction").at("tiers").at("device").at("tags");
  double planned = 0;
  for (const char* tag : {"working", "gradient", "moments", "gathered"}) planned += tags.at(tag).get<double>();
  const double expected = 16 * kParameters / kRanks + 4 * plan.at("plan").at("rcache_elements").get<double>();
  EXPECT_NEAR(planned, expected, 0.05 * expected) << tags;

  // "... at the peak: unplanned then N (U of M bytes)", of all ranks together.
  const std::size_t at = outcome.output.find("memory of all ranks: ");
  ASSERT_NE(at, std::string::npos) << outcome.output;
  const std::size_t open = outcome.output.find('(', at);
  std::int64_t unplanned = 0, peak = 0;
  ASSERT_EQ(std::sscanf(outcome.output.c_str() + open, "(%" SCNd64 " of %" SCNd64 " bytes)", &unplanned, &peak), 2);
  EXPECT_GT(peak, kRanks * plan.at("prediction").at("tiers").at("device").at("arena_bytes").get<std::int64_t>());
  EXPECT_LT(std::abs(static_cast<double>(unplanned)), 0.1 * static_cast<double>(peak));
  std::printf("%s", outcome.output.substr(at, outcome.output.find('\n', at) - at + 1).c_str());
}

}  // namespace
}  // namespace sluice::testing
