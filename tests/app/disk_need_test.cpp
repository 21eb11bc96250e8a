#include "app/disk_need.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/build.hpp"
#include "parallel/unsharded.hpp"
#include "support/graph_inputs.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::HasSubstr;

model::Model tiny_model() {
  return model::build_model(testing::tiny_model_without_dropout(), *parallel::make_unsharded_modules());
}

TEST(DiskNeed, CountsParametersMomentsAndCheckpointsAtATime) {
  const model::Model model = tiny_model();
  const std::int64_t n = model.parameter_count();
  Configuration configuration;
  configuration.checkpoint_interval = 10;
  configuration.checkpoint_keep = 3;
  const DiskNeed need = disk_need(configuration, model, 1000);
  EXPECT_EQ(need.checkpoint_bytes, 12 * n);
  EXPECT_EQ(need.checkpoints, 4);
  EXPECT_EQ(need.export_bytes, 4 * n);
  EXPECT_EQ(need.total(), 4 * 12 * n + 4 * n);
  EXPECT_EQ(disk_need(configuration, model, 15).checkpoints, 2) << "a short run makes no more";
  configuration.valid_fraction = 0.1;
  EXPECT_EQ(disk_need(configuration, model, 1000).checkpoints, 5) << "the best one stays too";
  configuration.checkpoint_keep = 0;
  EXPECT_EQ(disk_need(configuration, model, 1000).checkpoints, 100) << "all are kept";
  configuration.checkpoint_interval = 0;
  EXPECT_EQ(disk_need(configuration, model, 1000).checkpoints, 1) << "at the end only";
}

TEST(DiskNeed, FrozenParametersHaveNoMomentsAndSixteenBitExportsAreHalf) {
  const model::Model model = tiny_model();
  Configuration configuration;
  configuration.training.trainable = {"ln_f"};
  configuration.training.precision = spec::Precision::kBf16;
  const DiskNeed need = disk_need(configuration, model, 0);
  EXPECT_EQ(need.checkpoint_bytes, 4 * model.parameter_count() + 8 * 2 * 48) << "gain and bias of the last norm train";
  EXPECT_EQ(need.export_bytes, 2 * model.parameter_count());
  configuration.export_model = false;
  EXPECT_EQ(disk_need(configuration, model, 0).export_bytes, 0);
}

TEST(DiskNeed, FreeSpaceIsThatOfTheNearestFolderThereIs) {
  const testing::TempDir dir;
  EXPECT_GT(free_disk_bytes(dir / "not/yet/there"), 0);
  EXPECT_GT(free_disk_bytes("."), 0);
  const std::string text =
      describe({.checkpoint_bytes = 1 << 20, .checkpoints = 4, .export_bytes = 1 << 19}, "runs/x", std::int64_t{1} << 30);
  EXPECT_THAT(text, HasSubstr("4.50 MiB at most: 4 checkpoints of 1.00 MiB (one of them being written)"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB are free at runs/x"));
}

}  // namespace
}  // namespace sluice::app
