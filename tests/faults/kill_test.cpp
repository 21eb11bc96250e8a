// Runs that are killed. The same command afterwards goes on, and what it then computes is what an undisturbed run computes, to the bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "support/sanitized.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
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
  static ProgramCommand command(const std::string& name, int steps = kSteps) {
    return area_->train(2, name,
                        {"--steps", std::to_string(steps), "--plan", area_->plan(), "--set",
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
      if (program.is_running()) ++landed_;
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
  static int landed_;  // kills that met a living run
};
RunArea* Kill::area_ = nullptr;
int Kill::landed_ = 0;
using SlowKill = Kill;

TEST_F(Kill, FiveTimesAtRandomAndContinued) {
  kill_and_continue("five", 5, std::random_device{}());
}

TEST_F(SlowKill, FiftyTimesAtRandomAndContinued) {
  landed_ = 0;
  int round = 0;
  for (; landed_ < 50 && round < 30; ++round) {  // a kill may come when the run has just ended
    kill_and_continue("round-" + std::to_string(round), 5, std::random_device{}());
    if (HasFailure()) return;
  }
  EXPECT_GE(landed_, 50) << "kills that met a living run in " << round << " rounds";
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

// Three ranks notice at once that the fourth is silent. One of them tells it and ends the others. With a save after each step, which takes
// longer than the step, the rank hangs in one most of the time.
TEST_F(Kill, ARankThatHangsIsToldOnceAndTheRunGoesOn) {
  for (const auto& [interval, hanging] : std::vector<std::pair<int, int>>{{200, 0}, {1, 2}}) {
    SCOPED_TRACE("checkpoints every " + std::to_string(interval) + " steps, rank " + std::to_string(hanging));
    const std::string name = "hangs-" + std::to_string(hanging);
    const int limit = kIsSanitized ? 12 : 3;  // seconds
    const auto four = [&](std::int64_t steps) {
      ProgramCommand command = area_->train(4, name,
                                            {"--steps", std::to_string(steps), "--plan", area_->plan({.ranks = 4, .accumulation = 1}),
                                             "--set", "sluice.checkpoint.interval=" + std::to_string(interval)});
      command.environment["DEEPSPEED_TIMEOUT"] = std::to_string(limit / 60.0);
      return command;
    };
    Program program(four(100'000));
    ASSERT_TRUE(program.wait_until([&] { return last_step(run(name)) >= interval + 5; })) << program.wait().all();
    ASSERT_NE(program.rank(hanging), 0);
    ASSERT_EQ(::kill(program.rank(hanging), SIGSTOP), 0);
    const ProgramOutcome outcome = program.wait();
    EXPECT_TRUE(ended_with(outcome, 75));
    EXPECT_EQ(outcome.error_lines().size(), 1U) << outcome.all();
    EXPECT_THAT(outcome.errors,
                ::testing::AnyOf(HasSubstr("nothing came from rank " + std::to_string(hanging) + " for " + std::to_string(limit) + " s"),
                                 HasSubstr("not every rank has come to it in " + std::to_string(3 * limit) + " s")));
    EXPECT_THAT(outcome.errors, HasSubstr("The same command continues from step-"));
    EXPECT_THAT(outcome.errors, ::testing::Not(HasSubstr("warning")));
    const RunStatus status = read_run_status(run(name));
    EXPECT_EQ(status.state, "stopped");
    EXPECT_EQ(status.exit_code, 75);
    EXPECT_TRUE(status.retriable);
    const int from = std::stoi(checkpoint_names(run(name)).back().substr(5));
    ASSERT_TRUE(ended_with(run_program(four(from + 5)), 0));
    EXPECT_TRUE(has_each_step_once(run(name), from + 5));
  }
}

// What rank 0 opens never answers, so that it hangs, and so does whoever wants to write there why the run ends.
TEST_F(Kill, AFileSystemThatHangsHoldsNobody) {
  const std::string name = "deaf";
  const int limit = kIsSanitized ? 12 : 3;  // seconds
  ProgramCommand endless = command(name, 1'000'000);
  endless.environment["DEEPSPEED_TIMEOUT"] = std::to_string(limit / 60.0);
  Program program(endless);
  ASSERT_TRUE(program.wait_until([&] { return last_step(run(name)) >= 25; })) << program.wait().all();
  // A fifo without a reader, in the way of the next status.json: one that is being written may take one attempt's name away.
  const std::string fifo = run(name) + "/status.json.tmp";
  ASSERT_TRUE(program.wait_until([&] { return ::mkfifo(fifo.c_str(), 0600) == 0; }));
  const ProgramOutcome outcome = program.wait();
  EXPECT_TRUE(ended_with(outcome, 75));
  EXPECT_EQ(outcome.error_lines().size(), 1U) << outcome.all();
  std::filesystem::remove(fifo);
  const int from = std::stoi(checkpoint_names(run(name)).back().substr(5));
  ASSERT_TRUE(ended_with(run_program(command(name, from + 5)), 0));
  EXPECT_TRUE(has_each_step_once(run(name), from + 5));
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

// Whether the last step is evaluated before it is saved (for the best checkpoint) or after it: a kill between the two and one after both
// neither lose the evaluation nor double it.
TEST_F(Kill, AroundTheLastEvaluation) {
  for (const char* best : {"true", "false"}) {
    SCOPED_TRACE(std::string("sluice.checkpoint.best ") + best);
    const std::string name = std::string("around-") + best;
    const auto train = [&](int steps) {
      ProgramCommand command = Kill::command(name, steps);
      command.words.insert(command.words.end(), {"--set", std::string("sluice.checkpoint.best=") + best});
      return command;
    };
    const auto evaluated = [&] {
      std::vector<std::int64_t> steps;
      for (const auto& [step, loss] : read_records(run(name)).evaluations) steps.push_back(step);
      return steps;
    };
    ASSERT_TRUE(ended_with(run_program(train(20)), 0));
    ProgramCommand crashing = train(30);
    crashing.environment["SLUICE_CRASH_AT"] = "after_latest";
    EXPECT_NE(run_program(crashing).code, 0);
    ASSERT_EQ(checkpoint_names(run(name)).back(), "step-00000030");
    if (std::string(best) == "true") {
      EXPECT_THAT(evaluated(), ElementsAre(15, 20, 30));
    } else {
      EXPECT_THAT(evaluated(), ElementsAre(15, 20));
    }
    ASSERT_TRUE(ended_with(run_program(train(30)), 0));
    EXPECT_THAT(evaluated(), ElementsAre(15, 20, 30));

    // As a kill before the run's end leaves it.
    std::string status = read_all(run(name) + "/status.json");
    const std::size_t at = status.find("\"finished\"");
    ASSERT_NE(at, std::string::npos);
    std::ofstream(run(name) + "/status.json") << status.replace(at, 10, "\"running\"");
    const ProgramOutcome again = run_program(train(30));
    ASSERT_TRUE(ended_with(again, 0));
    EXPECT_THAT(again.output, HasSubstr("continuing from"));
    EXPECT_THAT(evaluated(), ElementsAre(15, 20, 30));
    const auto whole = read_records(run("whole")).evaluations;
    EXPECT_EQ(read_records(run(name)).evaluations.back(),
              *std::find_if(whole.begin(), whole.end(), [](const auto& each) { return each.first == 30; }));
  }
}

}  // namespace
}  // namespace sluice::testing
