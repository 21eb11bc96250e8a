// Runs whose states live on disk, where the disk or the system is not as it should be: each ends with its message and code, or carries on
// correctly. What needs root is skipped by name without.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/chunk_count.hpp"
#include "support/sanitized.hpp"
#include "support/small_disk.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMiB = 1 << 20;

int with_little_lockable_memory() {
  const rlimit limit{64 << 10, 64 << 10};
  return ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? become_ordinary() : kNotAllowed;
}

class TiersFaults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    // Everything off the device, and, to compare with, the same arithmetic on it.
    PlanChoice choice;
    choice.zero_stage = 3;
    choice.chunk_elements = 4096;
    choice.rcache_elements = 40960;
    const std::string at_home = area_->plan(choice);
    choice.chunks = chunk_count(area_->model(), choice.chunk_elements);
    choice.working = choice.states = "disk";
    choice.gradient = "host";
    plan_ = area_->plan(choice);
    ASSERT_TRUE(ended_with(run_program(area_->train(2, "home", {"--steps", "14", "--plan", at_home})), 0));
  }
  static void TearDownTestSuite() { delete area_; }

  static std::string run(const std::string& name) { return *area_ / name; }
  static ProgramCommand command(const std::string& output, const std::string& path, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--steps", "14", "--plan", plan_, "--nvme-path", path};
    words.insert(words.end(), more.begin(), more.end());
    return area_->train(2, output, words);
  }
  static std::string folder(const std::string& name) {
    fs::create_directories(run(name));
    return run(name);
  }
  /// Refused before anything is made.
  static void expect_refused(const ProgramOutcome& outcome, int code, const std::vector<std::string>& parts) {
    EXPECT_TRUE(refused_with(outcome, code, parts));
    EXPECT_LT(outcome.seconds, 30);
    EXPECT_FALSE(fs::exists(run("new"))) << "a run directory was made";
  }
  static void expect_carries_on(const std::string& output, const ProgramOutcome& outcome, const std::string& path) {
    EXPECT_TRUE(ended_with(outcome, 0));
    EXPECT_TRUE(same_bits(run(output), run("home")));
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("sluice-"))) << "a swap file is left";
  }

  static RunArea* area_;
  static std::string plan_;
};
RunArea* TiersFaults::area_ = nullptr;
std::string TiersFaults::plan_;

TEST_F(TiersFaults, AMissingPathAFileAndNoPath) {
  expect_refused(run_program(command("new", run("absent"))), 2, {run("absent"), "does not exist", "choose another directory"});
  expect_refused(run_program(command("new", area_->text())), 2, {"text.txt", "is not a directory"});
  expect_refused(run_program(command("new", folder("same"), {"--nvme-path", run("same/../same")})), 2, {"is the same directory as"});
  EXPECT_TRUE(refused_with(run_program(area_->train(2, "nopath", {"--steps", "14", "--plan", plan_})), 2,
                           {"--plan", "it uses a disk", "--nvme-path DIR"}));
}

TEST_F(TiersFaults, APathThatCanNotBeWritten) {
  ::chmod(folder("locked").c_str(), 0555);
  ProgramCommand locked = command("new", run("locked"));
  locked.prepare = become_ordinary;
  const ProgramOutcome outcome = run_program(locked);
  if (outcome.code == kNotAllowed) GTEST_SKIP() << "root may not give up its powers here";
  expect_refused(outcome, 3, {run("locked"), "Permission denied", "--nvme-path"});
}

TEST_F(TiersFaults, MoreSpaceThanTheDiskHas) {
  EXPECT_TRUE(refused_with(run_program(command("large", folder("disk"), {"--nvme-space", "900TiB"})), 3,
                           {"--nvme-space 900 TiB", run("disk"), "there is room for", "make room"}));
}

TEST_F(TiersFaults, TmpfsAndOverlayServeWithAWarning) {
  const auto memory = SmallDisk::tmpfs(64 * kMiB);
  SKIP_WITHOUT(memory, "a tmpfs");
  const ProgramOutcome outcome = run_program(command("tmpfs", memory->path()));
  expect_carries_on("tmpfs", outcome, memory->path());
  EXPECT_THAT(outcome.errors, HasSubstr("tmpfs keeps files in memory, so swapping frees none"));

  const auto over = SmallDisk::overlay(*memory);
  SKIP_WITHOUT(over, "an overlay");
  expect_carries_on("overlay", run_program(command("overlay", over->path())), over->path());
}

// What stands on disk is scratch: a batch system clears it away after each job.
TEST_F(TiersFaults, TheDirectoryMayBeGoneNextTime) {
  const auto job = [](const std::string& path, const char* steps) {
    return run_program(area_->train(2, "moved", {"--steps", steps, "--plan", plan_, "--nvme-path", path}));
  };
  ASSERT_TRUE(ended_with(job(folder("job 1/ünïcode"), "7"), 0));
  fs::remove_all(run("job 1"));
  EXPECT_TRUE(ended_with(job(folder("job2") + "//", "14"), 0));
  EXPECT_TRUE(has_each_step_once(run("moved"), 14));
  EXPECT_TRUE(same_bits(run("moved"), run("home")));
  fs::remove_all(run("job2"));
  EXPECT_TRUE(ended_with(job(run("job2"), "14"), 0)) << "nothing is left to do";
  EXPECT_TRUE(refused_with(job(run("job2"), "15"), 2, {run("job2"), "does not exist"}));
  EXPECT_EQ(read_run_status(run("moved")).state, "finished") << "nothing was begun";
}

TEST_F(TiersFaults, TwoJobsOnOnePath) {
  const std::string path = folder("shared");
  Program first(command("first", path, {"--set", "sluice.checkpoint.interval=0"}));
  Program second(command("second", path, {"--set", "sluice.checkpoint.interval=0"}));
  EXPECT_TRUE(ended_with(first.wait(), 0));
  EXPECT_TRUE(ended_with(second.wait(), 0));
  EXPECT_TRUE(same_bits(run("first"), run("home")));
  EXPECT_TRUE(same_bits(run("second"), run("home")));
  EXPECT_TRUE(fs::is_empty(path));
}

TEST_F(TiersFaults, ALivingJobIsListedAndLeftAlone) {
  const std::string path = folder("living");
  Program living(area_->train(2, "living-run", {"--steps", "100000", "--plan", plan_, "--nvme-path", path}));
  ASSERT_TRUE(living.wait_until([&] { return last_step(run("living-run")) >= 2; })) << living.wait().all();
  const ProgramOutcome doctor = run_program(area_->sluice({"doctor", "--nvme-path", path}));
  EXPECT_THAT(doctor.output, HasSubstr("rank-00000.swap"));
  EXPECT_THAT(doctor.output, HasSubstr("rank-00001.swap"));
  EXPECT_THAT(doctor.output, HasSubstr("in use by process"));
  EXPECT_TRUE(ended_with(run_program(command("beside", path)), 0));
  EXPECT_TRUE(living.is_running());
  // Killed, it leaves files that the doctor tells from living ones.
  living.kill_all();
  living.wait();
  ProgramOutcome after;
  for (int tries = 0; tries < 20; ++tries) {  // the launcher may be gone while the kernel still clears its ranks away
    after = run_program(area_->sluice({"doctor", "--nvme-path", path}));
    if (after.output.find("in use by process") == std::string::npos) break;
  }
  EXPECT_THAT(after.output, HasSubstr("left behind by process"));
  EXPECT_THAT(after.output, HasSubstr("the next run that swaps there removes it"));
}

TEST_F(TiersFaults, AFullDiskAtTheStart) {
  const auto disk = SmallDisk::tmpfs(kMiB / 2);
  SKIP_WITHOUT(disk, "a tmpfs");
  const ProgramOutcome outcome = run_program(command("full", disk->path()));
  EXPECT_TRUE(refused_with(outcome, 3, {"--plan", "of disk space a node", "are left at " + disk->path(), "make room"}));
  EXPECT_LT(outcome.seconds, 30);
  EXPECT_EQ(read_run_status(run("full")).exit_code, 3);
}

// The image of the disk lies on a tmpfs, whose room is taken in mid-run: as a thin-provisioned disk whose store is full.
TEST_F(TiersFaults, ADiskThatIsFullInMidStep) {
  const auto store = SmallDisk::tmpfs(48 * kMiB);
  SKIP_WITHOUT(store, "a tmpfs");
  const auto disk = SmallDisk::ext4(32 * kMiB, 512, store->path());
  SKIP_WITHOUT(disk, "an ext4 on a loop device");
  Program program(area_->train(2, "midstep", {"--steps", "100000", "--plan", plan_, "--nvme-path", disk->path()}));
  ASSERT_TRUE(program.wait_until([&] { return last_step(run("midstep")) >= 12; })) << program.wait().all();
  // Held meanwhile: a step takes milliseconds and would have all of its blocks again before the room is taken.
  const std::vector<pid_t> held = program.processes();
  for (const pid_t process : held) ::kill(process, SIGSTOP);
  ASSERT_EQ(::truncate((store->path() + "/image").c_str(), kMiB / 2), 0);
  succeeds("dd if=/dev/zero bs=1M of=" + store->path() + "/other");
  for (const pid_t process : held) ::kill(process, SIGCONT);
  const ProgramOutcome outcome = program.wait();
  EXPECT_TRUE(ended_with(outcome, 75));
  EXPECT_THAT(outcome.errors, HasSubstr(disk->path() + "/sluice-"));
  EXPECT_THAT(outcome.errors, HasSubstr("failed: "));
  const RunStatus status = read_run_status(run("midstep"));
  EXPECT_EQ(status.state, "stopped");
  EXPECT_EQ(status.exit_code, 75);
  EXPECT_TRUE(status.retriable);
  ASSERT_THAT(status.last_checkpoint, HasSubstr("step-0000"));
  // Elsewhere it goes on from there.
  const std::int64_t saved = std::stoll(status.last_checkpoint.substr(5));
  const ProgramOutcome after =
      run_program(area_->train(2, "midstep", {"--steps", std::to_string(saved + 4), "--plan", plan_, "--nvme-path", folder("other-disk")}));
  EXPECT_TRUE(ended_with(after, 0));
  EXPECT_TRUE(has_each_step_once(run("midstep"), saved + 4));
  EXPECT_TRUE(same_bits(run("midstep"), run("home"), 14));
}

TEST_F(TiersFaults, LittleLockableMemoryIsAWarning) {
  if (kIsSanitized) GTEST_SKIP() << "mlock() does nothing here";
  ProgramCommand ordinary = command("pageable", folder("unlocked"));
  ordinary.prepare = with_little_lockable_memory;
  const ProgramOutcome outcome = run_program(ordinary);
  if (outcome.code == kNotAllowed) GTEST_SKIP() << "root may not give up its powers here";
  expect_carries_on("pageable", outcome, run("unlocked"));
  EXPECT_THAT(outcome.errors, HasSubstr("stay pageable"));
  EXPECT_THAT(outcome.errors, HasSubstr("64.0 KiB"));
}

TEST_F(TiersFaults, AHostWithoutAioContextsUsesThreads) {
  std::vector<aio_context_t> taken;
  for (const unsigned size : {8192u, 1024u, 64u, 1u}) {
    for (aio_context_t context = 0; ::syscall(SYS_io_setup, size, &context) == 0; context = 0) taken.push_back(context);
  }
  const ProgramOutcome outcome = run_program(command("threads", folder("noaio")));
  for (const aio_context_t context : taken) ::syscall(SYS_io_destroy, context);
  expect_carries_on("threads", outcome, run("noaio"));
  EXPECT_THAT(outcome.errors, HasSubstr("aio-max-nr"));
}

}  // namespace
}  // namespace sluice::testing
