// What the machine can do to a save: kill it at any point, run out of space, fail any single call. Afterwards the old checkpoints
// are there or the new one as well, whole; never something between, and the next save works.
//
// This program defines fsync, rename, pwrite and fallocate itself, so that a chosen call fails or is recorded.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "checkpoint/sample_state.hpp"
#include "support/temp_dir.hpp"

namespace {

enum Call { kFsync, kRename, kPwrite, kFallocate, kCalls };

// What the calls below do; reset by each test.
struct Interposer {
  std::array<std::atomic<long>, kCalls> count{};    // calls so far
  std::array<std::atomic<long>, kCalls> fail_at{};  // which call fails; 0: none
  std::array<std::atomic<int>, kCalls> error{};     // with which errno
  std::atomic<long> lose_at{0};                     // which pwrite says that it wrote and doesn't; 0: none
  std::atomic<long> most_bytes{0};                  // one pwrite moves at most so many; 0: all
  std::atomic<bool> record{false};
  std::mutex mutex;
  std::vector<std::string> log;  // "fsync PATH", "rename FROM TO", "pwrite PATH"

  void reset() {
    for (int i = 0; i < kCalls; ++i) count[i] = fail_at[i] = error[i] = 0;
    lose_at = 0;
    most_bytes = 0;
    record = false;
    log.clear();
  }
  bool fails(Call call) {
    if (++count[call] != fail_at[call].load()) return false;
    errno = error[call];
    return true;
  }
  void note(const std::string& line) {
    if (!record) return;
    const std::lock_guard<std::mutex> lock(mutex);
    log.push_back(line);
  }
};

Interposer& interposer() {
  static Interposer instance;
  return instance;
}

std::string path_of(int fd) {
  std::array<char, 4096> buffer{};
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), buffer.data(), buffer.size());
  return length > 0 ? std::string(buffer.data(), static_cast<std::size_t>(length)) : std::string("?");
}

}  // namespace

extern "C" {
int fsync(int fd) {
  interposer().note("fsync " + path_of(fd));
  if (interposer().fails(kFsync)) return -1;
  return ::fcntl(fd, F_GETFD) < 0 ? -1 : 0;  // nothing here cuts the power, so that waiting for the disk would prove nothing
}
int rename(const char* from, const char* to) noexcept {
  interposer().note(std::string("rename ") + from + " " + to);
  if (interposer().fails(kRename)) return -1;
  return static_cast<int>(::syscall(SYS_rename, from, to));
}
// Visible to the HDF5 library, so that its writes are among the counted ones.
__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void* data, std::size_t bytes, off_t offset) {
  interposer().note("pwrite " + path_of(fd));
  if (interposer().fails(kPwrite)) return -1;
  if (interposer().count[kPwrite] == interposer().lose_at) return static_cast<ssize_t>(bytes);
  const long most = interposer().most_bytes;
  if (most > 0 && bytes > static_cast<std::size_t>(most)) bytes = static_cast<std::size_t>(most);
  return ::syscall(SYS_pwrite64, fd, data, bytes, offset);
}
__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void* data, std::size_t bytes, off_t offset) {
  return pwrite64(fd, data, bytes, offset);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (interposer().fails(kFallocate)) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}
}

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using sample::Layout;
using sample::SampleState;
using sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SaveOptions options_keeping(int keep, Hook hook = {}) {
  SaveOptions options = sample::sample_options();
  options.block_bytes = 4096;
  options.keep = keep;
  options.hook = std::move(hook);
  return options;
}

class CheckpointFaults : public ::testing::Test {
 protected:
  void SetUp() override { interposer().reset(); }
  void TearDown() override { interposer().reset(); }
};

/// Runs `body` in a child process; its exit status as waitpid gives it.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

/// The step that a run would go on from (-1: from the start), loaded on three ranks and compared number by number; whatever is committed is
/// whole. The tag of step n's numbers is n.
std::int64_t newest_loaded(const std::string& directory) {
  for (const Entry& entry : list_checkpoints(directory)) {
    EXPECT_TRUE(entry.state == State::kComplete || entry.state == State::kIncomplete) << entry.path << ": " << entry.reason;
  }
  std::atomic<std::int64_t> step{-1};
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    SampleState state(Layout::kMixed, 3, world.rank());
    const auto loaded = load_newest(world, directory, state.params, state.loading());
    if (!loaded) return;
    EXPECT_TRUE(loaded->refused.empty());
    EXPECT_EQ(state.differences(static_cast<int>(loaded->manifest.progress.step)), 0);
    step = loaded->manifest.progress.step;
  });
  return step;
}

/// A later attempt: sweeps and saves, and nothing of the cut-off save is left.
void expect_next_save_works(const std::string& directory) {
  EXPECT_TRUE(sweep_leftovers(directory).warnings.empty());
  const CommitResult saved = sample::save_sample(directory, 9000, 9000, 2, Layout::kIntervals, options_keeping(1));
  EXPECT_TRUE(saved.ok) << saved.reason;
  EXPECT_TRUE(saved.warnings.empty());
  EXPECT_THAT(names_in(directory), ElementsAre("latest", "step-00009000"));
  EXPECT_EQ(newest_loaded(directory), 9000);
}

struct KillPoint {
  const char* name;
  std::int64_t survivor;
};

class KilledAt : public ::testing::TestWithParam<KillPoint> {};

TEST_P(KilledAt, OldOrNewNeverOther) {
  interposer().reset();
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 10, 10).ok);
  const int status = in_child([&] {
    sample::save_sample(dir.path(), 20, 20, 2, Layout::kColumns, options_keeping(1, [](const char* point) {
                          if (std::string(point) == GetParam().name) ::_exit(137);
                        }));
  });
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 137) << "the point was never reached";
  EXPECT_EQ(newest_loaded(dir.path()), GetParam().survivor);
  expect_next_save_works(dir.path());
}

TEST_P(KilledAt, TheVeryFirstSaveLeavesNothingThatIsTaken) {
  interposer().reset();
  const TempDir dir;
  in_child([&] {
    sample::save_sample(dir.path(), 20, 20, 2, Layout::kColumns, options_keeping(1, [](const char* point) {
                          if (std::string(point) == GetParam().name) ::_exit(137);
                        }));
  });
  const bool is_committed = GetParam().survivor == 20;
  EXPECT_EQ(newest_loaded(dir.path()), is_committed ? 20 : -1);
}

INSTANTIATE_TEST_SUITE_P(Points, KilledAt,
                         ::testing::Values(KillPoint{"after_create", 10}, KillPoint{"after_shard_write", 10},
                                           KillPoint{"after_shard_fsync", 10}, KillPoint{"before_manifest", 10},
                                           KillPoint{"after_manifest", 10}, KillPoint{"after_rename", 20}, KillPoint{"after_latest", 20},
                                           KillPoint{"before_delete", 20}, KillPoint{"during_delete", 20}, KillPoint{"after_delete", 20}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(CheckpointFaults, KilledAtAnyMomentOldOrNewNeverOther) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 10, 10).ok);
  std::int64_t last = 10;
  for (int trial = 0; trial < 15; ++trial) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::int64_t step = last + 1;; ++step) {
        sample::save_sample(dir.path(), step, static_cast<int>(step), 2, Layout::kIntervals, options_keeping(2));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 23 * trial));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const std::int64_t step = newest_loaded(dir.path());
    EXPECT_GE(step, last);
    last = step;
    EXPECT_TRUE(sweep_leftovers(dir.path()).warnings.empty());
  }
  EXPECT_GT(last, 10) << "no save finished at all";
  expect_next_save_works(dir.path());
}

// Every single call of a save fails once.
TEST_F(CheckpointFaults, AnyFailingCallLeavesTheOldOneOrTheNewOne) {
  const std::array<std::pair<Call, int>, 4> kinds = {{{kFsync, ENOSPC}, {kRename, EIO}, {kPwrite, ENOSPC}, {kFallocate, EDQUOT}}};
  int refused = 0, warned = 0;
  const auto open_files = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  for (const auto& [call, error] : kinds) {
    for (long at = 1;; ++at) {
      interposer().reset();
      const TempDir dir;
      ASSERT_TRUE(sample::save_sample(dir.path(), 10, 10).ok);
      interposer().reset();
      interposer().error[call] = error;
      interposer().fail_at[call] = at;
      const auto before = open_files();
      const CommitResult saved = sample::save_sample(dir.path(), 20, 20, 2, Layout::kWhole, options_keeping(1));
      EXPECT_EQ(open_files(), before) << call << " number " << at << " leaks a file: " << saved.reason;
      const bool was_reached = interposer().count[call] >= at;
      interposer().reset();
      if (!was_reached) {
        EXPECT_TRUE(saved.ok);
        ASSERT_GT(at, 1) << "the call is never made";
        break;
      }
      SCOPED_TRACE(cat("call ", call, " number ", at));
      const std::int64_t newest = newest_loaded(dir.path());
      if (saved.ok) {
        EXPECT_FALSE(saved.warnings.empty()) << "a failure was swallowed";
        EXPECT_EQ(newest, 20);
        ++warned;
      } else {
        EXPECT_THAT(saved.reason, HasSubstr("rank "));
        EXPECT_THAT(saved.reason, ::testing::AnyOf(HasSubstr(std::strerror(error)), HasSubstr("failed in HDF5")));
        // Only once the directory has its final name can a failed save be there all the same: its durability is unproven.
        EXPECT_TRUE(newest == 10 || (call == kFsync && newest == 20)) << newest;
        EXPECT_TRUE(exists(dir / "step-00000010")) << "an old checkpoint was removed after a failed save";
        ++refused;
      }
      expect_next_save_works(dir.path());
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(warned, 1);
}

// A disk that says it wrote and did not: HDF5's own lost writes are always found, those of the bulk when asked to read back.
TEST_F(CheckpointFaults, NoLostWriteIsNamedACheckpoint) {
  SaveOptions options = options_keeping(1);
  options.read_back = true;
  int refused = 0;
  for (long at = 1;; ++at) {
    interposer().reset();
    const TempDir dir;
    ASSERT_TRUE(sample::save_sample(dir.path(), 10, 10).ok);
    interposer().reset();
    interposer().lose_at = at;
    const CommitResult saved = sample::save_sample(dir.path(), 20, 20, 2, Layout::kIntervals, options);
    const bool was_reached = interposer().count[kPwrite] >= at;
    interposer().reset();
    if (!was_reached) break;
    SCOPED_TRACE(cat("write number ", at));
    refused += saved.ok ? 0 : 1;
    EXPECT_EQ(newest_loaded(dir.path()), saved.ok ? 20 : 10) << saved.reason;
    if (saved.ok) {
      const Verification verification = verify_checkpoint(saved.path, true);
      EXPECT_TRUE(verification.whole() && verification.notes.empty()) << describe(verification);
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(CheckpointFaults, ShortWritesAreContinued) {
  const TempDir dir;
  interposer().most_bytes = 1000;
  ASSERT_TRUE(sample::save_sample(dir.path(), 20, 20, 2, Layout::kColumns, options_keeping(1)).ok);
  interposer().reset();
  EXPECT_TRUE(verify_checkpoint(dir / "step-00000020", true).whole());
  EXPECT_EQ(newest_loaded(dir.path()), 20);
}

TEST_F(CheckpointFaults, AFileSystemThatCanNotReserveIsNoFailure) {
  const TempDir dir;
  interposer().error[kFallocate] = EOPNOTSUPP;
  interposer().fail_at[kFallocate] = 1;
  EXPECT_TRUE(sample::save_sample(dir.path(), 20, 20).ok);
  EXPECT_EQ(newest_loaded(dir.path()), 20);
}

TEST_F(CheckpointFaults, OneRanksFailureIsEverybodysAndNamesTheRank) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 10, 10).ok);
  for (const char* where : {"after_create", "after_shard_write", "after_shard_fsync"}) {
    std::array<CommitResult, 3> results;
    comm::run_local_ranks(3, [&](comm::Communicator& world) {
      SampleState state(Layout::kWhole, 3, world.rank());
      state.fill(20);
      const int rank = world.rank();
      const SaveOptions options = options_keeping(1, [&, rank](const char* point) {
        if (rank == 2 && std::string(point) == where) throw IoError(where, "/scratch/rank-00002.h5", EIO);
      });
      results[static_cast<std::size_t>(rank)] =
          save_checkpoint(world, dir.path(), sample::sample_progress(20), {}, state.params, state.pieces, options);
    });
    for (const CommitResult& result : results) {
      EXPECT_FALSE(result.ok);
      EXPECT_EQ(result.reason, cat("rank 2: /scratch/rank-00002.h5: ", where, " failed: Input/output error"));
    }
    EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000010"));
  }
}

// Data before its name: what a power cut can't undo must not be named before it is on disk.
TEST_F(CheckpointFaults, EverythingIsOnDiskBeforeItIsNamed) {
  const TempDir dir;
  const std::string root = fs::canonical(dir.path()).string();
  interposer().record = true;
  ASSERT_TRUE(sample::save_sample(root, 20, 20, 2).ok);
  interposer().record = false;
  const std::vector<std::string> log = interposer().log;
  const auto find = [&](const std::string& begin, const std::string& end, bool last) {
    long found = -1;
    for (std::size_t i = 0; i < log.size(); ++i) {
      const bool matches =
          log[i].rfind(begin, 0) == 0 && log[i].size() >= end.size() && log[i].compare(log[i].size() - end.size(), end.size(), end) == 0;
      if (matches && (last || found < 0)) found = static_cast<long>(i);
    }
    EXPECT_GE(found, 0) << begin << "..." << end;
    return found;
  };
  const std::string temporary = root + "/step-00000020.tmp.";
  const long manifest_written = find("pwrite " + temporary, "/manifest.json.tmp", true);
  for (const char* shard : {"/rank-00000.h5", "/rank-00001.h5"}) {
    EXPECT_LT(find("pwrite " + temporary, shard, true), find("fsync " + temporary, shard, false));
    EXPECT_LT(find("fsync " + temporary, shard, true), manifest_written);
  }
  EXPECT_LT(find("fsync " + temporary, "/model.h5", true), manifest_written);
  const long manifest_synced = find("fsync " + temporary, "/manifest.json.tmp", false);
  const long manifest_named = find("rename " + temporary, "/manifest.json", false);
  EXPECT_LT(manifest_written, manifest_synced);
  EXPECT_LT(manifest_synced, manifest_named);
  const long named = find("rename " + temporary, " " + root + "/step-00000020", false);
  long temporary_synced = -1;  // the last fsync of the temporary directory itself
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (log[i].rfind("fsync " + temporary, 0) == 0 && log[i].find('/', 7 + root.size()) == std::string::npos)
      temporary_synced = static_cast<long>(i);
  }
  EXPECT_LT(manifest_named, temporary_synced);
  EXPECT_LT(temporary_synced, named);
  // The new name is on disk before the hint speaks of it.
  const long hint_named = find("rename ", root + "/latest", false);
  EXPECT_LT(named, hint_named);
  EXPECT_NE(std::find(log.begin() + named, log.begin() + hint_named, "fsync " + root), log.begin() + hint_named);
}

TEST_F(CheckpointFaults, AFileSizeLimitIsToldNotDiedOf) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 10, 10).ok);
  const int status = in_child([&] {
    const rlimit limit{16 * 1024, 16 * 1024};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const CommitResult saved = sample::save_sample(dir.path(), 20, 20);
    ::_exit(!saved.ok && saved.reason.find("the file size limit (ulimit -f) is 16.0 KiB") != std::string::npos ? 0 : 1);
  });
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(newest_loaded(dir.path()), 10);
  expect_next_save_works(dir.path());
}

// A real full disk: a small memory file system in a mount namespace of the child's own. Exit codes: 0 right, 1 wrong, 9 not allowed to
// mount.
int on_small_disk(const std::string& point, const std::string& options, const std::function<bool()>& body) {
  return in_child([&] {
    const uid_t user = ::getuid();
    if (::unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) ::_exit(9);
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(9);
    if (::mount("tmpfs", point.c_str(), "tmpfs", 0, options.c_str()) != 0) ::_exit(9);
    ::_exit(body() && !::testing::Test::HasFailure() ? 0 : 1);
  });
}

void expect_right(int status) {
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 9) GTEST_SKIP() << "this user may not mount; AnyFailingCallLeavesTheOldOneOrTheNewOne covers the same errors";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CheckpointFaults, AFullDiskIsFoundBeforeAnythingIsWritten) {
  const TempDir dir;
  const int status = on_small_disk(dir.path(), "size=200k", [&] {
    EXPECT_TRUE(sample::save_sample(dir.path(), 10, 10, 1).ok);  // a quarter of it
    const CommitResult saved = sample::save_sample(dir.path(), 20, 20, 4);
    EXPECT_FALSE(saved.ok);
    EXPECT_THAT(saved.reason, HasSubstr("the checkpoint needs"));
    EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000010"));
    return newest_loaded(dir.path()) == 10;
  });
  expect_right(status);
}

TEST_F(CheckpointFaults, ADiskFilledByOthersDuringTheSaveIsTold) {
  for (const char* where : {"after_create", "after_shard_write", "after_shard_fsync"}) {
    const TempDir dir;
    const int status = on_small_disk(dir.path(), "size=600k", [&] {
      EXPECT_TRUE(sample::save_sample(dir.path(), 10, 10, 1).ok);
      const auto fill = [&](const char* point) {
        if (std::string(point) != where) return;
        const File hog(dir / "hog", O_WRONLY | O_CREAT);
        const std::vector<char> page(4096, 'x');
        for (std::int64_t at = 0;; at += 4096) {
          if (::syscall(SYS_pwrite64, hog.fd(), page.data(), page.size(), at) != 4096) break;
        }
      };
      const CommitResult saved = sample::save_sample(dir.path(), 20, 20, 1, Layout::kWhole, options_keeping(1, fill));
      // The shard's space was taken beforehand; the index or the manifest finds the disk full.
      EXPECT_FALSE(saved.ok);
      EXPECT_THAT(saved.reason, ::testing::AnyOf(HasSubstr("No space left"), HasSubstr("HDF5")));
      EXPECT_THAT(names_in(dir.path()), ElementsAre("hog", "latest", "step-00000010"));
      ::unlink((dir / "hog").c_str());
      expect_next_save_works(dir.path());
      return true;
    });
    expect_right(status);
  }
}

TEST_F(CheckpointFaults, ADiskOutOfInodesIsTold) {
  const TempDir dir;
  const int status = on_small_disk(dir.path(), "size=4m,nr_inodes=9", [&] {
    EXPECT_TRUE(sample::save_sample(dir.path(), 10, 10, 1).ok);
    const CommitResult saved = sample::save_sample(dir.path(), 20, 20, 2);
    EXPECT_FALSE(saved.ok);
    EXPECT_THAT(saved.reason, HasSubstr("inodes"));
    return newest_loaded(dir.path()) == 10;
  });
  expect_right(status);
}

}  // namespace
}  // namespace sluice::checkpoint
