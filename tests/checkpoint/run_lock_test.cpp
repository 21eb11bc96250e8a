#include "checkpoint/run_lock.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::checkpoint {
namespace {

using sluice::testing::expect_error;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

RunLock::Options options(const std::string& host = "node1", const std::string& label = "") {
  return {host, label, false};
}

TEST(RunLock, ASecondRunIsToldWhoHoldsTheDirectory) {
  const TempDir dir;
  const std::string run = dir / "new/run";
  const RunLock lock = RunLock::acquire(run, options("node1", "job 77"));
  EXPECT_EQ(lock.note(), "");
  expect_error<RequestError>([&] { RunLock::acquire(run, options("node2")); },
                             {run, cat("process ", ::getpid(), " on host node1 (job 77)"), "choose another"});
}

TEST(RunLock, IsFreeAfterReleaseAndMovesWithItsOwner) {
  const TempDir dir;
  {
    RunLock first = RunLock::acquire(dir.path(), options());
    const RunLock second = std::move(first);
    expect_error<RequestError>([&] { RunLock::acquire(dir.path(), options()); }, {"works in this run directory"});
  }
  const RunLock again = RunLock::acquire(dir.path(), options());
  EXPECT_EQ(again.note(), "") << "a clean end leaves nothing to report";
}

TEST(RunLock, AKilledOwnerIsReportedAndReplaced) {
  const TempDir dir;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock = RunLock::acquire(dir.path(), options("node9", "job 5"));
    ::_exit(0);  // as a kill: no destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const RunLock lock = RunLock::acquire(dir.path(), options("node1"));
  EXPECT_THAT(lock.note(), HasSubstr(cat("process ", child, " on host node9 (job 5)")));
  EXPECT_THAT(lock.note(), HasSubstr("ended without releasing"));
  EXPECT_THAT(lock.note(), HasSubstr("make sure that it has ended"));
  EXPECT_EQ(nlohmann::json::parse(read_text(dir / ".sluice-lock"))["host"], "node1");
}

TEST(RunLock, ATornContentNamesNobody) {
  const TempDir dir;
  dir.write(".sluice-lock", "{\"host\": 3, \"pi");
  EXPECT_EQ(RunLock::acquire(dir.path(), options()).note(), "");
  dir.write(".sluice-lock", "{\"host\": 3}");
  EXPECT_EQ(RunLock::acquire(dir.path(), options()).note(), "");
}

}  // namespace
}  // namespace sluice::checkpoint
