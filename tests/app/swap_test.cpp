#include "app/swap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/units.hpp"
#include "memory/io/swap_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::TempDir;

Configuration with_paths(const std::vector<std::string>& paths) {
  Configuration configuration;
  configuration.nvme_paths = paths;
  for (std::size_t i = 0; i < paths.size(); ++i) configuration.nvme_keys.push_back("a.json:" + std::to_string(i + 1) + ": key");
  return configuration;
}

TEST(SwapPaths, MustBeDirectoriesThatCanBeWritten) {
  const TempDir dir;
  check_swap_paths(with_paths({dir.path()}));
  check_swap_paths(with_paths({}));
  EXPECT_THAT(names_in(dir.path()), IsEmpty());
  expect_error<RequestError>(
      [&] {
        check_swap_paths(with_paths({dir.path(), dir / "absent"}));
      },
      {"a.json:2: key: " + dir / "absent", "does not exist"});
  expect_error<RequestError>([&] { check_swap_paths(with_paths({dir.write("file", "x")})); },
                             {"a.json:1: key: ", "file", "is not a directory"});
}

TEST(SwapJob, IsNobodyElses) {
  const std::string job = swap_job({{"SLURM_JOB_ID", "77"}});
  EXPECT_THAT(job, MatchesRegex("77-[0-9]+-[0-9a-f]+"));
  EXPECT_THAT(job, HasSubstr(std::to_string(::getpid())));
  EXPECT_NE(swap_job({{"SLURM_JOB_ID", "77"}}), job);
  EXPECT_THAT(swap_job({}), MatchesRegex("[0-9]+-[0-9a-f]+"));
}

TEST(SwapLeftovers, AreRemovedAndToldAndLivingOnesLeft) {
  const TempDir dir;
  const memory::SwapFile living = memory::SwapFile::create(dir.path(), {"here", "living", 0});
  // A file without a lock is what a dead process leaves.
  std::string left;
  {
    const memory::SwapFile file = memory::SwapFile::create(dir.path(), {"here", "dead", 3});
    left = file.path();
    ASSERT_EQ(::link(left.c_str(), (dir / "kept").c_str()), 0);
  }
  make_directories(std::filesystem::path(left).parent_path().string());
  ::chmod(std::filesystem::path(left).parent_path().c_str(), 0700);
  ASSERT_EQ(::rename((dir / "kept").c_str(), left.c_str()), 0);
  EXPECT_THAT(remove_swap_leftovers(with_paths({dir.path()}), "here"),
              ElementsAre(AllOf(HasSubstr("swap: removed"), HasSubstr(left), HasSubstr("job dead, rank 3"))));
  EXPECT_FALSE(exists(left));
  EXPECT_TRUE(exists(living.path()));
  EXPECT_THAT(remove_swap_leftovers(with_paths({dir.path()}), "here"), IsEmpty());
}

TEST(SwapRoom, KnowsWhichDiskTheRunWritesTo) {
  const TempDir dir;
  make_directories(dir / "swap");
  const std::vector<SwapRoom> same = swap_rooms(with_paths({dir / "swap"}), dir / "runs/not/yet", 1000, 2);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_GT(same[0].free_bytes, 0);
  EXPECT_EQ(same[0].claimed_bytes, 1000);
  EXPECT_EQ(same[0].hosts, 1) << "a local disk";
  EXPECT_EQ(swap_rooms(with_paths({dir / "swap"}), "/proc", 1000, 2)[0].claimed_bytes, 0);
  const std::vector<memory::SpaceClaim> claims = space_claims(with_paths({dir / "swap"}), dir / "runs/not/yet", 1000);
  ASSERT_EQ(claims.size(), 1u);
  EXPECT_EQ(claims[0].path, dir.path()) << "what is there of it";
  EXPECT_EQ(claims[0].bytes, 1000);
  EXPECT_THAT(space_claims(with_paths({dir / "swap"}), "/proc", 1000), IsEmpty());
}

TEST(BytesBelow, CountsFilesOfAllFolders) {
  const TempDir dir;
  EXPECT_EQ(bytes_below(dir / "absent"), 0);
  dir.write("a/one", "12345");
  dir.write("a/b/two", "123");
  EXPECT_EQ(bytes_below(dir / "a"), 8);
}

TEST(DiskTraffic, IsToldPerStepAndDay) {
  EXPECT_EQ(describe_traffic({2 * kGiB, kGiB}, 2),
            "reads 2.00 GiB from and writes 1.00 GiB to disk a step, at 2.00 s a step 42.2 TiB written a day");
  EXPECT_EQ(describe_traffic({2 * kGiB, kGiB}, 0), "reads 2.00 GiB from and writes 1.00 GiB to disk a step");
}

}  // namespace
}  // namespace sluice::app
