// Swap on real disks that are small, odd or broken: a tmpfs, ext4 on loop devices. They need root and are skipped by name
// without.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "memory/io/pattern.hpp"
#include "memory/io/swap_space.hpp"
#include "support/expect_error.hpp"
#include "support/small_disk.hpp"
#include "support/temp_dir.hpp"

namespace sluice::memory {
namespace {

using sluice::testing::expect_error;
using sluice::testing::SmallDisk;
using sluice::testing::succeeds;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

constexpr auto kRead = IoDirection::kRead;
constexpr auto kWrite = IoDirection::kWrite;

SwapSpace::Options options(const std::string& path, std::int64_t bytes) {
  return {.paths = {path}, .identity = {"node1", "77", 0}, .extents = {{0, bytes}}, .engine = {64 * kKiB, 8, 8}, .claims = {}};
}

std::vector<std::string> swap_names(const std::string& path) {
  std::vector<std::string> names = names_in(path);
  std::erase(names, "lost+found");
  return names;
}

void expect_keeps(SwapSpace& space) {
  const std::int64_t bytes = space.extent_bytes(0);
  const auto memory = make_plain_backing(bytes, "test");
  fill(memory->data(), 0, bytes, 1);
  IoTicket ticket;
  space.post(ticket, kWrite, 0, 0, memory->data(), bytes);
  ticket.wait();
  std::memset(memory->data(), 0, static_cast<std::size_t>(bytes));
  space.post(ticket, kRead, 0, 0, memory->data(), bytes);
  ticket.wait();
  EXPECT_EQ(first_difference(memory->data(), 0, bytes, 1), -1);
}

/// Runs `work` in a process of user 65534 and returns its exit status: 0 if it returned true.
int as_nobody(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(9);
    bool good = false;
    try {
      good = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(SwapFaults, AFullTmpfsRefusesWithNumbers) {
  const auto disk = SmallDisk::tmpfs(8 * kMiB);
  SKIP_WITHOUT(disk, "a tmpfs");
  expect_error<EnvironmentError>([&] { SwapSpace::open(options(disk->path(), 20 * kMiB)); },
                                 {disk->path(), "20.0 MiB are needed (swap of rank 0 20.0 MiB)", "7.88 MiB are free", "12.1 MiB too few"});
  EXPECT_TRUE(swap_names(disk->path()).empty());
}

TEST(SwapFaults, AFailedPreallocationGivesEverythingBack) {
  const auto disk = SmallDisk::tmpfs(8 * kMiB);
  SKIP_WITHOUT(disk, "a tmpfs");
  {
    // Room that the check would still have seen is gone when it is taken.
    const SwapFile file = SwapFile::create(disk->path(), {"node1", "77", 0});
    expect_error<EnvironmentError>([&] { file.reserve(20 * kMiB); }, {file.path(), "No space left", "are free", "quota"});
  }
  EXPECT_TRUE(swap_names(disk->path()).empty());
  SwapSpace space = SwapSpace::open(options(disk->path(), 7 * kMiB));
  EXPECT_THAT(space.notes(), ::testing::ElementsAre(disk->path() + ": tmpfs keeps files in memory, so swapping frees none"));
  expect_keeps(space);
}

TEST(SwapFaults, ADiskThatIsFullAtTheHeaderSaysSo) {
  const auto disk = SmallDisk::tmpfs(8 * kMiB);
  SKIP_WITHOUT(disk, "a tmpfs");
  const File other(disk->path() + "/other", O_RDWR | O_CREAT);
  other.reserve(8 * kMiB - 16 * kKiB);
  expect_error<EnvironmentError>([&] { SwapFile::create(disk->path(), {"node1", "77", 0}); }, {disk->path(), "No space left", "are free"});
  EXPECT_EQ(swap_names(disk->path()), std::vector<std::string>{"other"});
}

TEST(SwapFaults, SectorsOf4096AndOf512AreFound) {
  for (const int sector : {512, 4096}) {
    const auto disk = SmallDisk::ext4(64 * kMiB, sector);
    SKIP_WITHOUT(disk, "an ext4 on a loop device");
    SwapSpace space = SwapSpace::open(options(disk->path(), 10 * kMiB + 1));
    const FileEngine& engine = space.engine(0);
    EXPECT_EQ(engine.service(), FileEngine::Service::kAio) << engine.note();
    EXPECT_EQ(engine.alignment().transfer, sector);
    EXPECT_TRUE(space.notes().empty());
    EXPECT_EQ(space.alignment(), kSwapAlignment);
    expect_keeps(space);
    // The trial finds the same as the kernel tells.
    const File file(engine.path(), O_RDWR);
    ASSERT_EQ(IoSystem::real().set_direct(file.fd()), 0);
    const std::optional<IoAlignment> tried = alignment_by_trial(file.fd(), IoSystem::real());
    ASSERT_TRUE(tried);
    EXPECT_EQ(tried->transfer, sector);
    // And a transfer that keeps to 512 bytes only reaches the disk only where that is a sector.
    const auto memory = make_plain_backing(4096, "test");
    const std::int64_t result = IoSystem::real().read(file.fd(), memory->data() + 512, 512, 512);
    EXPECT_EQ(result, sector == 512 ? 512 : -EINVAL);
  }
}

TEST(SwapFaults, ADiskThatFillsUpLaterDoesNotMatter) {
  const auto disk = SmallDisk::ext4(64 * kMiB, 4096);
  SKIP_WITHOUT(disk, "an ext4 on a loop device");
  SwapSpace space = SwapSpace::open(options(disk->path(), 20 * kMiB));
  const File other(disk->path() + "/other", O_RDWR | O_CREAT);
  const std::string chunk(static_cast<std::size_t>(kMiB), 'x');
  expect_error<IoError>(
      [&] {
        for (std::int64_t at = 0; at < 64; ++at) other.write_at(chunk.data(), kMiB, at * kMiB);
        other.sync();
      },
      {"No space left"});
  expect_keeps(space);
  expect_keeps(space);
}

// The image lies on a tmpfs with less room than it claims: the disk accepts and then fails.
TEST(SwapFaults, ADiskThatFailsIsNamed) {
  const auto small = SmallDisk::tmpfs(12 * kMiB);
  SKIP_WITHOUT(small, "a tmpfs");
  const auto disk = SmallDisk::ext4(64 * kMiB, 4096, small->path());
  SKIP_WITHOUT(disk, "an ext4 on a loop device");
  try {
    SwapSpace::open(options(disk->path(), 32 * kMiB));
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_TRUE(error.error_number == EIO || error.error_number == ENOSPC) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(disk->path()));
    EXPECT_THAT(error.what(), HasSubstr("writing "));
    EXPECT_THAT(error.what(), HasSubstr("at byte "));
  }
  EXPECT_TRUE(swap_names(disk->path()).empty());
}

TEST(SwapFaults, ADirectoryWithoutPermissionIsRefused) {
  const TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), ::geteuid() == 0 ? 0755 : 0555), 0);
  EXPECT_EQ(as_nobody([&] {
              try {
                SwapSpace::open(options(dir.path(), kMiB));
              } catch (const EnvironmentError& error) {
                const std::string what = error.what();
                return what.find(dir.path()) != std::string::npos && what.find("Permission denied") != std::string::npos;
              }
              return false;
            }),
            0);
  ::chmod(dir.path().c_str(), 0755);
}

TEST(SwapFaults, AReadOnlyDiskIsRefused) {
  const auto disk = SmallDisk::tmpfs(8 * kMiB);
  SKIP_WITHOUT(disk, "a tmpfs");
  ASSERT_TRUE(succeeds(cat("mount -o remount,ro ", disk->path())));
  expect_error<EnvironmentError>([&] { SwapSpace::open(options(disk->path(), kMiB)); }, {disk->path(), "Read-only"});
}

TEST(SwapFaults, AnotherUsersLeftoversStay) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make another user's files";
  const auto disk = SmallDisk::tmpfs(8 * kMiB);
  SKIP_WITHOUT(disk, "a tmpfs");
  ASSERT_EQ(::chmod(disk->path().c_str(), 01777), 0);
  // Left behind: no destructor runs.
  ASSERT_EQ(as_nobody([&] { return new SwapFile(SwapFile::create(disk->path(), {"node1", "5", 0})) != nullptr; }), 0);
  const std::string theirs = disk->path() + "/sluice-65534-5-node1";
  const std::vector<SwapFinding> found = remove_swap_leftovers(disk->path(), "node1");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].state, SwapFinding::State::kForeign);
  EXPECT_EQ(found[0].reason, "belongs to user 65534");
  EXPECT_TRUE(exists(theirs + "/rank-00000.swap"));
  // Its own user finds and removes it, and leaves ours alone.
  const SwapFile ours = SwapFile::create(disk->path(), {"node1", "6", 0});
  EXPECT_EQ(as_nobody([&] {
              const std::vector<SwapFinding> seen = remove_swap_leftovers(disk->path(), "node1");
              return seen.size() == 2 && seen[0].state == SwapFinding::State::kForeign && seen[1].state == SwapFinding::State::kRemoved;
            }),
            0);
  EXPECT_FALSE(exists(theirs));
  EXPECT_TRUE(exists(ours.path()));
}

TEST(SwapFaults, ALimitOnFileSizesIsNotASignal) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{4 * kMiB, 4 * kMiB};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      SwapSpace::open(options(dir.path(), 8 * kMiB));
    } catch (const EnvironmentError& error) {
      if (std::string(error.what()).find("ulimit -f") != std::string::npos) status = 0;
    }
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(swap_names(dir.path()).empty());
}

}  // namespace
}  // namespace sluice::memory
