// The main job from outside: what a run leaves, that the same command continues it, and that more ranks or fewer go on from it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Of those that this process may use.
int first_core() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  int core = 0;
  while (CPU_ISSET(core, &mask) == 0) ++core;
  return core;
}

class Train : public ::testing::Test {
 protected:
  // One undisturbed run that the tests look at or copy.
  static void SetUpTestSuite() {
    area_ = new RunArea;
    first_ = new ProgramOutcome(
        run_program(area_->train(2, "first", {"--steps", "30", "--set", valid(), "--set", "sluice.evaluate.interval=12"})));
    ASSERT_TRUE(ended_with(*first_, 0));
  }
  static void TearDownTestSuite() {
    delete first_;
    delete area_;
  }
  static std::string valid() { return "sluice.data.valid=[\"" + area_->valid() + "\"]"; }
  static std::string run(const std::string& name) { return *area_ / name; }
  /// A copy of the first run to go on from.
  static void copy_first(const std::string& name) { fs::copy(run("first"), run(name), fs::copy_options::recursive); }
  static std::vector<std::string> with_evaluation(std::vector<std::string> more) {
    for (const std::string& word : {std::string("--set"), valid(), std::string("--set"), std::string("sluice.evaluate.interval=12")})
      more.push_back(word);
    return more;
  }

  static RunArea* area_;
  static ProgramOutcome* first_;
};
RunArea* Train::area_ = nullptr;
ProgramOutcome* Train::first_ = nullptr;

TEST_F(Train, LeavesARunDirectory) {
  const std::string first = run("first");
  const RunStatus status = read_run_status(first);
  EXPECT_EQ(status.state, "finished");
  EXPECT_EQ(status.step, 30);
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_EQ(status.last_checkpoint, "step-00000030");
  EXPECT_EQ(status.attempt, 1);
  EXPECT_FALSE(status.retriable);
  EXPECT_THAT(checkpoint_names(first), ElementsAre("step-00000010", "step-00000020", "step-00000030"));
  for (const char* file : {"manifest.json", "rank-00000.h5", "rank-00001.h5", "model.h5"}) {
    EXPECT_TRUE(fs::exists(first + "/checkpoints/step-00000030/" + file)) << file;
  }

  EXPECT_TRUE(has_each_step_once(first, 30));
  const Records records = read_records(first);
  EXPECT_NEAR(records.steps.front().loss_value(), std::log(257.0), 0.1);  // an untrained model knows nothing
  EXPECT_LT(records.steps.back().loss_value(), 4);
  ASSERT_EQ(records.evaluations.size(), 3U);
  EXPECT_EQ(records.evaluations[0].first, 12);
  EXPECT_EQ(records.evaluations[1].first, 24);
  EXPECT_EQ(records.evaluations[2].first, 30);

  const json run = json::parse(read_all(first + "/run.json"));
  EXPECT_EQ(run.at("model").at("vocab"), 257);
  EXPECT_FALSE(run.at("versions").at("mpi").get<std::string>().empty());
  EXPECT_EQ(run.at("hosts").size(), 1U);
  EXPECT_GT(run.at("started").get<double>(), 1.7e9);
  const json plan = json::parse(read_all(first + "/plan.json"));
  EXPECT_EQ(plan.at("plan").at("mesh").at("data"), 2);
  EXPECT_EQ(plan.at("plan").at("micro_batch").get<int>() * plan.at("plan").at("accumulation").get<int>() * 2, 8);
  EXPECT_GT(plan.at("prediction").at("seconds").get<double>(), 0);
  EXPECT_FALSE(plan.at("refused").empty());
  EXPECT_EQ(plan.at("signature").at("dtypes"), "f32");
  const json profile = json::parse(read_all(first + "/profile.json"));
  EXPECT_GT(profile.at("machine").at("flops_per_core").get<double>(), 1e8);

  const json trace = json::parse(read_all(first + "/trace.json"));
  const json& events = trace.is_array() ? trace : trace.at("traceEvents");
  std::size_t spans = 0;
  for (const json& event : events) spans += event.at("ph") == "X" ? 1 : 0;
  EXPECT_GT(spans, 50U);

  std::ifstream log(first + "/log/rank-00000.log");
  const std::string text{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  EXPECT_THAT(text, HasSubstr("finished: 30 steps"));
  EXPECT_FALSE(fs::exists(first + "/log/rank-00001.log"));  // it had nothing to say
  EXPECT_THAT(first_->output, HasSubstr("arithmetic signature: dp 2 x micro"));
  EXPECT_THAT(first_->output, HasSubstr("not taken:"));
  EXPECT_EQ(first_->output.find('\033'), std::string::npos);  // no terminal, no control characters
}

TEST_F(Train, TheSameCommandAgainEndsAtOnceAndChangesNothing) {
  const auto before = snapshot(run("first"));
  const ProgramOutcome again = run_program(area_->train(2, "first", with_evaluation({"--steps", "30"})));
  ASSERT_TRUE(ended_with(again, 0));
  EXPECT_THAT(again.output, HasSubstr("this run is finished (30 steps)"));
  EXPECT_THAT(changed_files(before, snapshot(run("first"))), ElementsAre());
}

TEST_F(Train, MoreStepsGoOnAndTheLossesAreThoseOfOneLongRun) {
  copy_first("longer");
  ASSERT_TRUE(ended_with(run_program(area_->train(2, "longer", with_evaluation({"--steps", "70"}))), 0));
  ASSERT_TRUE(
      ended_with(run_program(area_->train(2, "one-long", with_evaluation({"--steps", "70", "--plan", run("first") + "/plan.json"}))), 0));
  EXPECT_TRUE(has_each_step_once(run("longer"), 70));
  const Records records = read_records(run("longer"));
  EXPECT_EQ(records.steps[29].attempt, 1);
  EXPECT_EQ(records.steps[30].attempt, 2);
  // Past the border of the epoch after step 58; the first run evaluated at its own end too.
  const Records straight = read_records(run("one-long"));
  for (std::size_t i = 0; i < 70; ++i) EXPECT_EQ(records.steps[i].loss, straight.steps[i].loss) << "step " << i + 1;
  EXPECT_EQ(records.evaluations.back(), straight.evaluations.back());
  EXPECT_EQ(read_run_status(run("longer")).attempt, 2);
}

TEST_F(Train, TwoRunsWithOnePlanHaveTheSameBits) {
  ASSERT_TRUE(
      ended_with(run_program(area_->train(2, "second", with_evaluation({"--steps", "30", "--plan", run("first") + "/plan.json"}))), 0));
  EXPECT_TRUE(same_bits(run("second"), run("first")));
  EXPECT_FALSE(fs::exists(run("second") + "/profile.json"));  // nothing had to be measured
}

TEST_F(Train, OtherRankCountsGoOnWithinTolerance) {
  ASSERT_TRUE(
      ended_with(run_program(area_->train(2, "reference", with_evaluation({"--steps", "40", "--plan", run("first") + "/plan.json"}))), 0));
  const Records reference = read_records(run("reference"));
  // Four ranks divide the batch of eight, as one does; three don't.
  for (const int ranks : {1, 4}) {
    SCOPED_TRACE(ranks);
    const std::string name = "on-" + std::to_string(ranks);
    copy_first(name);
    const ProgramOutcome outcome = run_program(area_->train(ranks, name, with_evaluation({"--steps", "40"})));
    ASSERT_TRUE(ended_with(outcome, 0));
    EXPECT_THAT(outcome.output, HasSubstr("can't be kept: it is for 2 ranks, here are " + std::to_string(ranks)));
    EXPECT_THAT(outcome.output, HasSubstr("made under another arithmetic signature"));
    ASSERT_TRUE(has_each_step_once(run(name), 40));
    const Records records = read_records(run(name));
    for (std::size_t i = 30; i < 40; ++i) {
      EXPECT_NEAR(records.steps[i].loss_value(), reference.steps[i].loss_value(), 1e-5 * reference.steps[i].loss_value())
          << "step " << i + 1;
    }
  }
}

/// Threads are arithmetic: a run keeps its own, whatever a later attempt may use, but for an explicit wish and for cores that aren't there.
TEST_F(Train, ARunKeepsItsThreadsUnlessAskedOtherwise) {
  if (std::thread::hardware_concurrency() < 2) return;  // nothing to tell apart
  json unsaid = json::parse(read_all(area_->config()));
  unsaid.at("sluice").erase("threads");
  const std::string config = area_->write("unsaid.json", unsaid.dump());
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"train", config, "--output", run(name)});
    return area_->sluice(more);
  };
  ASSERT_TRUE(ended_with(run_program(train("alone", {"--steps", "10", "--threads", "2"})), 0));
  ASSERT_EQ(json::parse(read_all(run("alone") + "/plan.json")).at("plan").at("threads"), 2);
  fs::copy(run("alone"), run("alone-straight"), fs::copy_options::recursive);
  ASSERT_TRUE(ended_with(run_program(train("alone-straight", {"--steps", "14", "--threads", "2"})), 0));

  // One core is given, the node has more.
  ProgramCommand on_one_core = train("alone", {"--steps", "14"});
  on_one_core.words.insert(on_one_core.words.begin(), {"taskset", "-c", std::to_string(first_core())});
  const ProgramOutcome kept = run_program(on_one_core);
  ASSERT_TRUE(ended_with(kept, 0));
  EXPECT_THAT(kept.output, HasSubstr("the run keeps 2 threads a rank, as it began, though this attempt was given cores for 1"));
  EXPECT_THAT(kept.output, Not(HasSubstr("another arithmetic signature")));
  EXPECT_TRUE(same_bits(run("alone"), run("alone-straight")));

  // Asked for.
  const ProgramOutcome asked = run_program(train("alone", {"--steps", "18", "--threads", "1"}));
  ASSERT_TRUE(ended_with(asked, 0));
  EXPECT_THAT(asked.output, HasSubstr("can't be kept: it is for 2 threads a rank, 1 is asked; planning anew"));
  EXPECT_THAT(asked.output, HasSubstr("losses go on within tolerance, not to the bit: "));
  EXPECT_THAT(asked.output, HasSubstr("threads: 1 here, 2 there"));  // with it the new plan may have another micro-batch, told before it
  ASSERT_TRUE(has_each_step_once(run("alone"), 18));

  // More cores than the run began with are left alone.
  const ProgramOutcome more = run_program(train("alone", {"--steps", "20"}));
  ASSERT_TRUE(ended_with(more, 0));
  EXPECT_THAT(more.output, HasSubstr("the run keeps 1 thread a rank, as it began, though it may use "));
  EXPECT_THAT(more.output, Not(HasSubstr("another arithmetic signature")));

  // What the node doesn't have.
  json plan = json::parse(read_all(run("alone") + "/plan.json"));
  plan["plan"]["threads"] = 4096;
  std::ofstream(run("alone") + "/plan.json") << plan.dump();
  const ProgramOutcome gone = run_program(train("alone", {"--steps", "22"}));
  ASSERT_TRUE(ended_with(gone, 0));
  EXPECT_THAT(gone.output, HasSubstr("can't be kept: it is for 4096 threads a rank, 1 rank on a node that has "));
  EXPECT_LT(json::parse(read_all(run("alone") + "/plan.json")).at("plan").at("threads").get<int>(), 4096);
}

TEST_F(Train, ThreeRanksGoOnFromTwo) {
  const std::vector<std::string> batch = {"--set", "train_batch_size=12"};
  const auto train = [&](int ranks, const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), batch.begin(), batch.end());
    return run_program(area_->train(ranks, name, more));
  };
  const std::string two = area_->plan({.ranks = 2, .zero_stage = 3, .micro_batch = 3, .accumulation = 2, .rcache_elements = 65536});
  const std::string three = area_->plan({.ranks = 3, .zero_stage = 2, .micro_batch = 2, .accumulation = 2, .update_mode = "at_end"});
  ASSERT_TRUE(ended_with(train(2, "twelve", {"--steps", "20", "--plan", two}), 0));
  fs::copy(run("twelve"), run("twelve-on-3"), fs::copy_options::recursive);
  ASSERT_TRUE(ended_with(train(2, "twelve", {"--steps", "30", "--plan", two}), 0));
  ASSERT_TRUE(ended_with(train(3, "twelve-on-3", {"--steps", "30", "--plan", three}), 0));
  ASSERT_TRUE(has_each_step_once(run("twelve-on-3"), 30));
  const Records reference = read_records(run("twelve")), records = read_records(run("twelve-on-3"));
  for (std::size_t i = 20; i < 30; ++i) {
    EXPECT_NEAR(records.steps[i].loss_value(), reference.steps[i].loss_value(), 1e-5 * reference.steps[i].loss_value()) << "step " << i + 1;
  }
}

TEST_F(Train, FlagsAloneAreEnoughWithoutALauncher) {
  const ProgramOutcome outcome = run_program(area_->sluice({"train",
                                                            "--model",
                                                            area_->model(),
                                                            "--set",
                                                            "sluice.init=scratch",
                                                            "--data",
                                                            area_->text(),
                                                            "--sequence-length",
                                                            "16",
                                                            "--epochs",
                                                            "0.1",
                                                            "--train-batch-size",
                                                            "4",
                                                            "--learning-rate",
                                                            "1e-3",
                                                            "--lr-scheduler-type",
                                                            "linear",
                                                            "--warmup-steps",
                                                            "3",
                                                            "--threads",
                                                            "1",
                                                            "--output",
                                                            run("flags")}));
  ASSERT_TRUE(ended_with(outcome, 0));
  // 937 samples of 16 tokens, a tenth of them in batches of 4.
  EXPECT_TRUE(has_each_step_once(run("flags"), 24));
  EXPECT_EQ(read_run_status(run("flags")).state, "finished");
}

TEST_F(Train, ANewRunBeginsAtANamedCheckpointAndThenGoesOnWithItsOwn) {
  const std::vector<std::string> words = {
      "--steps", "40", "--plan", run("first") + "/plan.json", "--resume", run("first") + "/checkpoints/step-00000020"};
  const ProgramOutcome begun = run_program(area_->train(2, "branch", words));
  ASSERT_TRUE(ended_with(begun, 0));
  EXPECT_THAT(begun.output, HasSubstr("continuing from " + run("first") + "/checkpoints/step-00000020"));
  EXPECT_EQ(read_records(run("branch")).steps.front().step, 21);
  std::vector<std::string> more = words;
  more[1] = "45";
  const ProgramOutcome again = run_program(area_->train(2, "branch", more));
  ASSERT_TRUE(ended_with(again, 0));
  EXPECT_THAT(again.output, HasSubstr("continuing from " + run("branch") + "/checkpoints/step-00000040"));
  const Records first = read_records(run("first")), branch = read_records(run("branch"));
  for (std::size_t i = 20; i < 30; ++i) EXPECT_EQ(branch.steps[i - 20].loss, first.steps[i].loss);
  EXPECT_EQ(branch.steps.size(), 25U);
  // Lion's moment lies in the plane of Adam's first one, but isn't the same thing.
  EXPECT_TRUE(
      refused_with(run_program(area_->train(2, "other-optimizer",
                                            {"--steps", "40", "--set", "optimizer.type=Lion", "--set", "optimizer.params={\"lr\": 1e-4}",
                                             "--resume", run("first") + "/checkpoints/step-00000020"})),
                   2, {"step-00000020", "optimizer adamw", "lion is asked", "--model"}));
}

TEST_F(Train, ACheckpointPastTheLastStepLeavesNothingToTrain) {
  const ProgramOutcome outcome = run_program(
      area_->train(2, "past", {"--steps", "10", "--plan", area_->plan(), "--resume", run("first") + "/checkpoints/step-00000020"}));
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("the checkpoint is of step 20, past the last one that is asked, 10: there is nothing to train"));
  EXPECT_TRUE(read_records(run("past")).steps.empty());
  EXPECT_EQ(read_run_status(run("past")).step, 20);
}

TEST_F(Train, DumpsItsGraph) {
  const ProgramOutcome outcome = run_program(area_->train(2, "dump", {"--steps", "2", "--plan", area_->plan(), "--dump-graph"}));
  ASSERT_TRUE(ended_with(outcome, 0));
  for (const char* kind : {"load", "agree", "compute", "scatter", "gather", "norm", "update"}) EXPECT_THAT(outcome.output, HasSubstr(kind));
}

}  // namespace
}  // namespace sluice::testing
