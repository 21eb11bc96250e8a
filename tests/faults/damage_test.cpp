// Files of a run that were damaged while nobody looked, checkpoints above all. A run goes on from the newest whole one and says what it
// passed over; where none is whole it refuses, and never starts over by itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// At this part of the file: the first third of a shard is parameters, then come their two moments.
void flip_bit(const std::string& path, double part) {
  const auto at = static_cast<std::streamoff>(static_cast<double>(fs::file_size(path)) * part);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 8));
  ASSERT_TRUE(file.flush().good()) << path;
}

void cut_in_half(const std::string& path) {
  fs::resize_file(path, fs::file_size(path) / 2);
}

class Damage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    ASSERT_TRUE(ended_with(run_program(area_->train(2, "whole", {"--steps", "30", "--plan", area_->plan()})), 0));
    ASSERT_THAT(checkpoint_names(run("whole")), ElementsAre("step-00000010", "step-00000020", "step-00000030"));
    fs::copy(run("whole"), run("longer"), fs::copy_options::recursive);
    ASSERT_TRUE(ended_with(go_on("longer"), 0));
  }
  static void TearDownTestSuite() { delete area_; }
  static std::string run(const std::string& name) { return *area_ / name; }
  static std::string checkpoint(const std::string& name, int step) { return run(name) + "/checkpoints/step-000000" + std::to_string(step); }
  static void copy_whole(const std::string& name) { fs::copy(run("whole"), run(name), fs::copy_options::recursive); }
  static ProgramOutcome go_on(const std::string& name) { return run_program(area_->train(2, name, {"--steps", "40"})); }
  static ProgramOutcome dry_run(const std::string& name) {
    return run_program(area_->train(0, name, {"--steps", "40", "--dry-run", "--ranks", "2"}));
  }
  static ProgramOutcome verify(const std::string& name) { return run_program(area_->sluice({"checkpoint", "verify", run(name)})); }

  static RunArea* area_;
};
RunArea* Damage::area_ = nullptr;

TEST_F(Damage, TheNewestWholeOneIsTakenAndTheOtherNamed) {
  struct Case {
    const char* name;
    std::function<void(const std::string&)> harm;
  };
  const std::vector<Case> cases = {
      {"cut", [](const std::string& path) { cut_in_half(path + "/rank-00001.h5"); }},
      {"bit", [](const std::string& path) { flip_bit(path + "/rank-00000.h5", 0.5); }},
      {"gone", [](const std::string& path) { fs::remove(path + "/rank-00001.h5"); }},
      {"manifest", [](const std::string& path) { cut_in_half(path + "/manifest.json"); }},
      {"swapped",
       [](const std::string& path) {
         fs::rename(path + "/rank-00000.h5", path + "/x");
         fs::rename(path + "/rank-00001.h5", path + "/rank-00000.h5");
         fs::rename(path + "/x", path + "/rank-00001.h5");
       }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    copy_whole(each.name);
    each.harm(checkpoint(each.name, 30));
    const ProgramOutcome found = verify(each.name);
    EXPECT_TRUE(ended_with(found, 4));
    EXPECT_THAT(found.all(), HasSubstr("step-00000030"));

    const ProgramOutcome outcome = go_on(each.name);
    ASSERT_TRUE(ended_with(outcome, 0));
    EXPECT_THAT(outcome.errors, HasSubstr("warning: "));
    EXPECT_THAT(outcome.errors, HasSubstr("step-00000030"));
    std::size_t times = 0;
    for (std::size_t at = outcome.errors.find("step 30 is refused: "); at != std::string::npos;
         at = outcome.errors.find("step 30 is refused: ", at + 1)) {
      ++times;
    }
    EXPECT_EQ(times, 1U) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("continuing from " + checkpoint(each.name, 20)));
    EXPECT_TRUE(has_each_step_once(run(each.name), 40));
    EXPECT_TRUE(same_bits(run(each.name), run("longer")));
    const Records records = read_records(run(each.name));
    EXPECT_EQ(records.steps[19].attempt, 1);
    EXPECT_EQ(records.steps[20].attempt, 2);
  }
}

TEST_F(Damage, WhatWasRefusedTakesNoWholeOnesPlace) {
  copy_whole("counted");
  flip_bit(checkpoint("counted", 30) + "/rank-00000.h5", 0.5);
  ASSERT_TRUE(ended_with(run_program(area_->train(2, "counted", {"--steps", "40", "--set", "sluice.checkpoint.interval=7"})), 0));
  // Three whole ones, as ever, and the evidence.
  EXPECT_THAT(checkpoint_names(run("counted")), ElementsAre("step-00000028", "step-00000030", "step-00000035", "step-00000040"));
}

TEST_F(Damage, AStatusThatCanNotBeReadCostsNothing) {
  copy_whole("dumb");
  fs::resize_file(run("dumb") + "/status.json", 0);  // a power cut
  const ProgramOutcome outcome = go_on("dumb");
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.errors, HasSubstr("warning: " + run("dumb") + "/status.json: not valid JSON"));
  EXPECT_THAT(outcome.output, HasSubstr("continuing from " + checkpoint("dumb", 30)));
  EXPECT_TRUE(same_bits(run("dumb"), run("longer")));
  EXPECT_EQ(read_records(run("dumb")).steps[30].attempt, 2);
  EXPECT_EQ(read_run_status(run("dumb")).state, "finished");
  EXPECT_EQ(read_run_status(run("dumb")).attempt, 2);
  // A finished run is finished without it, too.
  cut_in_half(run("dumb") + "/status.json");
  ASSERT_TRUE(ended_with(go_on("dumb"), 0));
  EXPECT_TRUE(same_bits(run("dumb"), run("longer")));
  EXPECT_EQ(read_run_status(run("dumb")).state, "finished");
}

TEST_F(Damage, AFileThatSaysWhatTheRunIsIsRefusedWithWhatToDo) {
  for (const std::string file : {"run.json", "plan.json"}) {
    SCOPED_TRACE(file);
    const std::string name = "without-" + file, path = run(name) + "/" + file;
    copy_whole(name);
    fs::resize_file(path, 0);
    EXPECT_TRUE(refused_with(go_on(name), 4, {path + ": not valid JSON", "remove it"}));
    fs::remove(path);
    ASSERT_TRUE(ended_with(run_program(area_->train(2, name, {"--steps", "40", "--plan", area_->plan()})), 0));
    EXPECT_TRUE(same_bits(run(name), run("longer")));
  }
}

TEST_F(Damage, WithNoneWholeTheRunRefusesAndChangesNothing) {
  copy_whole("none");
  cut_in_half(checkpoint("none", 10) + "/rank-00000.h5");
  flip_bit(checkpoint("none", 20) + "/rank-00001.h5", 0.5);
  fs::remove(checkpoint("none", 30) + "/manifest.json");
  const auto before = snapshot(run("none"));
  const ProgramOutcome outcome = go_on("none");
  EXPECT_TRUE(refused_with(outcome, 4, {"checkpoints", "step-00000010", "step-00000020"}));
  const RunStatus status = read_run_status(run("none"));
  EXPECT_EQ(status.state, "failed");
  EXPECT_EQ(status.exit_code, 4);
  EXPECT_FALSE(status.retriable);
  // What it wrote tells of the attempt; training, plan and checkpoints are as they were.
  for (const std::string& name : changed_files(before, snapshot(run("none")))) {
    EXPECT_THAT(name, ::testing::AnyOf("status.json", "run.json", "log/rank-00000.log"));
  }
}

// As where the disk of the checkpoints isn't mounted, or somebody cleaned up.
TEST_F(Damage, CheckpointsThatAreGoneAreNoReasonToStartOver) {
  for (const bool folder_stays : {false, true}) {
    SCOPED_TRACE(folder_stays ? "an empty folder" : "no folder");
    const std::string name = folder_stays ? "emptied" : "removed";
    copy_whole(name);
    fs::remove_all(run(name) + "/checkpoints");
    if (folder_stays) fs::create_directory(run(name) + "/checkpoints");
    const auto before = snapshot(run(name));
    EXPECT_TRUE(refused_with(dry_run(name), 4, {"checkpoints", "holds no checkpoint", "step-00000030"}));
    EXPECT_THAT(changed_files(before, snapshot(run(name))), ElementsAre());
    for (int attempt = 0; attempt < 2; ++attempt) {  // the second knows it from the first
      EXPECT_TRUE(refused_with(go_on(name), 4, {"checkpoints", "holds no checkpoint", "step-00000030", "for a new start"}));
    }
    EXPECT_TRUE(has_each_step_once(run(name), 30));
    fs::remove_all(run(name) + "/checkpoints");
    fs::copy(run("whole") + "/checkpoints", run(name) + "/checkpoints", fs::copy_options::recursive);  // brought back
    ASSERT_TRUE(ended_with(go_on(name), 0));
    EXPECT_TRUE(same_bits(run(name), run("longer")));
  }
}

// run.json says whose the checkpoints are, plan.json how they were made; so do the checkpoints themselves.
TEST_F(Damage, WhatTheRunForgotItsCheckpointsTell) {
  copy_whole("forgot");
  for (const char* file : {"run.json", "status.json", "plan.json"}) fs::remove(run("forgot") + "/" + file);
  const auto before = snapshot(run("forgot") + "/checkpoints");
  const std::vector<std::string> other{"--steps", "40", "--seed", "2"};
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_TRUE(refused_with(run_program(area_->train(2, "forgot", other)), 2, {"step-00000030", "was made by another run"}));
  }
  EXPECT_THAT(changed_files(before, snapshot(run("forgot") + "/checkpoints")), ElementsAre());
  const ProgramOutcome outcome = go_on("forgot");
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_EQ(read_run_status(run("forgot")).attempt, 4);  // the manifest knows of the first
  EXPECT_THAT(outcome.errors, HasSubstr("plan.json: is gone; the run keeps the plan"));
  EXPECT_TRUE(same_bits(run("forgot"), run("longer")));
}

TEST_F(Damage, ManifestsOfAllGoneIsRefusedToo) {
  copy_whole("bare");
  for (const int step : {10, 20, 30}) fs::remove(checkpoint("bare", step) + "/manifest.json");
  const auto before = snapshot(run("bare") + "/checkpoints");
  EXPECT_TRUE(refused_with(dry_run("bare"), 4, {"checkpoints"}));
  EXPECT_TRUE(refused_with(go_on("bare"), 4, {"checkpoints"}));
  EXPECT_TRUE(changed_files(before, snapshot(run("bare") + "/checkpoints")).empty());
  EXPECT_TRUE(has_each_step_once(run("bare"), 30));
}

TEST_F(Damage, ANamedCheckpointThatIsDamagedIsNotReplacedByAnother) {
  copy_whole("named");
  flip_bit(checkpoint("named", 30) + "/rank-00001.h5", 0.5);
  const ProgramOutcome outcome =
      run_program(area_->train(2, "elsewhere", {"--steps", "40", "--plan", area_->plan(), "--resume", checkpoint("named", 30)}));
  EXPECT_TRUE(refused_with(outcome, 4, {"step-00000030", "rank-00001.h5"}));
  EXPECT_TRUE(read_records(run("elsewhere")).steps.empty());
}

TEST_F(Damage, GenerateTakesNoDamagedOne) {
  copy_whole("speak");
  flip_bit(checkpoint("speak", 30) + "/rank-00000.h5", 0.2);
  const ProgramOutcome outcome =
      run_program(area_->sluice({"generate", "--model", checkpoint("speak", 30), "--prompt", "the", "--max-new-tokens", "4"}));
  EXPECT_TRUE(refused_with(outcome, 4, {"step-00000030"}));
}

TEST_F(Damage, ATornLastLineOfMetricsIsNoDamage) {
  copy_whole("torn");
  std::ofstream(run("torn") + "/metrics.jsonl", std::ios::app) << R"({"kind":"train","step":31,"lo)";
  ASSERT_TRUE(ended_with(go_on("torn"), 0));
  EXPECT_TRUE(same_bits(run("torn"), run("longer")));
}

}  // namespace
}  // namespace sluice::testing
