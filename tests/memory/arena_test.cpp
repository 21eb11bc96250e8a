#include "memory/arena.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/sanitized.hpp"

namespace sluice::memory {
namespace {

using testing::expect_error;

TEST(PlainBacking, IsPageAlignedZeroAndWritable) {
  const auto backing = make_plain_backing(10'000, "test");
  ASSERT_EQ(backing->bytes(), 10'000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(backing->data()) % 4096, 0U);
  for (std::int64_t i = 0; i < 10'000; ++i) ASSERT_EQ(backing->data()[i], std::byte{0}) << i;
  std::memset(backing->data(), 0x5A, 10'000);
  EXPECT_EQ(backing->data()[9'999], std::byte{0x5A});
}

TEST(PlainBacking, OfNothingIsNothing) {
  const auto backing = make_plain_backing(0, "test");
  EXPECT_EQ(backing->bytes(), 0);
  EXPECT_EQ(backing->data(), nullptr);
}

TEST(PlainBacking, RefusesWhatTheSystemRefuses) {
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 60;
  expect_error<OutOfMemory>([] { make_plain_backing(kTooMuch, "arena of all"); }, {"arena of all", "host"});
  expect_error<LogicError>([] { make_plain_backing(-1, "less"); }, {"less", "-1"});
}

/// Bytes that this process has locked.
std::int64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmLck:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

constexpr std::int64_t kPinned = 1 << 20;
TEST(PinnedBacking, IsThereZeroAndLocked) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  const std::int64_t before = locked_bytes();
  {
    const PinnedBacking pinned = make_pinned_backing(kPinned + 17, "host arena");
    ASSERT_EQ(pinned.backing->bytes(), kPinned + 17);
    for (std::int64_t i = 0; i < kPinned + 17; ++i) ASSERT_EQ(pinned.backing->data()[i], std::byte{0}) << i;
    std::memset(pinned.backing->data(), 0x5A, static_cast<std::size_t>(kPinned + 17));
    const bool may_lock = geteuid() == 0 || limit.rlim_cur >= static_cast<rlim_t>(2 * kPinned);
    EXPECT_EQ(pinned.note.empty(), may_lock || testing::kIsSanitized) << pinned.note;
    EXPECT_EQ(locked_bytes() - before, may_lock && !testing::kIsSanitized ? kPinned + 4096 : 0);
  }
  EXPECT_EQ(locked_bytes(), before);
  EXPECT_EQ(make_pinned_backing(0, "nothing").note, "");
}

/// In a process of its own, which gives up what root may: 64 KiB are the limit of many systems.
TEST(PinnedBacking, StaysPageableWhereTheLimitIsSmall) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{64U << 10, 64U << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(2);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
    const PinnedBacking pinned = make_pinned_backing(kPinned, "host arena");
    std::memset(pinned.backing->data(), 0x5A, static_cast<std::size_t>(kPinned));
    for (const char* part : {"host arena: 1.00 MiB stay pageable", "the limit is 64.0 KiB", "ulimit -l"}) {
      if ((pinned.note.find(part) != std::string::npos) == testing::kIsSanitized) _exit(4);
    }
    _exit(locked_bytes() == 0 ? 0 : 5);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Arena, GivesRangesWithinIt) {
  auto backing = make_plain_backing(4096, "test");
  std::byte* base = backing->data();
  const Arena arena(spec::Tier::kHost, std::move(backing));
  EXPECT_EQ(arena.tier(), spec::Tier::kHost);
  EXPECT_EQ(arena.bytes(), 4096);
  EXPECT_EQ(arena.at(0, 4096), base);
  EXPECT_EQ(arena.at(100, 20), base + 100);
  EXPECT_EQ(arena.at(4096, 0), base + 4096);
}

TEST(Arena, RefusesRangesBeyondIt) {
  const Arena arena(spec::Tier::kDevice, make_plain_backing(4096, "test"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [offset, bytes] : {std::pair<std::int64_t, std::int64_t>{0, 4097},
                                      {1, 4096},
                                      {4097, 0},
                                      {-1, 1},
                                      {0, -1},
                                      {4095, 2},
                                      {kMost, 1},
                                      {1, kMost},
                                      {kMost, kMost}}) {
    EXPECT_THROW(arena.at(offset, bytes), LogicError) << offset << " + " << bytes;
  }
  expect_error<LogicError>([&] { arena.at(4000, 200); }, {"200 bytes at 4000", "4096"});
}

TEST(Arena, TouchZeroesThePagesAndNothingBeyond) {
  auto backing = make_plain_backing(3 * 4096 + 17, "test");
  std::byte* base = backing->data();
  Arena arena(spec::Tier::kDevice, std::move(backing));
  arena.touch();
  EXPECT_EQ(base[0], std::byte{0});
  EXPECT_EQ(base[3 * 4096 + 16], std::byte{0});
  Arena none(spec::Tier::kDisk, nullptr);
  none.touch();
  EXPECT_EQ(none.bytes(), 0);
  EXPECT_EQ(none.at(0, 0), nullptr);
  EXPECT_THROW(none.at(0, 1), LogicError);
}

}  // namespace
}  // namespace sluice::memory
