// Swap spaces and the files below them, on the directory for temporary files. Faults that need a disk of their own:
// tests/faults/swap_faults_test.cpp.
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "memory/io/faulty_io.hpp"
#include "memory/io/pattern.hpp"
#include "memory/io/swap_space.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::memory {
namespace {

using sluice::testing::expect_error;
using sluice::testing::TempDir;
using ::testing::HasSubstr;
using State = SwapFinding::State;

constexpr auto kRead = IoDirection::kRead;
constexpr auto kWrite = IoDirection::kWrite;

constexpr const char* kHost = "node1";

SwapIdentity identity(const std::string& job = "77", int rank = 0) {
  return {kHost, job, rank};
}

SwapSpace::Options options(const std::vector<std::string>& paths, const std::vector<SwapExtent>& extents) {
  return {.paths = paths, .identity = identity(), .extents = extents, .engine = {64 * kKiB, 4, 4}, .claims = {}, .allow_network = false};
}

std::string directory_of(const TempDir& dir, const std::string& job = "77") {
  return dir / cat("sluice-", ::geteuid(), "-", job, "-", kHost);
}

/// A process of its own that does `work`, says so, and waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(pipe[0]);
      try {
        work();
        [[maybe_unused]] const ssize_t wrote = ::write(pipe[1], "x", 1);
        while (true) ::pause();
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(pipe[1]);
    char told = 0;
    ready_ = ::read(pipe[0], &told, 1) == 1;
    ::close(pipe[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }
  bool is_ready() const { return ready_; }
  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST(SwapFile, IsPrivateAndNamesItsOwner) {
  const TempDir dir;
  const std::string path = directory_of(dir) + "/rank-00003.swap";
  {
    const SwapFile file = SwapFile::create(dir.path(), identity("77", 3));
    EXPECT_EQ(file.path(), path);
    EXPECT_EQ(mode_of(path), 0600u);
    EXPECT_EQ(mode_of(directory_of(dir)), 0700u);
    const std::vector<SwapFinding> found = list_swap_files(dir.path(), kHost);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].path, path);
    EXPECT_EQ(found[0].state, State::kInUse);
    EXPECT_GE(found[0].bytes, kSwapHeaderBytes);
    ASSERT_TRUE(found[0].owner);
    EXPECT_EQ(found[0].owner->host, kHost);
    EXPECT_EQ(found[0].owner->pid, ::getpid());
    EXPECT_EQ(found[0].owner->label, "job 77, rank 3");
    EXPECT_THAT(found[0].reason, HasSubstr(cat("in use by process ", ::getpid(), " on host node1")));
  }
  EXPECT_FALSE(exists(directory_of(dir)));
}

TEST(SwapFile, RanksShareADirectoryAndTheLastTakesItAway) {
  const TempDir dir;
  {
    const SwapFile zero = SwapFile::create(dir.path(), identity("77", 0));
    {
      const SwapFile one = SwapFile::create(dir.path(), identity("77", 1));
      const SwapFile moved = SwapFile::create(dir.path(), identity("77", 2));
    }
    EXPECT_EQ(names_in(directory_of(dir)), std::vector<std::string>{"rank-00000.swap"});
  }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SwapFile, JobsOnOnePathDoNotMeet) {
  const TempDir dir;
  const SwapFile a = SwapFile::create(dir.path(), identity("77"));
  const SwapFile b = SwapFile::create(dir.path(), identity("78"));
  const SwapFile c = SwapFile::create(dir.path(), identity("12[3]/4"));  // an array job's id
  const SwapFile d = SwapFile::create(dir.path(), identity("12=5B3]/4"));
  EXPECT_EQ(list_swap_files(dir.path(), kHost).size(), 4u);
  EXPECT_THAT(c.path(), HasSubstr("-12=5B3=5D=2F4-"));
  EXPECT_TRUE(remove_swap_leftovers(dir.path(), kHost).size() == 4u && exists(a.path()) && exists(b.path()));
}

TEST(SwapFile, ALivingOwnerKeepsItsName) {
  const TempDir dir;
  const Child child([&] { new SwapFile(SwapFile::create(dir.path(), identity())); });
  ASSERT_TRUE(child.is_ready());
  expect_error<RequestError>([&] { SwapFile::create(dir.path(), identity()); },
                             {directory_of(dir) + "/rank-00000.swap", cat("process ", child.pid(), " on host node1 (job 77, rank 0)")});
  const std::vector<SwapFinding> found = remove_swap_leftovers(dir.path(), kHost);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].state, State::kInUse);
  EXPECT_TRUE(exists(found[0].path));
}

TEST(SwapFile, AKilledOwnersFileIsRemoved) {
  const TempDir dir;
  Child child([&] { new SwapFile(SwapFile::create(dir.path(), identity())); });
  ASSERT_TRUE(child.is_ready());
  const SwapFile living = SwapFile::create(dir.path(), identity("80"));
  const pid_t pid = child.pid();
  child.kill();
  std::vector<SwapFinding> found = list_swap_files(dir.path(), kHost);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].state, State::kLeftover);
  EXPECT_THAT(found[0].reason, HasSubstr(cat("left behind by process ", pid)));
  EXPECT_TRUE(exists(found[0].path)) << "listing removes nothing";
  found = remove_swap_leftovers(dir.path(), kHost);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].state, State::kRemoved);
  EXPECT_EQ(found[1].state, State::kInUse);
  EXPECT_FALSE(exists(directory_of(dir)));
  EXPECT_TRUE(exists(living.path()));
}

TEST(SwapFile, AKilledOwnersNameIsTakenOver) {
  const TempDir dir;
  Child child([&] { new SwapFile(SwapFile::create(dir.path(), identity())); });
  ASSERT_TRUE(child.is_ready());
  child.kill();
  const SwapFile file = SwapFile::create(dir.path(), identity());  // a job that was requeued keeps its id
  const std::vector<SwapFinding> found = list_swap_files(dir.path(), kHost);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].owner->pid, ::getpid());
}

TEST(SwapFile, ADamagedRecordIsNoOwner) {
  const TempDir dir;
  for (const std::string& content : {std::string(), std::string("sluice swap file 1\n{\"host\": 3, \"pi"), std::string(4096, '\xff')}) {
    const std::string path = dir.write(cat("sluice-", ::geteuid(), "-5-", kHost, "/rank-00000.swap"), content);
    ASSERT_EQ(::chmod(directory_of(dir, "5").c_str(), 0700), 0);
    std::vector<SwapFinding> found = list_swap_files(dir.path(), kHost);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_FALSE(found[0].owner);
    EXPECT_EQ(found[0].state, State::kLeftover);
    EXPECT_THAT(found[0].reason, HasSubstr("damaged header"));
    {  // but whoever holds the lock is one
      const File holder(path, O_RDWR);
      ASSERT_EQ(::flock(holder.fd(), LOCK_EX), 0);
      EXPECT_EQ(remove_swap_leftovers(dir.path(), kHost)[0].state, State::kInUse);
    }
    EXPECT_EQ(remove_swap_leftovers(dir.path(), kHost)[0].state, State::kRemoved);
    EXPECT_FALSE(exists(path));
  }
}

TEST(SwapFile, OnASharedFileSystemAnotherHostsFileIsOnlyReported) {
  const TempDir dir;
  Child child([&] { new SwapFile(SwapFile::create(dir.path(), {"node2", "77", 0})); });
  ASSERT_TRUE(child.is_ready());
  child.kill();
  FaultyIo io;
  io.pretended_type = NFS_SUPER_MAGIC;
  const std::vector<SwapFinding> found = remove_swap_leftovers(dir.path(), kHost, io);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].state, State::kUnclear);
  EXPECT_THAT(found[0].reason, HasSubstr("host node1 can't tell"));
  EXPECT_TRUE(exists(found[0].path));
  EXPECT_EQ(remove_swap_leftovers(dir.path(), "node2", io)[0].state, State::kRemoved) << "its own host can";
}

TEST(SwapFile, OtherNamesAreNobodysBusiness) {
  const TempDir dir;
  dir.write("sluice-notes/rank-00000.swap", "x");
  dir.write("data/rank-00000.swap", "x");
  dir.write("sluice-", "x");
  const std::string mine = dir.write(cat("sluice-", ::geteuid(), "-5-n/notes.txt"), "x");
  const std::string others = cat("sluice-", ::geteuid() + 1, "-5-n");
  dir.write(others + "/rank-00000.swap", "x");
  ::symlink("/", (dir / cat("sluice-", ::geteuid(), "-6-n")).c_str());
  const std::vector<SwapFinding> found = remove_swap_leftovers(dir.path(), kHost);
  ASSERT_EQ(found.size(), 2u);
  for (const SwapFinding& finding : found) EXPECT_EQ(finding.state, State::kForeign) << finding.path;
  EXPECT_TRUE(exists(mine));
  EXPECT_TRUE(exists(dir / "sluice-notes/rank-00000.swap"));
  EXPECT_TRUE(exists(dir / (others + "/rank-00000.swap")));
}

TEST(SwapFile, ADirectoryThatOthersCanReadIsRefused) {
  const TempDir dir;
  ASSERT_EQ(::mkdir(directory_of(dir).c_str(), 0755), 0);
  expect_error<EnvironmentError>([&] { SwapFile::create(dir.path(), identity()); }, {directory_of(dir), "0755", "0700"});
  ASSERT_EQ(::rmdir(directory_of(dir).c_str()), 0);
  const std::string elsewhere = dir / "elsewhere";
  ASSERT_EQ(::mkdir(elsewhere.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), directory_of(dir).c_str()), 0);
  expect_error<EnvironmentError>([&] { SwapFile::create(dir.path(), identity()); }, {directory_of(dir), "no directory"});
  EXPECT_TRUE(names_in(elsewhere).empty());
}

TEST(SwapFile, ManyStartAndCleanAtOnce) {
  const TempDir dir;
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 0; rank < 6; ++rank) {
    children.push_back(std::make_unique<Child>([&dir, rank] {
      for (int i = 0; i < 20; ++i) {
        const SwapFile file = SwapFile::create(dir.path(), identity("77", rank));
        remove_swap_leftovers(dir.path(), kHost);
        if (!exists(file.path())) throw std::runtime_error("a living owner's file is gone");
      }
    }));
  }
  for (const auto& child : children) EXPECT_TRUE(child->is_ready());
}

TEST(SwapFile, TheDirectoryMayGoWhileOneStarts) {
  const TempDir dir;
  const std::string directory = directory_of(dir);
  std::atomic<bool> done{false};
  std::thread remover([&] {  // of leftovers: at the first moment, and then not before the next try
    while (!done) {
      if (::rmdir(directory.c_str()) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(90));
    }
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_NO_THROW(SwapFile::create(dir.path(), identity()));
  }
  done = true;
  remover.join();
}

TEST(PlaceExtents, RoundsUpAndNeverOverlaps) {
  const std::vector<std::int64_t> bytes{1, 4096, 4097, 100};
  const std::vector<SwapExtent> placed = place_extents(bytes);
  const std::vector<std::int64_t> offsets{0, 4096, 8192, 16384};
  ASSERT_EQ(placed.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(placed[i].offset, offsets[i]);
    EXPECT_EQ(placed[i].bytes, bytes[i]);
  }
  EXPECT_EQ(place_extents(bytes, 16384)[3].offset, 3 * 16384);
}

TEST(SwapSpace, KeepsExtentsApartOnOneToThreePaths) {
  for (const int path_count : {1, 2, 3}) {
    const TempDir dir;
    std::vector<std::string> paths;
    for (int i = 0; i < path_count; ++i) {
      paths.push_back(dir / cat("disk", i));
      make_directories(paths.back());
    }
    // Odd sizes, out of order, with a gap, below and above a stripe.
    const std::vector<SwapExtent> extents{{700 * kKiB, 1000001}, {0, 100}, {4 * kKiB, 300 * kKiB - 5}, {2 * kMiB, 64 * kKiB}};
    SwapSpace space = SwapSpace::open(options(paths, extents));
    ASSERT_EQ(space.extent_count(), 4);
    const std::int64_t alignment = space.alignment();
    std::vector<std::unique_ptr<Backing>> memory;
    IoTicket ticket;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t bytes = space.extent_bytes(i);
      EXPECT_EQ(bytes, round_up(extents[static_cast<std::size_t>(i)].bytes, alignment));
      memory.push_back(make_plain_backing(bytes, "test"));
      fill(memory.back()->data(), 0, bytes, i);
      space.post(ticket, kWrite, i, 0, memory.back()->data(), bytes);
    }
    ticket.wait();
    for (int i = 0; i < 4; ++i) {
      const std::int64_t bytes = space.extent_bytes(i);
      std::byte* data = memory[static_cast<std::size_t>(i)]->data();
      std::memset(data, 0, static_cast<std::size_t>(bytes));
      // In two parts, the later one first.
      const std::int64_t cut = bytes / 2 / alignment * alignment;
      space.post(ticket, kRead, i, cut, data + cut, bytes - cut);
      if (cut > 0) space.post(ticket, kRead, i, 0, data, cut);
      ticket.wait();
      EXPECT_EQ(first_difference(data, 0, bytes, i), -1) << "extent " << i << " on " << path_count << " paths";
    }
    std::int64_t written = 0, all = 0;
    for (int i = 0; i < 4; ++i) written += space.extent_bytes(i);
    for (int i = 0; i < path_count; ++i) {
      const auto size = static_cast<std::int64_t>(std::filesystem::file_size(space.engine(i).path()));
      EXPECT_GT(size, kSwapHeaderBytes + 2 * kMiB / path_count - 64 * kKiB) << "path " << i << " of " << path_count;
      all += size;
    }
    EXPECT_EQ(space.bytes_read(), written);
    EXPECT_EQ(space.bytes_written(), written + all) << "the first writing counts";
  }
}

/// The same for another owner.
SwapSpace::Options options_of_other(SwapSpace::Options wanted) {
  wanted.identity.job += "-other";
  return wanted;
}

/// What a path's file holds behind its owner's record.
std::string tail_of(const SwapSpace& space, int path) {
  return read_text(space.engine(path).path()).substr(static_cast<std::size_t>(kSwapHeaderBytes));
}

TEST(SwapSpace, AllOfItIsWrittenBeforeItIsUsed) {
  const TempDir dir;
  SwapSpace space = SwapSpace::open(options({dir.path()}, {{0, 20 * kMiB + 1}}));
  struct stat info {};
  ASSERT_EQ(::stat(space.engine(0).path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, kSwapHeaderBytes + 20 * kMiB + space.alignment());
  EXPECT_GE(info.st_blocks * 512, info.st_size);
  const std::string before = read_text(space.engine(0).path());
  EXPECT_NE(before.find_last_not_of('\0'), std::string::npos);
  EXPECT_NE(before.back(), '\0') << "a pattern, since zeros may not reach the disk";
  EXPECT_EQ(list_swap_files(dir.path(), kHost)[0].state, State::kInUse);
}

TEST(SwapSpace, IsFilledPieceByPieceBeforeItIsUsed) {
  const TempDir dir;
  make_directories(dir / "a");
  make_directories(dir / "b");
  for (const std::int64_t bytes : {std::int64_t{4096}, 37 * kMiB + 4096}) {
    SwapSpace::Options wanted = options({dir / "a", dir / "b"}, {{0, bytes}});
    wanted.engine.block_bytes = 768 * kKiB;  // stripes that don't divide what is written at a time
    SwapSpace space = SwapSpace::create(wanted);
    const auto memory = make_plain_backing(4096, "test");
    IoTicket ticket;
    EXPECT_THROW(space.post(ticket, kRead, 0, 0, memory->data(), 4096), LogicError);
    std::int64_t before = bytes, left = 0;
    int pieces = 0;
    while ((left = space.fill(1)) > 0) {
      EXPECT_LT(left, before);
      before = left;
      ++pieces;
    }
    EXPECT_EQ(pieces, bytes > kMiB ? 2 : 0) << "8 MiB on each path at a time";
    EXPECT_THROW(space.fill(1), LogicError);
    const SwapSpace at_once = SwapSpace::open(options_of_other(wanted));
    EXPECT_EQ(space.bytes_written(), at_once.bytes_written());
    for (const int path : {0, 1}) EXPECT_EQ(tail_of(space, path), tail_of(at_once, path));
    space.post(ticket, kRead, 0, 0, memory->data(), 4096);
    ticket.wait();
  }
}

TEST(SwapSpace, WhoLeavesItHalfFilledLeavesNothing) {
  const TempDir dir;
  {
    SwapSpace space = SwapSpace::create(options({dir.path()}, {{0, 20 * kMiB}}));
    EXPECT_EQ(space.fill(1), 12 * kMiB);
  }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SwapSpace, StripesUseAllPathsEvenly) {
  const TempDir dir;
  make_directories(dir / "a");
  make_directories(dir / "b");
  SwapSpace space = SwapSpace::open(options({dir / "a", dir / "b"}, {{0, kMiB}}));
  const std::int64_t a = space.engine(0).bytes_written(), b = space.engine(1).bytes_written();
  EXPECT_EQ(a, 512 * kKiB);
  EXPECT_EQ(b, 512 * kKiB);
  const auto memory = make_plain_backing(kMiB, "test");
  IoTicket ticket;
  space.post(ticket, kWrite, 0, 0, memory->data(), kMiB);
  ticket.wait();
  EXPECT_EQ(space.engine(0).bytes_written(), a + 512 * kKiB);
  EXPECT_EQ(space.engine(1).bytes_written(), b + 512 * kKiB);
}

TEST(SwapSpace, TransfersStayWithinTheirExtent) {
  const TempDir dir;
  SwapSpace space = SwapSpace::open(options({dir.path()}, {{0, 8192}, {8192, 100}}));
  const auto memory = make_plain_backing(64 * kKiB, "test");
  IoTicket ticket;
  EXPECT_THROW(space.post(ticket, kWrite, 1, 0, memory->data(), 8192), LogicError);
  EXPECT_THROW(space.post(ticket, kWrite, 0, 4096, memory->data(), 8192), LogicError);
  EXPECT_THROW(space.post(ticket, kWrite, 0, -4096, memory->data(), 4096), LogicError);
  EXPECT_THROW(space.post(ticket, kWrite, 0, 100, memory->data(), 4096), LogicError);
  EXPECT_THROW(space.post(ticket, kRead, 0, 0, memory->data(), 0), LogicError);
  EXPECT_THROW(space.extent_bytes(2), std::out_of_range);
}

TEST(SwapSpace, OverlappingExtentsAreADefect) {
  const TempDir dir;
  EXPECT_THROW(SwapSpace::open(options({dir.path()}, {{0, 4097}, {4096, 10}})), LogicError);
  EXPECT_THROW(SwapSpace::open(options({dir.path()}, {{100, 10}})), LogicError);
  EXPECT_THROW(SwapSpace::open(options({dir.path()}, {{0, 0}})), LogicError);
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SwapSpace, ANetworkFileSystemIsRefusedUnlessAllowed) {
  const TempDir dir;
  for (const std::int64_t type : {std::int64_t{NFS_SUPER_MAGIC}, std::int64_t{0x0BD00BD0}, std::int64_t{0x65735546},
                                  std::int64_t{V9FS_MAGIC}, std::int64_t{0xFF534D42}, std::int64_t{0x47504653}, std::int64_t{0x19830326}}) {
    FaultyIo io;
    io.pretended_type = type;
    SwapSpace::Options wanted = options({dir.path()}, {{0, kMiB}});
    expect_error<RequestError>([&] { SwapSpace::open(wanted, io); }, {dir.path(), "network file system", "local disk"});
    EXPECT_TRUE(names_in(dir.path()).empty());
    wanted.allow_network = true;
    EXPECT_NO_THROW(SwapSpace::open(wanted, io));
  }
}

TEST(SwapSpace, SaysWhatIsOddAboutAPath) {
  const TempDir dir;
  FaultyIo io;
  io.pretended_type = TMPFS_MAGIC;
  EXPECT_THAT(SwapSpace::open(options({dir.path()}, {{0, kMiB}}), io).notes(),
              ::testing::ElementsAre(dir.path() + ": tmpfs keeps files in memory, so swapping frees none"));
  io.pretended_type = BTRFS_SUPER_MAGIC;
  EXPECT_THAT(SwapSpace::open(options({dir.path()}, {{0, kMiB}}), io).notes()[0], HasSubstr("found full during the run"));
}

TEST(SwapSpace, NeedsADirectory) {
  const TempDir dir;
  expect_error<RequestError>([&] { SwapSpace::open(options({dir / "none"}, {{0, kMiB}})); }, {dir / "none", "does not exist"});
  const std::string file = dir.write("file", "x");
  expect_error<RequestError>([&] { SwapSpace::open(options({file}, {{0, kMiB}})); }, {file, "is not a directory"});
}

TEST(SwapSpace, SpaceIsCheckedWithEveryClaim) {
  const TempDir dir;
  const std::int64_t huge = std::int64_t{1} << 50;
  SwapSpace::Options wanted = options({dir.path()}, {{0, kMiB}});
  wanted.claims.push_back({dir.path(), "checkpoints", huge});
  expect_error<EnvironmentError>([&] { SwapSpace::open(wanted); },
                                 {dir.path(), "checkpoints 1.00 PiB", "swap of rank 0 1.00 MiB", "are free", "too few"});
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SwapSpace, AFailureInItsFirstWritingGivesEverythingBack) {
  const TempDir dir;
  make_directories(dir / "a");
  make_directories(dir / "b");
  FaultyIo io;
  io.arm([](IoDirection direction, int index, std::int64_t bytes) -> std::int64_t {
    return direction == kWrite && index == 9 ? -EIO : bytes;
  });
  expect_error<IoError>([&] { SwapSpace::open(options({dir / "a", dir / "b"}, {{0, 2 * kMiB}}), io); }, {dir.path(), "writing", "error"});
  EXPECT_TRUE(names_in(dir / "a").empty());
  EXPECT_TRUE(names_in(dir / "b").empty());
}

}  // namespace
}  // namespace sluice::memory
