// Runs that are asked to stop: the ranks agree, save and end with 75, and the same command goes on to the bits of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "support/chunk_count.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWhole = 1500;  // steps of the undisturbed run
constexpr std::int64_t kStopAfter = 25;
constexpr std::int64_t kGoOn = 20;  // steps after a stop that are held against the undisturbed run

class Stop : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    ASSERT_TRUE(ended_with(run_program(command("whole", kWhole)), 0));
  }
  static void TearDownTestSuite() { delete area_; }
  static std::string run(const std::string& name) { return *area_ / name; }
  static ProgramCommand command(const std::string& name, std::int64_t steps, const std::string& interval = "50") {
    return area_->train(2, name,
                        {"--steps", std::to_string(steps), "--plan", area_->plan(), "--set", "sluice.checkpoint.interval=" + interval});
  }
  /// A run without an end, past its first steps.
  static std::unique_ptr<Program> start(const std::string& name, const std::string& interval = "50") {
    auto program = std::make_unique<Program>(command(name, 1'000'000, interval));
    EXPECT_TRUE(program->wait_until([&] { return last_step(run(name)) >= kStopAfter; })) << program->wait().all();
    return program;
  }
  /// Sends to one rank.
  static void tell(const Program& program, int rank, const std::vector<int>& signals) {
    const pid_t process = program.rank(rank);
    ASSERT_NE(process, 0);
    for (const int signal : signals) ASSERT_EQ(::kill(process, signal), 0);
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
    std::string expected = std::to_string(status.step);
    expected.insert(0, 8 - expected.size(), '0');
    EXPECT_EQ(status.last_checkpoint, "step-" + expected);
    EXPECT_TRUE(has_each_step_once(run(name), status.step));
    EXPECT_THAT(outcome.output, HasSubstr("the same command continues"));
    expect_goes_on(name, status.step);
  }
  static void expect_goes_on(const std::string& name, std::int64_t from) {
    const ProgramOutcome again = run_program(command(name, from + kGoOn));
    ASSERT_TRUE(ended_with(again, 0));
    EXPECT_THAT(again.output, HasSubstr("(step " + std::to_string(from) + ", loaded in"));
    EXPECT_TRUE(has_each_step_once(run(name), from + kGoOn));
    EXPECT_TRUE(same_bits(run(name), run("whole"), std::min(kWhole, from + kGoOn)));
  }

  static RunArea* area_;
};
RunArea* Stop::area_ = nullptr;
using SlowStop = Stop;

TEST_F(Stop, ASignalToAnyRankStopsAll) {
  int rank = 0;
  for (const auto& [signal, name] :
       std::vector<std::pair<int, std::string>>{{SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGTERM, "SIGTERM"}}) {
    SCOPED_TRACE(name);
    const auto program = start(name);
    tell(*program, rank, {signal});
    expect_stopped(name, program->wait(), "asked to stop by " + name);
    rank = 1 - rank;
  }
}

// oneDNN's sgemm for AVX-512 keeps data below the stack pointer: a signal handler on a thread inside it would damage the heap, in one of
// some twenty-five stops.
TEST_F(SlowStop, AHundredStopsDamageNothing) {
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const std::string name = "storm-" + std::to_string(i);
    const auto program = start(name);
    ASSERT_EQ(::kill(program->pid(), SIGUSR1), 0);
    ASSERT_TRUE(ended_with(program->wait(), 75));
    const std::int64_t step = read_run_status(run(name)).step;
    EXPECT_TRUE(same_bits(run(name), run("whole"), std::min(kWhole, step)));
    std::filesystem::remove_all(run(name));
  }
}

TEST_F(Stop, TheLauncherPassesSigusr1On) {
  const auto program = start("launcher");
  ASSERT_EQ(::kill(program->pid(), SIGUSR1), 0);
  expect_stopped("launcher", program->wait(), "SIGUSR1");
}

// The launcher itself ends its ranks soon after SIGTERM; whether or not they get to save, the run is whole and goes on. The code is the
// launcher's own: Hydra's is 0.
TEST_F(Stop, SigtermToTheLauncherLeavesARunThatGoesOn) {
  const auto program = start("term");
  ASSERT_EQ(::kill(program->pid(), SIGTERM), 0);
  const ProgramOutcome outcome = program->wait();
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_TRUE(outcome.left.empty());
  const RunStatus status = read_run_status(run("term"));
  EXPECT_TRUE(status.state == "running" || (status.state == "stopped" && status.exit_code == 75))
      << status.state << " " << status.exit_code;
  const std::int64_t from = checkpoint_names(run("term")).empty() ? 0 : std::stoll(checkpoint_names(run("term")).back().substr(5));
  ASSERT_TRUE(ended_with(run_program(command("term", from + kGoOn)), 0));
  EXPECT_TRUE(has_each_step_once(run("term"), from + kGoOn));
  EXPECT_TRUE(same_bits(run("term"), run("whole"), std::min(kWhole, from + kGoOn)));
}

TEST_F(Stop, AFileNamedStop) {
  const auto program = start("file");
  std::ofstream(run("file") + "/STOP").put('\n');
  const ProgramOutcome outcome = program->wait();
  EXPECT_FALSE(std::filesystem::exists(run("file") + "/STOP"));
  expect_stopped("file", outcome, "/STOP");
}

TEST_F(Stop, ASecondSignalSkipsTheSaving) {
  const auto program = start("hurry", "10");
  tell(*program, 1, {SIGSTOP, SIGUSR1, SIGTERM, SIGCONT});  // both are there when it runs again
  const ProgramOutcome outcome = program->wait();
  ASSERT_TRUE(ended_with(outcome, 75));
  EXPECT_THAT(outcome.output, HasSubstr("a second signal came"));
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
  const auto program = start("empty", "0");
  tell(*program, 0, {SIGSTOP, SIGUSR1, SIGUSR2, SIGCONT});
  ASSERT_TRUE(ended_with(program->wait(), 3));
  const RunStatus status = read_run_status(run("empty"));
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_FALSE(status.retriable);
  EXPECT_TRUE(status.last_checkpoint.empty());
}

// Asked before the first step, a run saves what it has: its state at step 0, or that of the checkpoint it came from.
TEST_F(Stop, AFileThatWaitsForTheRunStopsItOnce) {
  std::filesystem::create_directories(run("early"));
  std::ofstream(run("early") + "/STOP").put('\n');
  const ProgramOutcome outcome = run_program(command("early", 40));
  ASSERT_TRUE(ended_with(outcome, 75));
  EXPECT_FALSE(std::filesystem::exists(run("early") + "/STOP"));
  EXPECT_LE(read_run_status(run("early")).step, 1);
  ASSERT_TRUE(ended_with(run_program(command("early", 40)), 0));
  EXPECT_TRUE(has_each_step_once(run("early"), 40));
  EXPECT_TRUE(same_bits(run("early"), run("whole"), 40));
}

// While the files to swap to are written for the first time there is no state to save: the run ends at once and leaves nothing there.
TEST_F(Stop, WhileSwapFilesAreWritten) {
  std::filesystem::create_directories(run("disk"));
  std::filesystem::create_directories(run("filling"));
  PlanChoice choice;
  choice.zero_stage = 3;
  choice.rcache_elements = 65536;
  choice.chunks = chunk_count(area_->model(), choice.chunk_elements);
  choice.working = choice.states = "disk";
  choice.gradient = "host";
  const ProgramCommand swapping = area_->train(2, "filling", {"--steps", "40", "--plan", area_->plan(choice), "--nvme-path", run("disk")});
  std::ofstream(run("filling") + "/STOP").put('\n');
  const ProgramOutcome outcome = run_program(swapping);
  ASSERT_TRUE(ended_with(outcome, 75));
  EXPECT_THAT(outcome.all(), HasSubstr("/STOP while the swap files were written; the same command begins anew"));
  const RunStatus status = read_run_status(run("filling"));
  EXPECT_EQ(status.state, "stopped");
  EXPECT_TRUE(status.retriable);
  EXPECT_THAT(status.reason, HasSubstr("asked to stop by the file "));
  EXPECT_FALSE(std::filesystem::exists(run("filling") + "/STOP"));
  EXPECT_TRUE(std::filesystem::is_empty(run("disk")));
  ASSERT_TRUE(ended_with(run_program(swapping), 0));
  EXPECT_TRUE(has_each_step_once(run("filling"), 40));
  EXPECT_TRUE(std::filesystem::is_empty(run("disk")));
}

}  // namespace
}  // namespace sluice::testing
