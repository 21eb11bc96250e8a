// The line of progress as somebody sees it who starts the program in a terminal, with and without mpirun, or sends its output to a file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::string kRewrite = "\r\033[K";

/// A terminal, and all that was written to it.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    if (openpty(&ours_, &theirs_, nullptr, nullptr, &size) != 0) throw std::runtime_error("no terminal");
    reader_ = std::thread([this] {
      char bytes[4096];
      for (bool last = false;; last = ends_) {  // once more after the end was told: what is there already
        pollfd ready{ours_, POLLIN, 0};
        while (::poll(&ready, 1, 20) > 0) {
          const ssize_t count = ::read(ours_, bytes, sizeof bytes);
          if (count <= 0) return;
          text_.append(bytes, static_cast<std::size_t>(count));
        }
        if (last) return;
      }
    });
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    text();
    ::close(ours_);
    ::close(theirs_);
  }

  /// The program's output, and its errors if wanted, go here.
  void serve(ProgramCommand& command, bool output = true) const {
    command.prepare = [theirs = theirs_, output] { return (output && ::dup2(theirs, 1) < 0) || ::dup2(theirs, 2) < 0 ? 126 : 0; };
    command.environment["TERM"] = "xterm";
  }
  /// After the program's end.
  const std::string& text() {
    ends_ = true;
    if (reader_.joinable()) reader_.join();
    return text_;
  }

 private:
  int ours_ = -1, theirs_ = -1;
  std::atomic<bool> ends_{false};
  std::string text_;
  std::thread reader_;
};

/// What the line showed at each rewriting.
std::vector<std::string> rewritten(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = text.find(kRewrite); at != std::string::npos; at = text.find(kRewrite, at + 1)) {
    const std::size_t begin = at + kRewrite.size(), end = text.find_first_of("\r\n", begin);
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

class InATerminal : public ::testing::Test {
 protected:
  ProgramCommand training(int ranks, const std::string& output) const {
    const std::string plan = ranks == 0 ? area_.plan({.ranks = 1, .micro_batch = 4}) : area_.plan();
    return area_.train(ranks, output, {"--steps", "400", "--plan", plan});
  }
  static void expect_full_line(const std::string& text) {
    const std::vector<std::string> lines = rewritten(text);
    ASSERT_GE(lines.size(), 2U) << text;
    EXPECT_THAT(lines.front(), MatchesRegex("step [0-9]+/400  loss [0-9.]+  .g. [0-9.]+  lr [-0-9.e]+  [0-9.]+ [mu]?s/step  "
                                            "[0-9.]+ tokens/s  device [0-9.]+ [KM]iB.*  left .*s"));
    EXPECT_THAT(lines.back(), HasSubstr("step 400/400"));
  }
  const RunArea area_;
};

TEST_F(InATerminal, MpirunShowsTheLine) {
  ProgramCommand command = training(2, "run");
  const char* const chosen = std::getenv("SLUICE_MPIRUN");
  const std::string launcher = chosen != nullptr ? chosen : command.environment.at("SLUICE_MPIRUN");
  if (launcher.find("mpich") != std::string::npos) GTEST_SKIP() << "MPICH gives its ranks pipes";
  Terminal terminal(160);
  terminal.serve(command);
  ASSERT_TRUE(ended_with(run_program(command), 0)) << terminal.text();
  expect_full_line(terminal.text());
  // What the terminal rewrote stands in the log, line by line.
  EXPECT_THAT(read_all(area_ / "run/log/rank-00000.log"), AllOf(HasSubstr(" step 1/400  loss "), HasSubstr(" step 400/400  loss ")));
}

TEST_F(InATerminal, TheLineFitsItsColumns) {
  Terminal terminal(80);
  ProgramCommand command = training(0, "run");
  terminal.serve(command);
  ASSERT_TRUE(ended_with(run_program(command), 0)) << terminal.text();
  const std::vector<std::string> lines = rewritten(terminal.text());
  ASSERT_GE(lines.size(), 2U) << terminal.text();
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 79U) << line;
    EXPECT_THAT(line, AllOf(HasSubstr("loss "), HasSubstr(" tokens/s"), MatchesRegex(".*[0-9] [mu]?s.*")));
  }
}

TEST_F(InATerminal, OutputToAFileIsPlainLines) {
  for (const int ranks : {0, 2}) {
    Terminal terminal(120);  // of errors only
    const std::string run = "run" + std::to_string(ranks);
    ProgramCommand command = training(ranks, run);
    terminal.serve(command, false);
    const ProgramOutcome outcome = run_program(command);
    ASSERT_TRUE(ended_with(outcome, 0)) << terminal.text();
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("\nstep 1/400  loss "), HasSubstr("\nstep 400/400  loss ")));
    EXPECT_THAT(outcome.output + terminal.text(), Not(HasSubstr("\033[K")));
  }
}

}  // namespace
}  // namespace sluice::testing
