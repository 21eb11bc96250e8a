#include "memory/io/measure_disk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "memory/io/pattern.hpp"
#include "support/temp_dir.hpp"

namespace sluice::memory {
namespace {

using sluice::testing::TempDir;

TEST(MeasureDisk, ChoosesOneOfWhatItMeasured) {
  const TempDir dir;
  const DiskFigures figures = measure_disk({.paths = {dir.path()}, .identity = {"n", "1", 0}, .file_bytes = 8 * kMiB, .seconds = 0.2});
  EXPECT_TRUE(names_in(dir.path()).empty());
  ASSERT_FALSE(figures.candidates.empty());
  double shortest = 1;
  for (const auto& candidate : figures.candidates) {
    EXPECT_GT(candidate.read_rate, 0);
    EXPECT_GT(candidate.write_rate, 0);
    shortest = std::min(shortest, 1 / candidate.read_rate + 1 / candidate.write_rate);
  }
  const auto chosen = std::find_if(figures.candidates.begin(), figures.candidates.end(), [&](const auto& candidate) {
    return candidate.block_bytes == figures.block_bytes && candidate.depth == figures.depth;
  });
  ASSERT_NE(chosen, figures.candidates.end());
  EXPECT_LE(1 / chosen->read_rate + 1 / chosen->write_rate, 1.031 * shortest);
  for (auto cheaper = figures.candidates.begin(); cheaper != chosen; ++cheaper) {
    EXPECT_GT(1 / cheaper->read_rate + 1 / cheaper->write_rate, 1.029 * shortest) << "fewer bytes in flight would have done";
  }
  EXPECT_GT(figures.read_rate, 0);
  EXPECT_GT(figures.write_rate, 0);
  EXPECT_GT(figures.read_rate_both, 0);
  EXPECT_GT(figures.write_rate_both, 0);
  EXPECT_GE(figures.read_core_seconds, 0);
  EXPECT_LT(figures.read_core_seconds, 1e-8) << "ten seconds per GB";
  EXPECT_EQ(figures.file_bytes, 8 * kMiB);
}

// Two ranks on two paths: parts begin together, what one rank reaches is made both ranks', and the choice follows from that.
TEST(MeasureDisk, SeveralPathsAndRanksMeasureTogether) {
  const TempDir one, two;
  int parts = 0, totals = 0;
  MeasureDiskOptions options{
      .paths = {one.path(), two.path()}, .identity = {"n", "1", 0}, .file_bytes = 4 * kMiB, .memory_bytes = 2 * kMiB};
  options.seconds = 0.1;
  options.together = [&](const std::function<void()>& part) {
    ++parts;
    part();
  };
  options.total = [&](double rate) {
    ++totals;
    return 2 * rate;
  };
  const DiskFigures figures = measure_disk(options);
  EXPECT_EQ(static_cast<std::size_t>(totals), 2 * figures.candidates.size() + 4);
  EXPECT_EQ(static_cast<std::size_t>(parts), 1 + 3 * figures.candidates.size() + 4);
  EXPECT_TRUE(names_in(one.path()).empty());
  EXPECT_TRUE(names_in(two.path()).empty());
  options.together = [](const std::function<void()>& part) {
    part();
    throw EnvironmentError("the other rank failed");
  };
  EXPECT_THROW(measure_disk(options), EnvironmentError);
  EXPECT_TRUE(names_in(two.path()).empty());
}

/// Paths on different file systems, of which the second keeps its files in memory: each is told as it is, and that once.
TEST(MeasureDisk, KnowsEachPath) {
  class TmpfsBelow final : public IoSystem {
   public:
    explicit TmpfsBelow(std::string path) : path_(std::move(path)) {}
    std::int64_t file_system_type(const char* path) const override {
      return std::string(path).starts_with(path_) ? std::int64_t{TMPFS_MAGIC} : std::int64_t{EXT4_SUPER_MAGIC};
    }

   private:
    std::string path_;
  };
  const TempDir one, two;
  const TmpfsBelow system(two.path());
  const DiskFigures figures =
      measure_disk({.paths = {one.path(), two.path()}, .identity = {"n", "1", 0}, .file_bytes = 4 * kMiB, .seconds = 0.2}, system);
  ASSERT_EQ(figures.paths.size(), 2u);
  EXPECT_EQ(figures.paths[1].service, FileEngine::Service::kCalls);
  EXPECT_FALSE(figures.paths[1].direct);
  const auto of_path = [&](const std::string& path) {
    return std::count_if(figures.notes.begin(), figures.notes.end(),
                         [&](const std::string& note) { return note.starts_with(path + ": "); });
  };
  EXPECT_EQ(of_path(two.path()), 1) << ::testing::PrintToString(figures.notes);
  EXPECT_THAT(figures.notes, ::testing::Contains(::testing::HasSubstr(two.path() + ": tmpfs keeps files in memory")));
  // The first is served as it would be alone.
  const DiskFigures alone =
      measure_disk({.paths = {one.path()}, .identity = {"n", "2", 0}, .file_bytes = 4 * kMiB, .seconds = 0.2}, system);
  EXPECT_EQ(figures.paths[0].service, alone.paths[0].service);
  EXPECT_EQ(figures.paths[0].direct, alone.paths[0].direct);
  EXPECT_EQ(of_path(one.path()), static_cast<std::ptrdiff_t>(alone.notes.size()));
}

// Requests of 1 MiB and more are slowed down: the choice has to follow what was measured, not a habit.
TEST(MeasureDisk, FollowsTheMeasurement) {
  class SlowWhenLarge final : public IoSystem {
   public:
    int set_direct(int /*fd*/) const override { return -EINVAL; }
    std::int64_t read(int fd, void* data, std::int64_t bytes, std::int64_t offset) const override {
      slow(bytes);
      return IoSystem::read(fd, data, bytes, offset);
    }
    std::int64_t write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) const override {
      slow(bytes);
      return IoSystem::write(fd, data, bytes, offset);
    }

   private:
    static void slow(std::int64_t bytes) { nap(bytes >= kMiB ? static_cast<int>(bytes / kMiB) * 40 : 0); }
  };
  const TempDir dir;
  const SlowWhenLarge system;
  const DiskFigures figures =
      measure_disk({.paths = {dir.path()}, .identity = {"n", "1", 0}, .file_bytes = 4 * kMiB, .seconds = 0.2}, system);
  EXPECT_EQ(figures.block_bytes, 256 * kKiB);
  ASSERT_EQ(figures.paths.size(), 1u);
  EXPECT_FALSE(figures.paths[0].direct);
  EXPECT_THAT(figures.notes, ::testing::Contains(::testing::HasSubstr("page cache's as much as the disk's")));
}

}  // namespace
}  // namespace sluice::memory
