// Runs whose states live in host memory and on disk: the same bits as with all of it on the device, through kills, stops and resumes, and
// what comes out of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/chunk_count.hpp"
#include "support/sanitized.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> names_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) names.push_back(entry.path().string());
  return names;
}

class Tiers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    fs::create_directories(disk());
    fs::create_directories(*area_ / "disk2");
    // Two runs to be compared with: the reduction of two stages adds in two orders.
    for (const int ranks : {1, 2}) {
      const ProgramOutcome outcome = train(ranks, at_home(ranks), {"--steps", "14", "--plan", plan(ranks, {})});
      ASSERT_TRUE(ended_with(outcome, 0));
    }
  }
  static void TearDownTestSuite() { delete area_; }

  static std::string disk() { return *area_ / "disk"; }
  static std::string at_home(int ranks) { return "home-" + std::to_string(ranks); }
  static std::string run(const std::string& name) { return *area_ / name; }
  static ProgramOutcome train(int ranks, const std::string& output, const std::vector<std::string>& more) {
    return run_program(area_->train(ranks == 1 ? 0 : ranks, output, more));
  }
  /// zero_stage 3 with small chunks, so that several are on their way at a time.
  static std::string plan(int ranks, PlanChoice choice) {
    choice.ranks = ranks;
    choice.micro_batch = 2;
    choice.accumulation = 4 / ranks;
    choice.zero_stage = 3;
    choice.chunk_elements = 4096;
    choice.rcache_elements = 40960;
    if (choice.working != "device" || choice.gradient != "device" || choice.states != "device")
      choice.chunks = chunk_count(area_->model(), choice.chunk_elements);
    return area_->plan(choice);
  }
  static PlanChoice homes(const std::string& working, const std::string& gradient, const std::string& states) {
    PlanChoice choice;
    choice.working = working;
    choice.gradient = gradient;
    choice.states = states;
    return choice;
  }

  static RunArea* area_;
};
RunArea* Tiers::area_ = nullptr;

TEST_F(Tiers, EveryHomeGivesTheSameBits) {
  PlanChoice layers = homes("disk", "host", "disk");
  layers.order = "layer_by_layer";
  layers.activation = "disk";
  PlanChoice at_end = homes("host", "host", "disk");
  at_end.update_mode = "at_end";
  at_end.activation = "host";
  PlanChoice swapped;
  swapped.activation = "disk";
  const std::vector<std::pair<std::string, PlanChoice>> cases = {{"states-host", homes("device", "device", "host")},
                                                                 {"states-disk", homes("device", "host", "disk")},
                                                                 {"all-host", homes("host", "host", "host")},
                                                                 {"all-disk", homes("disk", "host", "disk")},
                                                                 {"layers", layers},
                                                                 {"at-end", at_end},
                                                                 {"activations", swapped}};
  for (const auto& [name, choice] : cases) {
    for (const int ranks : {1, 2}) {
      const std::string output = name + std::to_string(ranks);
      const ProgramOutcome outcome = train(ranks, output, {"--steps", "14", "--plan", plan(ranks, choice), "--nvme-path", disk()});
      ASSERT_TRUE(ended_with(outcome, 0)) << output;
      EXPECT_TRUE(same_bits(run(output), run(at_home(ranks)))) << output;
      EXPECT_THAT(names_below(disk()), IsEmpty()) << output;
      const bool uses_disk = choice.states == "disk" || choice.activation == "disk";
      EXPECT_EQ(outcome.output.find("swap: writing ") != std::string::npos, uses_disk) << outcome.output;
      EXPECT_EQ(outcome.output.find(" written a day; drives wear") != std::string::npos, uses_disk) << outcome.output;
    }
  }
}

TEST_F(Tiers, TwoPathsAreStriped) {
  const ProgramOutcome outcome =
      train(2, "striped",
            {"--steps", "14", "--plan", plan(2, homes("disk", "host", "disk")), "--nvme-path", disk(), "--nvme-path", run("disk2")});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_TRUE(same_bits(run("striped"), run(at_home(2))));
  EXPECT_THAT(outcome.output, HasSubstr("once to " + disk() + ", " + run("disk2")));
}

TEST_F(Tiers, AKilledRunGoesOnOverItsLeftovers) {
  const std::vector<std::string> words = {"--steps", "14", "--plan", plan(2, homes("disk", "host", "disk")), "--nvme-path", disk()};
  Program program(area_->train(2, "killed", words));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("killed")) >= 12; })) << program.wait().all();
  program.kill_all();
  program.wait();
  EXPECT_THAT(names_below(disk()), Not(IsEmpty())) << "a kill leaves no time to clean up";
  const ProgramOutcome outcome = train(2, "killed", words);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("swap: removed " + disk()));
  EXPECT_THAT(outcome.output, HasSubstr("left behind by process"));
  EXPECT_TRUE(has_each_step_once(run("killed"), 14));
  EXPECT_TRUE(same_bits(run("killed"), run(at_home(2))));
  EXPECT_THAT(names_below(disk()), IsEmpty());
}

TEST_F(Tiers, AStoppedRunSavesWhatIsOnDiskAndGoesOn) {
  const std::vector<std::string> words = {"--plan", plan(2, homes("disk", "host", "disk")), "--nvme-path", disk(),
                                          "--set",  "sluice.checkpoint.interval=0"};
  std::vector<std::string> first = words;
  first.insert(first.end(), {"--steps", "100000"});
  Program program(area_->train(2, "stopped", first));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("stopped")) >= 3; })) << program.wait().all();
  ASSERT_NE(program.rank(1), 0);
  ::kill(program.rank(1), SIGUSR1);
  ASSERT_TRUE(ended_with(program.wait(), 75));
  EXPECT_THAT(names_below(disk()), IsEmpty());
  const std::int64_t step = read_run_status(run("stopped")).step;
  std::vector<std::string> second = words;
  second.insert(second.end(), {"--steps", std::to_string(step + 3)});
  ASSERT_TRUE(ended_with(train(2, "stopped", second), 0));
  EXPECT_TRUE(has_each_step_once(run("stopped"), step + 3));
  EXPECT_TRUE(same_bits(run("stopped"), run(at_home(2)), std::min<std::int64_t>(14, step + 3)));
}

TEST_F(Tiers, WhatComesOutIsTheSame) {
  ASSERT_TRUE(ended_with(train(2, "out", {"--steps", "14", "--plan", plan(2, homes("disk", "host", "disk")), "--nvme-path", disk()}), 0));
  const std::string weights = read_all(run("out/model/model.safetensors"));
  EXPECT_FALSE(weights.empty());
  EXPECT_TRUE(weights == read_all(run(at_home(2)) + "/model/model.safetensors")) << "the weights differ";
  const auto generated = [&](const std::string& from) {
    const ProgramOutcome outcome = run_program(area_->sluice(
        {"generate", "--model", from, "--prompt", "the river ", "--temperature", "0", "--max-new-tokens", "20", "--threads", "1"}));
    EXPECT_TRUE(ended_with(outcome, 0));
    return outcome.output;
  };
  EXPECT_EQ(generated(run("out")), generated(run(at_home(2))));
  ASSERT_TRUE(ended_with(
      run_program(area_->sluice({"checkpoint", "export", run("out/checkpoints/step-00000010"), "--to", "hf", "--output", run("exported")})),
      0));
  EXPECT_TRUE(ended_with(run_program(area_->sluice({"checkpoint", "verify", run("out")})), 0));
}

/// A model of 4.8 M parameters, of which a plan can put a part somewhere else. Its states are 77 MB.
class SearchedTiers : public Tiers {
 protected:
  static void SetUpTestSuite() {
    Tiers::SetUpTestSuite();
    area_->write("medium/config.json", json{{"model_type", "gpt2"},
                                            {"activation_function", "gelu_new"},
                                            {"vocab_size", 257},
                                            {"n_positions", 64},
                                            {"n_embd", 256},
                                            {"n_layer", 6},
                                            {"n_head", 4},
                                            {"embd_pdrop", 0.1},
                                            {"attn_pdrop", 0.1},
                                            {"resid_pdrop", 0.1},
                                            {"layer_norm_epsilon", 1e-5},
                                            {"initializer_range", 0.02},
                                            {"tie_word_embeddings", true}}
                                           .dump());
  }
  static std::vector<std::string> words(const std::vector<std::string>& more) {
    std::vector<std::string> list = {"--model", *area_ / "medium", "--init", "scratch", "--steps", "6"};
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }
  static json plan_of(const std::string& name) { return json::parse(read_all(run(name) + "/plan.json")); }
};

constexpr const char* kOwnMemory = "a sanitizer's own memory, which the device's budget has to hold, is several times the model";

TEST_F(SearchedTiers, SmallBudgetsJustWork) {
  if (kIsSanitized) GTEST_SKIP() << kOwnMemory;
  for (const int ranks : {1, 2}) {
    const std::string name = "small" + std::to_string(ranks), free = "free" + std::to_string(ranks);
    // The device's budget holds what is outside the plan as well: some 30 to 40 MiB a rank.
    const ProgramOutcome outcome =
        train(ranks, name, words({"--device-memory", "64MiB", "--host-memory", ranks == 1 ? "32MiB" : "48MiB", "--nvme-path", disk()}));
    ASSERT_TRUE(ended_with(outcome, 0));
    EXPECT_THAT(names_below(disk()), IsEmpty());
    json found = plan_of(name);
    EXPECT_FALSE(found.at("plan").at("homes").empty()) << found.dump(1);
    EXPECT_TRUE(found.at("prediction").at("tiers").contains("disk")) << found.dump(1);
    // The same arithmetic with everything at home.
    found.at("plan").at("homes") = json::array();
    found.at("plan").erase("order");
    for (json& each : found.at("plan").at("activations")) each.at("each") = "keep";
    found.at("graph_hash") = "0";
    const std::string file = area_->write(free + ".json", found.dump());
    ASSERT_TRUE(ended_with(train(ranks, free, words({"--plan", file})), 0));
    EXPECT_TRUE(same_bits(run(name), run(free)));
    // With room for everything nothing moves.
    const ProgramOutcome roomy = train(ranks, name + "-roomy", words({"--nvme-path", disk()}));
    ASSERT_TRUE(ended_with(roomy, 0));
    EXPECT_TRUE(plan_of(name + "-roomy").at("plan").at("homes").empty());
    EXPECT_THAT(roomy.output, Not(HasSubstr("swap: writing")));
  }
}

TEST_F(SearchedTiers, OffloadingIsPinnedByItsKey) {
  const ProgramOutcome outcome =
      train(1, "pinned",
            words({"--set", "zero_optimization.stage=3", "--set", "zero_optimization.offload_optimizer.device=nvme", "--set",
                   "zero_optimization.offload_optimizer.nvme_path=" + disk(), "--pin", "zero_optimization.offload_optimizer", "--set",
                   "aio.block_size=524288", "--set", "aio.queue_depth=4", "--pin", "aio"}));
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("zero_optimization.offload_optimizer.nvme_path is taken for --nvme-path: " + disk()));
  EXPECT_THAT(outcome.output, HasSubstr("swap: writing "));
  const json plan = plan_of("pinned");
  ASSERT_FALSE(plan.at("plan").at("homes").empty());
  for (const json& each : plan.at("plan").at("homes")) EXPECT_EQ(each.at("each").at("states"), "disk");
}

TEST_F(SearchedTiers, PlansAndDryRunsShowTiersAndLeaveNothing) {
  if (kIsSanitized) GTEST_SKIP() << kOwnMemory;
  const std::vector<std::string> budget = {"--device-memory", "64MiB", "--host-memory", "32MiB", "--nvme-path", disk()};
  std::vector<std::string> dry = words(budget);
  dry.emplace_back("--dry-run");
  const ProgramOutcome outcome = train(1, "dry", dry);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("disk per rank: "));
  EXPECT_THAT(outcome.output, HasSubstr("on disk"));
  EXPECT_FALSE(fs::exists(run("dry")));
  EXPECT_THAT(names_below(disk()), IsEmpty());
}

TEST_F(SearchedTiers, ProfileSaysWhatTheDisksCanDo) {
  if (kIsSanitized) GTEST_SKIP() << kOwnMemory;
  const ProgramOutcome outcome = run_program(area_->launch(2, {"profile", area_->config(), "--model", "gpt2-micro", "--sequence-length",
                                                               "32", "--nvme-path", disk(), "--nvme-path", run("disk2"), "--json"}));
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_THAT(outcome.errors, HasSubstr("profile: disk " + disk()));
  EXPECT_THAT(outcome.errors, HasSubstr("core seconds a GB"));
  const json machine = json::parse(outcome.output);
  EXPECT_GT(machine.at("disk").at("read_bytes_per_second"), 0);
  EXPECT_GT(machine.at("disk").at("write_bytes_per_second"), 0);
  EXPECT_GT(machine.at("upload_bytes_per_second"), 0);
  // Another machine plans with it, where the paths needn't be.
  const auto plan_with = [&](const json& file) {
    return run_program(
        area_->sluice({"plan", area_->config(), "--model", *area_ / "medium", "--machine", area_->write("machine.json", file.dump()),
                       "--ranks", "2", "--device-memory", "64MiB", "--host-memory", "48MiB", "--nvme-path", "/not/here"}));
  };
  const ProgramOutcome planned = plan_with(machine);
  EXPECT_TRUE(ended_with(planned, 0));
  EXPECT_THAT(planned.output, HasSubstr("disk per rank: "));
  json without = machine;
  without.erase("disk");
  EXPECT_TRUE(refused_with(plan_with(without), 2, {"machine.json", "says nothing about a disk", "sluice profile --nvme-path"}));
  EXPECT_THAT(names_below(disk()), IsEmpty());
}

TEST_F(Tiers, DoctorListsWhatLiesThere) {
  const ProgramOutcome outcome = run_program(area_->sluice({"doctor", "--nvme-path", disk()}));
  EXPECT_THAT(outcome.output, HasSubstr("swap path " + disk()));
  EXPECT_THAT(outcome.output, HasSubstr("fs.aio-max-nr"));
  EXPECT_THAT(outcome.output, HasSubstr("locked memory"));
}

}  // namespace
}  // namespace sluice::testing
