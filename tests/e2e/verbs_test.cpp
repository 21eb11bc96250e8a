// The verbs around training, as a user types them: plan, profile, checkpoint, generate, doctor, config check.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/sanitized.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A machine of eight ranks a node, 80 GB each; round numbers of nobody's.
json big_machine() {
  return {{"name", "big"},
          {"device", "cpu"},
          {"device_name", "made up"},
          {"isa", "avx512"},
          {"ranks_per_node", 8},
          {"cores_per_node", 64},
          {"threads_per_rank", 8},
          {"flops_per_core", 1e13},
          {"device_flops", 0},
          {"device_memory_bytes_per_second", 0},
          {"memory_bytes_per_second", 8e12},
          {"update_bytes_per_second", 1e12},
          {"gather", {{"latency_seconds", 2e-5}, {"bytes_per_second", 1e11}}},
          {"scatter", {{"latency_seconds", 2e-5}, {"bytes_per_second", 1e11}}},
          {"link_bytes_per_second", 1e11},
          {"link_latency_seconds", 1e-5},
          {"agree_seconds", 5e-5},
          {"task_seconds", 1e-6},
          {"wake_seconds", 2e-5},
          {"device_bytes", 80'000'000'000},
          {"host_bytes", 1'000'000'000'000},
          {"unplanned_bytes", 2'000'000'000},
          {"segments", json::array()},
          {"sources", {{"*", "made up for a test"}}}};
}

class Verbs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    ASSERT_TRUE(ended_with(run_program(area_->train(2, "run", {"--steps", "30", "--plan", area_->plan()})), 0));
  }
  static void TearDownTestSuite() { delete area_; }
  static std::string run() { return *area_ / "run"; }
  static ProgramOutcome sluice(const std::vector<std::string>& words) { return run_program(area_->sluice(words)); }

  static RunArea* area_;
};
RunArea* Verbs::area_ = nullptr;

TEST_F(Verbs, PlanFor175BillionParametersIsQuickAndSmall) {
  const std::string machine = area_->write("big.json", big_machine().dump());
  ProgramCommand command = area_->sluice({"plan", "--model", "gpt3-175b", "--machine", machine, "--ranks", "512", "--ranks-per-node", "8",
                                          "--train-batch-size", "1024", "--learning-rate", "1e-4", "--json"});
  command.limit_seconds = 280;
  const ProgramOutcome outcome = run_program(command);
  ASSERT_TRUE(ended_with(outcome, 0));
  const json plan = json::parse(outcome.output);
  EXPECT_EQ(plan.at("plan").at("zero_stage"), 3);  // 2.8 TB of states fit no single rank
  EXPECT_EQ(plan.at("plan").at("mesh").at("data"), 512);
  const json& device = plan.at("prediction").at("tiers").at("device");
  EXPECT_LT(device.at("arena_bytes").get<double>(), 78e9);
  // A 512th of 16 bytes a parameter, wherever it stands.
  double states = 0;
  for (const json& tier : plan.at("prediction").at("tiers")) {
    for (const char* tag : {"working", "gradient", "moments"}) states += tier.at("tags").value(tag, 0.0);
  }
  EXPECT_GT(states, 0.95 * 16 * 174.6e9 / 512);
  std::printf("planned in %.1f s with at most %ld MiB\n", outcome.seconds, outcome.peak_kib / 1024);
  if (!kIsSanitized) {
    EXPECT_LT(outcome.seconds, 30);
    EXPECT_LT(outcome.peak_kib, 2 * 1024 * 1024) << "peak memory";
  }
}

TEST_F(Verbs, PlanAndDryRunStartNoMpi) {
  // A launcher's variables that no MPI would survive.
  const std::string machine = area_->write("machine.json", big_machine().dump());
  ProgramCommand plan = area_->sluice({"plan", area_->config(), "--machine", machine, "--ranks", "4", "--ranks-per-node", "4"});
  plan.environment["OMPI_MCA_pml"] = "nonsense";
  ProgramOutcome outcome = run_program(plan);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("plan for tiny on big"));
  EXPECT_THAT(outcome.output, HasSubstr("4 ranks; zero_stage"));
  EXPECT_THAT(outcome.output, HasSubstr("predicted: "));
  EXPECT_THAT(outcome.output, HasSubstr("not taken:"));

  ProgramCommand dry = area_->sluice({"train", area_->config(), "--steps", "10", "--dry-run", "--ranks", "2", "--output", *area_ / "dry"});
  dry.environment["OMPI_MCA_pml"] = "nonsense";
  outcome = run_program(dry);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("data: 15001 tokens (bytes) in 1 file, "));
  EXPECT_THAT(outcome.output, HasSubstr("2 ranks; zero_stage"));
  EXPECT_FALSE(fs::exists(*area_ / "dry"));

  // What a dry run refuses, it refuses as the run would.
  EXPECT_TRUE(refused_with(sluice({"train", area_->config(), "--steps", "10", "--dry-run", "--ranks", "3"}), 2, {"3 data-parallel ranks"}));
  EXPECT_TRUE(refused_with(sluice({"plan", area_->config(), "--machine", *area_ / "no-machine.json"}), 3,
                           {"--machine: ", "no-machine.json", "No such file", "give a machine file"}));
  EXPECT_TRUE(refused_with(sluice({"plan", "--model", "gpt3-175b", "--machine", machine, "--ranks", "2", "--train-batch-size", "4"}), 3,
                           {"does not fit", "more than"}));
}

TEST_F(Verbs, PlanKnowsMachinesByName) {
  const ProgramOutcome outcome = sluice({"plan", area_->config(), "--machine", "dgx-a100-40gb", "--ranks", "2"});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("plan for tiny on dgx-a100-40gb"));
  // The nearest first.
  EXPECT_TRUE(refused_with(sluice({"plan", area_->config(), "--machine", "xeon-8480"}), 2,
                           {"\"xeon-8480\"", "one of xeon-8480-2s, ", "dgx-a100-40gb", "epyc-9654-2s", "ryzen-7950x"}));
  // So do installed programs.
  fs::create_directories(*area_ / "prefix/bin");
  fs::create_directories(*area_ / "prefix/share/sluice/machines");
  fs::copy_file(area_->sluice({}).words[0], *area_ / "prefix/bin/sluice");
  area_->write("prefix/share/sluice/machines/mine.json", big_machine().dump());
  ProgramCommand installed = area_->sluice({"plan", area_->config(), "--machine", "mine", "--ranks", "2"});
  installed.words[0] = *area_ / "prefix/bin/sluice";
  const ProgramOutcome there = run_program(installed);
  ASSERT_TRUE(ended_with(there, 0));
  EXPECT_THAT(there.output, HasSubstr("plan for tiny on big"));
}

TEST_F(Verbs, AdviceOfPlanWorksAsItIsPrinted) {
  const ProgramOutcome outcome =
      sluice({"plan", "--model", area_->model(), "--init", "scratch", "--train_batch_size", "8", "--sequence-length", "32", "--threads",
              "1", "--learning-rate", "1e-3", "--output", *area_ / "with 'a' space", "--ranks", "2"});
  ASSERT_TRUE(ended_with(outcome, 0));
  const std::size_t at = outcome.errors.find("mpirun -n 2 sluice profile --json ");
  ASSERT_NE(at, std::string::npos) << outcome.errors;
  const std::string advice = outcome.errors.substr(at, outcome.errors.find('\n', at) - at);
  ProgramCommand shell = area_->launch(2, {});
  const std::string launcher = fs::path(shell.words[0]).parent_path(), program = fs::path(area_->sluice({}).words[0]).parent_path();
  shell.words = {"sh", "-c", "cd '" + area_->path() + "' && PATH=" + launcher + ":" + program + ":$PATH && " + advice};
  const ProgramOutcome followed = run_program(shell);
  ASSERT_TRUE(ended_with(followed, 0)) << advice;
  EXPECT_THAT(followed.output, HasSubstr("plan for tiny on "));
  EXPECT_THAT(followed.output, HasSubstr("2 ranks; zero_stage"));
  EXPECT_EQ(json::parse(std::ifstream(*area_ / "machine.json")).at("ranks_per_node"), 2);
}

TEST_F(Verbs, PlanMeasuresForJsonWithoutAWordMore) {
  const ProgramOutcome outcome = sluice({"plan", area_->config(), "--ranks", "2", "--json"});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_GT(json::parse(outcome.output).at("prediction").at("seconds").get<double>(), 0);
  EXPECT_THAT(outcome.errors, HasSubstr("one rank measured this machine without MPI"));
}

TEST_F(Verbs, PlanAndDryRunTakeThePlanThatIsGiven) {
  const std::vector<std::string> given{"plan", area_->config(), "--ranks", "2", "--plan", area_->plan()};
  ProgramOutcome outcome = sluice(given);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("plan: from " + area_->plan()), HasSubstr(" of device memory a rank"), HasSubstr("predicted: ")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("not taken:")));
  EXPECT_TRUE(
      refused_with(sluice({"plan", area_->config(), "--ranks", "4", "--plan", area_->plan()}), 2, {"it is for 2 ranks, here are 4"}));
  outcome = sluice({"plan", area_->config(), "--plan", *area_ / "no-plan.json", "--reprofile"});
  EXPECT_TRUE(refused_with(outcome, 3, {"--plan: ", "no-plan.json", "No such file", "leave it out"}));
  EXPECT_EQ(outcome.output, "") << "something was measured before";
  const std::string stage = std::to_string(1 - json::parse(std::ifstream(area_->plan())).at("plan").at("zero_stage").get<int>() % 2);
  EXPECT_TRUE(refused_with(sluice({"plan", area_->config(), "--ranks", "2", "--plan", area_->plan(), "--set",
                                   "zero_optimization.stage=" + stage, "--pin", "zero_optimization.stage"}),
                           2, {"--plan " + area_->plan(), "it differs from what is pinned"}));
  outcome = sluice({"train", area_->config(), "--dry-run", "--ranks", "2", "--steps", "40", "--output", run()});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("plan: as in " + run() + "/plan.json from the attempt before: "));
  EXPECT_THAT(outcome.output, HasSubstr("run: " + run() + " goes on from " + run() + "/checkpoints/step-000000"));
}

TEST_F(Verbs, PlanDumpsTheGraphOfTheStep) {
  const std::string machine = area_->write("machine.json", big_machine().dump());
  const ProgramOutcome outcome = sluice({"plan", area_->config(), "--machine", machine, "--ranks", "2", "--dump-graph"});
  ASSERT_TRUE(ended_with(outcome, 0));
  for (const char* kind : {"load", "agree", "compute", "scatter", "norm", "update"}) EXPECT_THAT(outcome.output, HasSubstr(kind));
  EXPECT_TRUE(
      refused_with(sluice({"plan", area_->config(), "--machine", machine, "--json", "--dump-graph"}), 2, {"--json", "--dump-graph"}));
}

TEST_F(Verbs, ProfileIsAMachineFileThatPlanReads) {
  const ProgramOutcome outcome = run_program(area_->launch(2, {"profile", area_->config(), "--json"}));
  ASSERT_TRUE(ended_with(outcome, 0));
  const json machine = json::parse(outcome.output);
  EXPECT_THAT(outcome.errors, HasSubstr("profile: measuring 2 ranks"));
  EXPECT_EQ(machine.at("ranks_per_node"), 2);
  for (const char* key : {"flops_per_core", "memory_bytes_per_second", "update_bytes_per_second"})
    EXPECT_GT(machine.at(key).get<double>(), 1e7) << key;
  EXPECT_GT(machine.at("gather").at("bytes_per_second").get<double>(), 1e6);
  EXPECT_GT(machine.at("segments").size(), 8U);
  const std::string file = area_->write("measured.json", outcome.output);
  const ProgramOutcome plan = sluice({"plan", area_->config(), "--machine", file, "--ranks", "2", "--json"});
  ASSERT_TRUE(ended_with(plan, 0));
  EXPECT_GT(json::parse(plan.output).at("prediction").at("seconds").get<double>(), 0);
}

TEST_F(Verbs, AProfileThatWasDisturbedIsMeasuredAgain) {
  ProgramCommand plan = area_->sluice({"plan", area_->config()});
  plan.environment["XDG_CACHE_HOME"] = *area_ / "disturbed";  // of its own: one profile
  ASSERT_TRUE(ended_with(run_program(plan), 0));
  const fs::path file = fs::directory_iterator(*area_ / "disturbed/sluice")->path();
  const auto mark = [&](const std::string& unsteady) {
    std::ifstream in(file);
    json profile = json::parse(in);
    profile["unsteady"] = unsteady;
    std::ofstream(file) << profile.dump();
  };
  mark("");  // this machine may be anything
  ProgramOutcome outcome = run_program(plan);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("measured before for these hosts and shapes"));
  mark("3 of 40 timings were disturbed");
  outcome = run_program(plan);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("profile: measuring 1 rank"));
}

TEST_F(Verbs, CheckpointsAreListedShownAndVerified) {
  const ProgramOutcome list = sluice({"checkpoint", "list", run()});
  ASSERT_TRUE(ended_with(list, 0));
  for (const char* name : {"step-00000010", "step-00000020", "step-00000030"}) EXPECT_THAT(list.output, HasSubstr(name));
  const ProgramOutcome list_json = sluice({"checkpoint", "list", run(), "--json"});
  ASSERT_TRUE(ended_with(list_json, 0));
  EXPECT_EQ(json::parse(list_json.output).size(), 3U);

  const ProgramOutcome show = sluice({"checkpoint", "show", run()});
  ASSERT_TRUE(ended_with(show, 0));
  EXPECT_THAT(show.output, HasSubstr("30"));
  const ProgramOutcome show_json = sluice({"checkpoint", "show", run() + "/checkpoints/step-00000020", "--json"});
  ASSERT_TRUE(ended_with(show_json, 0));
  EXPECT_THAT(json::parse(show_json.output).dump(), HasSubstr("\"step\":20"));

  const ProgramOutcome verify = sluice({"checkpoint", "verify", run()});
  ASSERT_TRUE(ended_with(verify, 0));
  for (const char* name : {"step-00000010", "step-00000020", "step-00000030"}) EXPECT_THAT(verify.output, HasSubstr(name));
  const ProgramOutcome verify_json = sluice({"checkpoint", "verify", run(), "--json"});
  ASSERT_TRUE(ended_with(verify_json, 0));
  const json verified = json::parse(verify_json.output);
  ASSERT_EQ(verified.size(), 3U);
  for (const json& each : verified) EXPECT_TRUE(each.at("whole").get<bool>());
}

TEST_F(Verbs, GenerateContinuesAPrompt) {
  const ProgramOutcome text =
      sluice({"generate", "--model", run(), "--prompt", "the old ", "--max-new-tokens", "20", "--temperature", "0", "--threads", "1"});
  ASSERT_TRUE(ended_with(text, 0));
  EXPECT_TRUE(text.output.starts_with("the old ")) << text.output;
  const std::vector<std::string> sampled = {
      "generate", "--model", run() + "/checkpoints/step-00000020", "--prompt", "the ", "--max-new-tokens", "12", "--seed", "3", "--json"};
  const ProgramOutcome tokens = sluice(sampled);
  ASSERT_TRUE(ended_with(tokens, 0));
  const json drawn = json::parse(tokens.output).at("tokens");
  EXPECT_LE(drawn.size(), 12U);
  for (const json& token : drawn) {
    EXPECT_GE(token.get<int>(), 0);
    EXPECT_LT(token.get<int>(), 257);
  }
  EXPECT_EQ(sluice(sampled).output, tokens.output);  // the seed says it all
  const ProgramOutcome weights = sluice({"generate", "--model", std::string(SLUICE_SOURCE_DIR) + "/tests/golden/gpt2_tiny",
                                         "--prompt-tokens", "1,10,73", "--max-new-tokens", "5", "--temperature", "0"});
  ASSERT_TRUE(ended_with(weights, 0));
  EXPECT_THAT(weights.output, ::testing::MatchesRegex("[0-9]+(, [0-9]+){0,4}\n"));
}

TEST_F(Verbs, ConfigCheckListsEveryKeyAndEveryProblem) {
  const ProgramOutcome good = sluice({"config", "check", area_->config(), "--ranks", "2", "--steps", "5"});
  ASSERT_TRUE(ended_with(good, 0));
  EXPECT_THAT(good.output, HasSubstr("train_batch_size"));
  EXPECT_THAT(good.output, HasSubstr("sluice.checkpoint.interval"));
  const ProgramOutcome bad = sluice({"config", "check", area_->config(), "--set", "sluice.sed=1", "--set", "amp.enabled=true", "--json"});
  ASSERT_TRUE(ended_with(bad, 2));
  const json found = json::parse(bad.output);
  EXPECT_EQ(found.at("problems").size(), 2U);
  EXPECT_THAT(found.at("problems").dump(), HasSubstr("sluice.seed"));
  EXPECT_FALSE(found.at("keys").empty());
}

TEST_F(Verbs, DoctorNamesTheLibraries) {
  const ProgramOutcome outcome = sluice({"doctor", "--json"});
  EXPECT_TRUE(outcome.code == 0 || outcome.code == 3) << outcome.all();
  const std::string text = json::parse(outcome.output).dump();
  for (const char* name : {"MPI", "HDF5", "kernels", "launch"}) EXPECT_THAT(text, HasSubstr(name));
  ProgramCommand wrong = area_->sluice({"doctor"});
  wrong.environment["WORLD_SIZE"] = "2";
  const ProgramOutcome warned = run_program(wrong);
  EXPECT_TRUE(ended_with(warned, 3));
  EXPECT_THAT(warned.output, HasSubstr("mpirun -n 2"));
}

TEST_F(Verbs, HelpShowsExamples) {
  const ProgramOutcome help = sluice({"--help"});
  ASSERT_TRUE(ended_with(help, 0));
  for (const char* verb : {"train", "profile", "plan", "config check", "checkpoint list", "generate", "doctor"})
    EXPECT_THAT(help.output, HasSubstr(verb));
  const ProgramOutcome train = sluice({"train", "--help"});
  ASSERT_TRUE(ended_with(train, 0));
  EXPECT_THAT(train.output, HasSubstr("mpirun -n 2 sluice train"));
}

}  // namespace
}  // namespace sluice::testing
