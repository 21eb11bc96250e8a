#include "app/budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/units.hpp"
#include "model/build.hpp"
#include "parallel/unsharded.hpp"
#include "support/expect_error.hpp"

namespace sluice::app {
namespace {

using testing::expect_error;

model::Model small_model() {
  const spec::ModelSpec spec{.name = "small", .vocab = 10, .context = 8, .hidden = 4, .layers = 1, .heads = 1, .ffn = 16};
  return model::build_model(spec, *parallel::make_unsharded_modules());
}

MemoryFacts node(std::int64_t total, std::int64_t available, std::int64_t resident = 0) {
  MemoryFacts facts;
  facts.cpu.memory_total_bytes = total;
  facts.cpu.memory_available_bytes = available;
  facts.cpu.memory_limit_source = "/sys/fs/cgroup/memory.max";
  facts.resident_bytes = resident;
  return facts;
}

TEST(StateBytes, CountsEachPlaneOnce) {
  const model::Model model = small_model();
  const std::int64_t n = model.parameter_count();
  spec::TrainingSpec training;
  EXPECT_EQ(state_bytes(model, training), 16 * n) << "parameter, gradient, two moments";
  training.precision = spec::Precision::kBf16;
  EXPECT_EQ(state_bytes(model, training), 18 * n) << "and a master";
  training.optimizer.kind = spec::OptimizerKind::kSgd;
  EXPECT_EQ(state_bytes(model, training), 10 * n) << "no moments";
  training.trainable = {"ln_f"};
  EXPECT_EQ(state_bytes(model, training), 2 * n + 64) << "gain and bias of the last norm train";
}

TEST(MemoryBudget, WithoutWishesNearlyAllIsTheDevices) {
  Configuration configuration;
  const spec::Budget budget = memory_budget(configuration, 2, node(20 * kGiB, 16 * kGiB), 0);
  const std::int64_t usable = 16 * kGiB - 16 * kGiB / 10;
  EXPECT_EQ(budget.host_bytes, usable / 16);
  EXPECT_EQ(budget.device_bytes, (usable - usable / 16) / 2);
  EXPECT_EQ(budget.disk_bytes, 0);
}

TEST(MemoryBudget, WhatSwapsHasAQuarterOnTheHost) {
  Configuration configuration;
  configuration.nvme_paths = {"/scratch"};
  const MemoryFacts facts = node(20 * kGiB, 16 * kGiB);
  const std::int64_t usable = 16 * kGiB - 16 * kGiB / 10;
  EXPECT_EQ(memory_budget(configuration, 2, facts, 4 * kGiB).host_bytes, usable / 16) << "with room for everything nothing moves";
  const spec::Budget budget = memory_budget(configuration, 2, facts, 40 * kGiB);
  EXPECT_EQ(budget.host_bytes, usable / 4);
  EXPECT_EQ(budget.device_bytes, (usable - usable / 4) / 2);
  configuration.nvme_paths.clear();
  EXPECT_EQ(memory_budget(configuration, 2, facts, 40 * kGiB).host_bytes, usable / 16) << "on a CPU host memory is the device's memory";
}

TEST(MemoryBudget, OneWishLeavesTheRestToTheOther) {
  Configuration configuration;
  configuration.device_memory_bytes = kGiB;
  const MemoryFacts facts = node(20 * kGiB, 16 * kGiB);
  const std::int64_t usable = 16 * kGiB - 16 * kGiB / 10;
  spec::Budget budget = memory_budget(configuration, 2, facts, 0);
  EXPECT_EQ(budget.device_bytes, kGiB);
  EXPECT_EQ(budget.host_bytes, usable - 2 * kGiB);
  configuration.device_memory_bytes.reset();
  configuration.host_memory_bytes = 4 * kGiB;
  budget = memory_budget(configuration, 2, facts, 0);
  EXPECT_EQ(budget.host_bytes, 4 * kGiB);
  EXPECT_EQ(budget.device_bytes, (usable - 4 * kGiB) / 2);
}

TEST(MemoryBudget, ASmallCgroupKeepsAMarginForEachRank) {
  const spec::Budget budget = memory_budget({}, 2, node(300 * kMiB, 256 * kMiB), 0);
  EXPECT_EQ(budget.host_bytes + 2 * budget.device_bytes, (256 - 2 * 32) * kMiB);
  const spec::Budget tiny = memory_budget({}, 4, node(300 * kMiB, 100 * kMiB), 0);
  EXPECT_LE(tiny.host_bytes + 4 * tiny.device_bytes, 50 * kMiB);
  EXPECT_GT(tiny.device_bytes, 10 * kMiB);
}

TEST(MemoryBudget, WhatARankHasAlreadyIsItsDevices) {
  const spec::Budget without = memory_budget({}, 2, node(20 * kGiB, 16 * kGiB), 0);
  const spec::Budget with = memory_budget({}, 2, node(20 * kGiB, 16 * kGiB, 30 * kMiB), 0);
  EXPECT_EQ(with.device_bytes, without.device_bytes + 30 * kMiB);
  EXPECT_EQ(with.host_bytes, without.host_bytes);
  Configuration configuration;
  configuration.device_memory_bytes = kGiB;
  EXPECT_EQ(memory_budget(configuration, 2, node(20 * kGiB, 16 * kGiB, 30 * kMiB), 0).device_bytes, kGiB);
}

TEST(MemoryBudget, MoreThanThereIsIsRefused) {
  Configuration configuration;
  configuration.device_memory_bytes = 8 * kGiB;
  configuration.host_memory_bytes = 8 * kGiB;
  expect_error<EnvironmentError>(
      [&] { memory_budget(configuration, 2, node(20 * kGiB, 16 * kGiB), 0); },
      {"2 ranks of --device-memory 8.00 GiB and --host-memory 8.00 GiB need 24.0 GiB", "20.0 GiB", "/sys/fs/cgroup/memory.max"});
}

TEST(DiskBudget, PathsOnOneDiskShareItAndTheSmallestSetsThePace) {
  const std::vector<SwapRoom> one{{1, 100 * kGiB, 0}};
  EXPECT_EQ(swap_room(one, false), 100 * kGiB);
  EXPECT_EQ(swap_room(one, true), 90 * kGiB);
  const std::vector<SwapRoom> shared{{1, 100 * kGiB, 10 * kGiB}, {1, 100 * kGiB, 10 * kGiB}};
  EXPECT_EQ(swap_room(shared, false), 90 * kGiB);
  const std::vector<SwapRoom> apart{{1, 100 * kGiB, 40 * kGiB}, {2, 500 * kGiB, 0}};
  EXPECT_EQ(swap_room(apart, false), 120 * kGiB);
  EXPECT_EQ(swap_room(std::vector<SwapRoom>{{1, 10 * kGiB, 40 * kGiB}}, false), 0);
  const std::vector<SwapRoom> with_network{{1, 100 * kGiB, 40 * kGiB}, {.disk = 2, .free_bytes = 90 * kGiB, .hosts = 3}};
  EXPECT_EQ(swap_room(with_network, false), 60 * kGiB) << "three hosts share the second one, each has the first to itself";
  EXPECT_EQ(swap_room({}, true), 0);
}

TEST(DiskBudget, NvmeSpaceMustBeThere) {
  Configuration configuration;
  configuration.nvme_paths = {"/scratch"};
  const std::vector<SwapRoom> rooms{{1, 100 * kGiB, 30 * kGiB}};
  EXPECT_EQ(disk_budget(configuration, rooms), 60 * kGiB);
  configuration.nvme_space_bytes = 70 * kGiB;
  EXPECT_EQ(disk_budget(configuration, rooms), 70 * kGiB);
  configuration.nvme_space_bytes = 71 * kGiB;
  expect_error<EnvironmentError>([&] { disk_budget(configuration, rooms); },
                                 {"--nvme-space 71.0 GiB", "/scratch", "room for 70.0 GiB", "beside the 30.0 GiB of checkpoints"});
}

}  // namespace
}  // namespace sluice::app
