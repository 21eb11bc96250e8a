// Starts mpi_fault_program under tests/support/mpirun: whatever happens to one rank, all end soon, with the right code, and none
// is left.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace sluice::comm {
namespace {

struct Outcome {
  int code = -1;
  double seconds = 0;
  std::vector<int> processes;
  std::string output;
};

Outcome start(int ranks, const std::string& arguments, const std::string& environment = "") {
  const std::string command = environment + " " + SLUICE_SOURCE_DIR + "/tests/support/mpirun -n " + std::to_string(ranks) + " " +
                              SLUICE_BINARY_DIR + "/tests/mpi_fault_program " + arguments + " 2>&1";
  Outcome outcome;
  const std::int64_t begin = now_ns();
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) outcome.output += line.data();
  const int status = pclose(pipe);
  outcome.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  std::istringstream lines(outcome.output);
  for (std::string text; std::getline(lines, text);) {
    int process = 0;
    if (std::sscanf(text.c_str(), "process %d", &process) == 1) outcome.processes.push_back(process);
  }
  return outcome;
}

/// Runs still; a zombie that nobody has collected yet does not.
bool is_running(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // "PID (NAME) STATE ..."
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state != 'Z' && state != 'X';
}

void expect_all_gone(const Outcome& outcome, int ranks) {
  EXPECT_EQ(outcome.output.find("left behind"), std::string::npos) << outcome.output;  // the launcher didn't have to end them
  EXPECT_EQ(outcome.processes.size(), static_cast<std::size_t>(ranks)) << outcome.output;
  for (const int process : outcome.processes) EXPECT_FALSE(is_running(process)) << "process " << process << " is left\n" << outcome.output;
}

TEST(MpiFault, ARankThatThrowsEndsAllWithItsCode) {
  const Outcome outcome = start(3, "throw 5");
  EXPECT_EQ(outcome.code, 5) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
  EXPECT_NE(outcome.output.find("rank 2: a fault of the last rank"), std::string::npos) << outcome.output;
  expect_all_gone(outcome, 3);
}

TEST(MpiFault, AnyThreadMayAbort) {
  const Outcome outcome = start(2, "thread 3");
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
  expect_all_gone(outcome, 2);
}

TEST(MpiFault, AKilledRankEndsTheOthers) {
  const Outcome outcome = start(3, "kill");
  EXPECT_NE(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.code, 124) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
  expect_all_gone(outcome, 3);
}

TEST(MpiFault, ARankThatStopsIsGivenUpByName) {
  const Outcome outcome = start(3, "stop");
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_NE(outcome.output.find("nothing came from rank 2 for 2 s"), std::string::npos) << outcome.output;
  expect_all_gone(outcome, 3);
}

TEST(MpiFault, ARankThatNeverComesToABarrierIsGivenUp) {
  const Outcome outcome = start(3, "barrier");
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_GT(outcome.seconds, 6);
  EXPECT_LT(outcome.seconds, 30);
  for (const char* rank : {"rank 0", "rank 1"}) {
    EXPECT_NE(outcome.output.find(std::string(rank) + ": barrier: not every rank has come to it in 6 s"), std::string::npos)
        << outcome.output;
    // Another collective would meet the messages of the first.
    EXPECT_NE(outcome.output.find(std::string(rank) + ", again: all_gather: a rank was lost before"), std::string::npos) << outcome.output;
  }
  expect_all_gone(outcome, 3);
}

TEST(MpiFault, AnExceptionThatEscapesDoesNotHangInDestructors) {
  const Outcome outcome = start(2, "escape");
  EXPECT_EQ(outcome.code, 9) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
  expect_all_gone(outcome, 2);
}

TEST(MpiFault, AnAgreedEndReturnsItsCode) {
  const Outcome outcome = start(2, "exit 75");
  EXPECT_EQ(outcome.code, 75) << outcome.output;
  EXPECT_NE(outcome.output.find("rank 0: rank 1: agreed"), std::string::npos) << outcome.output;
  expect_all_gone(outcome, 2);
}

TEST(MpiFault, TheTestLauncherEndsEveryRankOnTimeOut) {
  const Outcome outcome = start(3, "wait", "SLUICE_TEST_TIMEOUT=3");
  EXPECT_EQ(outcome.code, 124) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
  expect_all_gone(outcome, 3);
}

}  // namespace
}  // namespace sluice::comm
