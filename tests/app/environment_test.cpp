#include "app/environment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace sluice::app {
namespace {

/// A terminal of a width; both of its ends are closed in the end.
struct Terminal {
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    EXPECT_EQ(openpty(&ours, &theirs, nullptr, nullptr, &size), 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    close(ours);
    close(theirs);
  }
  int ours = -1, theirs = -1;
};

/// What `body` returns in a child process with this standard output.
int in_child(int output, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(dup2(output, STDOUT_FILENO) < 0 ? 255 : body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

int columns(const Environment& environment) {
  return watched_columns(environment).value_or(0);
}

const Environment kAlone{{"TERM", "xterm"}};
const Environment kRank{{"TERM", "xterm"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};

class Watched : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(pipe_), 0);
    file_ = open("/dev/null", O_WRONLY);
  }
  void TearDown() override {
    for (const int descriptor : {pipe_[0], pipe_[1], file_}) close(descriptor);
  }
  /// As a rank that a launcher with `of_launcher` as its output gives `of_rank`.
  static int columns_of_rank(int of_launcher, int of_rank) {
    return in_child(of_launcher, [&] { return in_child(of_rank, [] { return columns(kRank); }); });
  }
  const Terminal wide_{132}, narrow_{70};
  int pipe_[2] = {-1, -1};
  int file_ = -1;
};

TEST_F(Watched, WithoutALauncherStandardOutputSaysIt) {
  EXPECT_EQ(in_child(wide_.theirs, [] { return columns(kAlone); }), 132);
  EXPECT_EQ(in_child(pipe_[1], [] { return columns(kAlone); }), 0);
  EXPECT_EQ(in_child(file_, [] { return columns(kAlone); }), 0);
  const Terminal unsized(0);
  EXPECT_EQ(in_child(unsized.theirs, [] { return columns(kAlone); }), 80);
  EXPECT_EQ(in_child(wide_.theirs, [] { return columns({{"TERM", "dumb"}}); }), 0);
}

TEST_F(Watched, OfARankItsLaunchersOutputCounts) {
  EXPECT_EQ(columns_of_rank(wide_.theirs, narrow_.theirs), 132);
  EXPECT_EQ(columns_of_rank(pipe_[1], narrow_.theirs), 0);
  EXPECT_EQ(columns_of_rank(file_, narrow_.theirs), 0);
  EXPECT_EQ(columns_of_rank(wide_.theirs, pipe_[1]), 0);  // as with MPICH
}

TEST_F(Watched, AScriptBetweenLauncherAndRankIsPassedOver) {
  const std::string self = "/proc/self/exe";
  const auto through_script = [&](int of_launcher) {
    return in_child(of_launcher, [&] {
      return in_child(narrow_.theirs, [&] {
        // The script: a process that was started with a rank's variables.
        setenv("OMPI_COMM_WORLD_RANK", "0", 1);
        execl(self.c_str(), self.c_str(), "--gtest_filter=Watched.DISABLED_Script", "--gtest_also_run_disabled_tests", nullptr);
        return 255;
      });
    });
  };
  EXPECT_EQ(through_script(wide_.theirs), 132);
  EXPECT_EQ(through_script(pipe_[1]), 0);
}

/// Not a test by itself: what AScriptBetweenLauncherAndRankIsPassedOver starts.
TEST_F(Watched, DISABLED_Script) {
  _exit(in_child(STDOUT_FILENO, [] { return columns(kRank); }));
}

}  // namespace
}  // namespace sluice::app
