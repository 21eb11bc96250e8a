// Runs that are killed. The same command afterwards goes on, and what it then computes is what an undisturbed run computes, to the bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 150;  // the text has 58 steps an epoch

double draw(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

class Kill : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    ASSERT_TRUE(ended_with(run_program(command("whole")), 0));
    ASSERT_TRUE(has_each_step_once(run("whole"), kSteps));
    ASSERT_EQ(read_records(run("whole")).evaluations.size(), 10U);
  }
  static void TearDownTestSuite() { delete area_; }

  static std::string run(const std::string& name) { return *area_ / name; }
  static ProgramCommand command(const std::string& name) {
    return area_->train(2, name,
                        {"--steps", std::to_string(kSteps), "--plan", area_->plan(), "--set",
                         "sluice.data.valid=[\"" + area_->valid() + "\"]", "--set", "sluice.evaluate.interval=15"});
  }

  /// Starts the run, kills it `kills` times at random, lets it end and holds it against the undisturbed one.
  static void kill_and_continue(const std::string& name, int kills, std::uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < kills; ++i) {
      Program program(command(name));
      if (draw(random, 0, 1) < 0.3) {
        // Anywhere: in MPI's start, the planning, the loading, a step, a save.
        std::this_thread::sleep_for(std::chrono::duration<double>(draw(random, 0, 2)));
      } else {
        // Each time further on, and then anywhere in a step or the save after it.
        const auto step = static_cast<std::int64_t>((i + draw(random, 0, 1)) * kSteps / kills);
        ASSERT_TRUE(program.wait_until([&] { return last_step(run(name)) >= step; })) << program.wait().all();
        std::this_thread::sleep_for(std::chrono::duration<double>(draw(random, 0, draw(random, 0, 1) < 0.5 ? 0.01 : 0.15)));
      }
      if (draw(random, 0, 1) < 0.3) {
        // One rank only; the launcher and the others have to notice.
        const pid_t victim = program.rank(draw(random, 0, 1) < 0.5 ? 0 : 1);
        if (victim != 0) ::kill(victim, SIGKILL);
        const ProgramOutcome outcome = program.wait();
        EXPECT_FALSE(outcome.timed_out) << outcome.all();
        EXPECT_TRUE(outcome.left.empty());
      } else {
        program.kill_all();
      }
    }
    const ProgramOutcome last = run_program(command(name));
    ASSERT_TRUE(ended_with(last, 0));
    EXPECT_TRUE(has_each_step_once(run(name), kSteps));
    EXPECT_TRUE(same_bits(run(name), run("whole")));
    EXPECT_EQ(read_run_status(run(name)).state, "finished");
    EXPECT_EQ(checkpoint_names(run(name)), checkpoint_names(run("whole")));
  }

  static RunArea* area_;
};
RunArea* Kill::area_ = nullptr;
using SlowKill = Kill;

TEST_F(Kill, FiveTimesAtRandomAndContinued) {
  kill_and_continue("five", 5, std::random_device{}());
}

TEST_F(SlowKill, FiftyTimesAtRandomAndContinued) {
  for (int round = 0; round < 10; ++round) {
    kill_and_continue("round-" + std::to_string(round), 5, std::random_device{}());
    if (HasFailure()) break;
  }
}

TEST_F(Kill, OneDeadRankEndsAllWithinSecondsAndTheRunGoesOn) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const std::string name = "dead-" + std::to_string(rank);
    Program program(command(name));
    ASSERT_TRUE(program.wait_until([&] { return last_step(run(name)) >= 25; })) << program.wait().all();
    const pid_t victim = program.rank(rank);
    ASSERT_NE(victim, 0);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    const ProgramOutcome outcome = program.wait();
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 15);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_NE(outcome.code, 0);
    EXPECT_TRUE(outcome.left.empty()) << outcome.left.size() << " processes left";

    // What is left says that it can be continued: `running` without an owner, or told so by a rank that lived.
    const RunStatus status = read_run_status(run(name));
    EXPECT_TRUE(status.state == "running" || (status.exit_code == 75 && status.retriable)) << status.state << " " << status.exit_code;
    const ProgramOutcome again = run_program(command(name));
    ASSERT_TRUE(ended_with(again, 0));
    EXPECT_THAT(again.output, HasSubstr("continuing from"));
    EXPECT_TRUE(same_bits(run(name), run("whole")));
  }
}

// The points of the save that its own tests know, reached by a whole run.
TEST_F(Kill, InTheMiddleOfASave) {
  for (const char* point : {"after_create", "after_shard_write", "before_manifest"}) {
    SCOPED_TRACE(point);
    const std::string name = std::string("save-") + point;
    ProgramCommand crashing = command(name);
    crashing.environment["SLUICE_CRASH_AT"] = point;
    const ProgramOutcome outcome = run_program(crashing);
    EXPECT_NE(outcome.code, 0);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_TRUE(outcome.left.empty());
    EXPECT_TRUE(checkpoint_names(run(name)).empty());
    ASSERT_TRUE(ended_with(run_program(command(name)), 0));
    EXPECT_TRUE(same_bits(run(name), run("whole")));
  }
}

}  // namespace
}  // namespace sluice::testing
