#include "profile/measure_disks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "comm/local/local_communicator.hpp"
#include "memory/io/file_engine.hpp"
#include "memory/io/file_system.hpp"
#include "memory/io/swap_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::profile {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::TempDir;

DiskRequest request_of(const std::vector<std::string>& paths) {
  return {.paths = paths, .job = "test", .most_bytes = 32 * kMiB};
}

/// "/a (ext4, libaio, direct)", as its engine alone says.
std::string served(const std::string& path) {
  const memory::SwapFile file = memory::SwapFile::create(path, {"here", "served", 0});
  const auto engine = memory::FileEngine::open(file.path(), {});
  return cat(path, " (", memory::file_system_of(path).name, ", ",
             engine->service() == memory::FileEngine::Service::kAio ? "libaio" : "threads",
             engine->is_direct() ? ", direct)" : ", buffered)");
}

TEST(MeasureDisks, TwoRanksOnTwoPathsEndWithTheSameFigures) {
  const TempDir one, two;
  std::array<DiskMeasurement, 2> measured;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    measured[static_cast<std::size_t>(world.rank())] = measure_disks(world, request_of({one.path(), two.path()}));
  });
  EXPECT_EQ(measured[0].speed, measured[1].speed);
  EXPECT_EQ(measured[0].lines, measured[1].lines);
  EXPECT_EQ(measured[0].warnings, measured[1].warnings);
  const spec::DiskSpeed& speed = measured[0].speed;
  for (const double rate : {speed.read_bytes_per_second, speed.write_bytes_per_second, speed.read_beside_write, speed.write_beside_read}) {
    EXPECT_GT(rate, 1e5);
    EXPECT_LT(rate, 1e12);
  }
  EXPECT_GE(speed.block_bytes, 256 * kKiB);
  EXPECT_GE(speed.depth, 4);
  EXPECT_GT(speed.free_bytes, 0);
  EXPECT_THAT(measured[0].lines, ElementsAre(AllOf(HasSubstr(served(one.path())), HasSubstr(" and " + served(two.path())),
                                                   HasSubstr("in flight"), HasSubstr("core seconds a GB"))));
  EXPECT_TRUE(names_in(one.path()).empty());
  EXPECT_TRUE(names_in(two.path()).empty());
}

TEST(MeasureDisks, AFailureIsEverybodys) {
  const TempDir dir;
  std::array<std::string, 2> told;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    try {
      measure_disks(world, request_of({dir / "absent"}));
    } catch (const RequestError& error) {
      EXPECT_TRUE(error.is_agreed());
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(told[0], HasSubstr("does not exist"));
  EXPECT_EQ(told[0], told[1]);
}

TEST(MeasureDisks, TheKeyKnowsThePaths) {
  const TempDir dir;
  EXPECT_NE(disk_key(request_of({dir.path()})), disk_key(request_of({dir / "other"})));
  EXPECT_EQ(disk_key(request_of({})), "");
}

}  // namespace
}  // namespace sluice::profile
