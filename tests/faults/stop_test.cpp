// Runs that are asked to stop: the ranks agree, save and end with 75, and the same command goes on to the bits of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 400;
constexpr std::int64_t kStopAfter = 25;

class Stop : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    ASSERT_TRUE(ended_with(run_program(command("whole", 2)), 0));
  }
  static void TearDownTestSuite() { delete area_; }
  static std::string run(const std::string& name) { return *area_ / name; }
  static ProgramCommand command(const std::string& name, int ranks, const std::string& interval = "50") {
    return area_->train(ranks, name,
                        {"--steps", std::to_string(kSteps), "--plan", area_->plan({.ranks = ranks, .micro_batch = 4 / ranks}), "--set",
                         "sluice.checkpoint.interval=" + interval});
  }

  /// The run stopped in order after some step: exit code 75, a checkpoint of that very step, and it goes on to the same bits.
  static void expect_stopped(const std::string& name, const ProgramOutcome& outcome, const std::string& by) {
    ASSERT_TRUE(ended_with(outcome, 75));
    const RunStatus status = read_run_status(run(name));
    EXPECT_EQ(status.state, "stopped");
    EXPECT_EQ(status.exit_code, 75);
    EXPECT_TRUE(status.retriable);
    EXPECT_THAT(status.reason, HasSubstr(by));
    EXPECT_GE(status.step, kStopAfter);
    EXPECT_LT(status.step, kSteps);
    std::string expected = std::to_string(status.step);
    expected.insert(0, 8 - expected.size(), '0');
    EXPECT_EQ(status.last_checkpoint, "step-" + expected);
    EXPECT_TRUE(has_each_step_once(run(name), status.step));
    EXPECT_THAT(outcome.output, HasSubstr("the same command continues"));
    expect_goes_on(name, status.step);
  }
  static void expect_goes_on(const std::string& name, std::int64_t from) {
    const ProgramOutcome again = run_program(command(name, 2));
    ASSERT_TRUE(ended_with(again, 0));
    EXPECT_THAT(again.output, HasSubstr("(step " + std::to_string(from) + ", loaded in"));
    EXPECT_TRUE(same_bits(run(name), run("whole")));
  }

  static RunArea* area_;
};
RunArea* Stop::area_ = nullptr;

TEST_F(Stop, ASignalToAnyRankStopsAll) {
  int rank = 0;
  for (const auto& [signal, name] :
       std::vector<std::pair<int, std::string>>{{SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGTERM, "SIGTERM"}}) {
    SCOPED_TRACE(name);
    Program program(command(name, 2));
    ASSERT_TRUE(program.wait_until([&] { return last_step(run(name)) >= kStopAfter; })) << program.wait().all();
    const pid_t process = program.rank(rank);
    ASSERT_NE(process, 0);
    ASSERT_EQ(::kill(process, signal), 0);
    expect_stopped(name, program.wait(), rank == 0 ? name : "asked to stop");
    rank = 1 - rank;
  }
}

TEST_F(Stop, TheLauncherPassesSigusr1On) {
  Program program(command("launcher", 2));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("launcher")) >= kStopAfter; })) << program.wait().all();
  ASSERT_EQ(::kill(program.pid(), SIGUSR1), 0);
  expect_stopped("launcher", program.wait(), "SIGUSR1");
}

// The launcher itself ends its ranks soon after SIGTERM; whether or not they get to save, the run is whole and goes on.
TEST_F(Stop, SigtermToTheLauncherLeavesARunThatGoesOn) {
  Program program(command("term", 2));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("term")) >= kStopAfter; })) << program.wait().all();
  ASSERT_EQ(::kill(program.pid(), SIGTERM), 0);
  const ProgramOutcome outcome = program.wait();
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_TRUE(outcome.left.empty());
  const RunStatus status = read_run_status(run("term"));
  // Open MPI waits a second before it passes SIGTERM on; a quick run is through by then.
  EXPECT_TRUE(status.state == "running" || status.state == "finished" || (status.state == "stopped" && status.exit_code == 75))
      << status.state << " " << status.exit_code;
  ASSERT_TRUE(ended_with(run_program(command("term", 2)), 0));
  EXPECT_TRUE(same_bits(run("term"), run("whole")));
}

TEST_F(Stop, AFileNamedStop) {
  Program program(command("file", 2));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("file")) >= kStopAfter; })) << program.wait().all();
  std::ofstream(run("file") + "/STOP").put('\n');
  const ProgramOutcome outcome = program.wait();
  // The program looks twice a second, and a fast machine may be done by then.
  if (outcome.code == 0) GTEST_SKIP() << "the run ended before anybody looked for the file";
  EXPECT_FALSE(std::filesystem::exists(run("file") + "/STOP"));
  expect_stopped("file", outcome, "/STOP");
}

TEST_F(Stop, ASecondSignalSkipsTheSaving) {
  Program program(command("hurry", 2, "10"));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("hurry")) >= kStopAfter; })) << program.wait().all();
  const pid_t process = program.rank(1);
  ASSERT_NE(process, 0);
  // Both are there when it runs again.
  ::kill(process, SIGSTOP);
  ::kill(process, SIGUSR1);
  ::kill(process, SIGTERM);
  ::kill(process, SIGCONT);
  const ProgramOutcome outcome = program.wait();
  ASSERT_TRUE(ended_with(outcome, 75));
  const RunStatus status = read_run_status(run("hurry"));
  EXPECT_EQ(status.state, "stopped");
  EXPECT_TRUE(status.retriable);
  EXPECT_EQ(status.last_checkpoint, checkpoint_names(run("hurry")).back());
  const std::int64_t saved = std::stoll(status.last_checkpoint.substr(5));
  EXPECT_EQ(saved % 10, 0) << "a checkpoint out of turn: " << status.last_checkpoint;
  EXPECT_LE(saved, status.step);
  expect_goes_on("hurry", saved);
}

TEST_F(Stop, ASecondSignalBeforeAnyCheckpointIsNotResumable) {
  Program program(command("empty", 2, "0"));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("empty")) >= kStopAfter; })) << program.wait().all();
  const pid_t process = program.rank(0);
  ASSERT_NE(process, 0);
  ::kill(process, SIGSTOP);
  ::kill(process, SIGUSR1);
  ::kill(process, SIGUSR2);
  ::kill(process, SIGCONT);
  ASSERT_TRUE(ended_with(program.wait(), 3));
  const RunStatus status = read_run_status(run("empty"));
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_FALSE(status.retriable);
  EXPECT_TRUE(status.last_checkpoint.empty());
}

}  // namespace
}  // namespace sluice::testing
