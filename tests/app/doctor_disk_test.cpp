#include "app/doctor_disk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/file.hpp"
#include "base/units.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

SwapPathFacts good() {
  SwapPathFacts facts;
  facts.path = "/scratch";
  facts.file_system = "ext4";
  facts.free_bytes = 500 * kGiB;
  facts.is_probed = facts.is_aio = facts.is_direct = true;
  facts.alignment = 512;
  return facts;
}

SwapLimits free_limits() {
  return {65536, 0, std::numeric_limits<std::int64_t>::max()};
}

Finding first(const SwapPathFacts& facts) {
  return diagnose_swap({facts}, free_limits()).front();
}

TEST(DoctorDisk, AGoodDiskIsFine) {
  const std::vector<Finding> findings = diagnose_swap({good()}, free_limits());
  EXPECT_EQ(worst_of(findings), Severity::kFine);
  EXPECT_EQ(findings[0].subject, "swap path /scratch");
  EXPECT_EQ(findings[0].found, "ext4, 500 GiB free, libaio, direct in units of 512 bytes");
  EXPECT_THAT(describe(findings), HasSubstr("65536 of 65536 requests (fs.aio-max-nr) are left"));
  EXPECT_THAT(describe(findings), HasSubstr("locked memory: no limit"));
}

TEST(DoctorDisk, EachFaultHasItsRemedy) {
  SwapPathFacts facts = good();
  facts.problem = "/scratch: does not exist";
  EXPECT_EQ(first(facts).severity, Severity::kProblem);
  EXPECT_THAT(first(facts).found, HasSubstr("does not exist"));
  facts = good();
  facts.is_network = true;
  facts.file_system = "NFS";
  EXPECT_EQ(first(facts).severity, Severity::kWarning);
  EXPECT_THAT(first(facts).remedy, HasSubstr("--nvme-network"));
  facts = good();
  facts.is_memory = true;
  EXPECT_THAT(first(facts).remedy, HasSubstr("kept in memory"));
  facts = good();
  facts.is_aio = false;
  facts.note = "/scratch/x: no asynchronous I/O";
  EXPECT_EQ(first(facts).severity, Severity::kWarning);
  EXPECT_EQ(first(facts).found, facts.note);
  facts = good();
  facts.free_bytes = kGiB;
  EXPECT_THAT(first(facts).remedy, HasSubstr("make room"));
}

TEST(DoctorDisk, SwapFilesAreListedWithTheirState) {
  using State = memory::SwapFinding::State;
  SwapPathFacts facts = good();
  facts.files = {{"/scratch/a", State::kInUse, kGiB, std::nullopt, "in use by process 7"},
                 {"/scratch/b", State::kLeftover, 2 * kGiB, std::nullopt, "left behind by process 8"},
                 {"/scratch/c", State::kUnclear, 0, std::nullopt, "of process 9 on host b"},
                 {"/scratch/d", State::kForeign, 0, std::nullopt, "belongs to user 5"}};
  const std::vector<Finding> findings = diagnose_swap({facts}, free_limits());
  ASSERT_EQ(findings.size(), 7u);
  EXPECT_EQ(findings[1].severity, Severity::kFine);
  EXPECT_EQ(findings[1].found, "1.00 GiB, in use by process 7");
  EXPECT_EQ(findings[2].severity, Severity::kWarning);
  EXPECT_THAT(findings[2].remedy, HasSubstr("the next run that swaps there removes it"));
  EXPECT_EQ(findings[3].severity, Severity::kWarning);
  EXPECT_THAT(findings[3].remedy, HasSubstr("once its owner has ended"));
  EXPECT_EQ(findings[4].severity, Severity::kFine);
}

TEST(DoctorDisk, LimitsThatAreTooLow) {
  const std::vector<Finding> low = diagnose_swap({}, {65536, 65530, 64 * kKiB});
  ASSERT_EQ(low.size(), 2u);
  EXPECT_EQ(low[0].severity, Severity::kWarning);
  EXPECT_THAT(low[0].remedy, HasSubstr("sysctl fs.aio-max-nr"));
  EXPECT_EQ(low[1].severity, Severity::kWarning);
  EXPECT_THAT(low[1].found, HasSubstr("64.0 KiB"));
  EXPECT_THAT(low[1].remedy, HasSubstr("ulimit -l unlimited"));
  EXPECT_EQ(worst_of(diagnose_swap({}, {})), Severity::kFine) << "what is unknown is not alarming";
}

TEST(DoctorDisk, LooksAtAPathAndLeavesNothing) {
  const testing::TempDir dir;
  const memory::SwapFile other = memory::SwapFile::create(dir.path(), {"here", "other", 2});
  const SwapPathFacts facts = read_swap_path(dir.path(), "here");
  EXPECT_EQ(facts.problem, "");
  EXPECT_TRUE(facts.is_probed);
  EXPECT_GT(facts.free_bytes, 0);
  EXPECT_NE(facts.file_system, "");
  ASSERT_EQ(facts.files.size(), 1u);
  EXPECT_EQ(facts.files[0].state, memory::SwapFinding::State::kInUse);
  EXPECT_EQ(names_in(dir.path()).size(), 1u);
  EXPECT_THAT(read_swap_path(dir / "absent", "here").problem, HasSubstr("does not exist"));
  const SwapLimits limits = read_swap_limits();
  EXPECT_GT(limits.aio_most, 0);
  EXPECT_GE(limits.lockable_bytes, 0);
}

}  // namespace
}  // namespace sluice::app
