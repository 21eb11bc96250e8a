#include "plan/workbench.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/plan_requests.hpp"

namespace sluice::plan {
namespace {

constexpr double kPromised = 0.05;  // how far the reduced graph may be from the whole one

TEST(ReducedGraph, PredictsTheWholeOne) {
  double worst = 0;
  for (const char* preset : {"gpt2-124m", "gpt2-1.5b"}) {
    PlanRequest request = test::plan_request(preset, 2, 32, 256, 64 * kGiB);
    for (const double comm : {5e9, 0.5e9}) {  // communication hidden, and not
      request.machine.gather.bytes_per_second = request.machine.scatter.bytes_per_second = comm;
      Workbench bench(request);
      for (const int stage : {0, 1, 2, 3}) {
        for (const double half_blocks : {0.25, 0.5, 1.0, 2.0, 4.0}) {  // what the search walks
          const std::int64_t half_block = 8 * request.model.hidden * request.model.hidden;
          const auto chunk = round_up(static_cast<std::int64_t>(half_blocks * static_cast<double>(half_block)), 256);
          for (const double part : {0.0, 0.5, 1.0}) {
            if (stage < 3 && part > 0) continue;
            for (const int recompute : {0, 1, 2}) {
              spec::Plan plan;
              plan.zero_stage = stage;
              plan.chunk_elements = chunk;
              plan.micro_batch = 2;
              plan.accumulation = 8;
              plan.update_mode = recompute == 1 ? spec::UpdateMode::kNextForward : spec::UpdateMode::kAtEnd;
              plan.threads = 4;
              plan.mesh = request.mesh;
              if (stage == 3) plan.rcache_elements = test::rcache_at(bench, chunk, plan.prefetch_segments, part);
              const std::size_t segments = bench.model().segments.size();
              for (std::size_t s = 0; s < segments; ++s)
                plan.activations.push_back(recompute == 1 || (recompute == 2 && s >= segments / 2) ? spec::Activation::kRecompute
                                                                                                   : spec::Activation::kKeep);
              const schedule::BuildInputs inputs = bench.inputs(plan);
              const double whole = bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs).seconds;
              const double reduced = reduced_seconds(bench, plan);
              const double error = std::abs(reduced - whole) / whole;
              worst = std::max(worst, error);
              EXPECT_LE(error, kPromised) << preset << " comm " << comm << " stage " << stage << " chunk " << chunk << " rcache " << part
                                          << " recompute " << recompute << ": " << reduced << " for " << whole;
            }
          }
        }
      }
    }
  }
  RecordProperty("worst_error_percent", static_cast<int>(std::ceil(100 * worst)));
}

TEST(ReducedGraph, PredictsTheWholeOneOfTieredPlans) {
  double worst = 0;
  for (const std::int64_t ranks : {1, 2}) {
    PlanRequest request = test::tiered_request("gpt2-124m", ranks, 12 * ranks, 256, {8 * kGiB, 8 * kGiB, 64 * kGiB});
    for (const double disk : {3e9, 0.5e9}) {  // hidden, and not
      request.machine.disk.read_bytes_per_second = request.machine.disk.write_bytes_per_second = disk;
      request.machine.disk.read_beside_write = request.machine.disk.write_beside_read = 0;
      Workbench bench(request);
      int n = 0;
      for (const spec::ChunkHomes& away : std::vector<spec::ChunkHomes>{{spec::Tier::kDevice, spec::Tier::kDevice, spec::Tier::kDisk},
                                                                        {spec::Tier::kDevice, spec::Tier::kHost, spec::Tier::kHost},
                                                                        {spec::Tier::kHost, spec::Tier::kHost, spec::Tier::kDisk},
                                                                        {spec::Tier::kDisk, spec::Tier::kHost, spec::Tier::kDisk}}) {
        for (const spec::Activation activation : {spec::Activation::kKeep, spec::Activation::kHost, spec::Activation::kDisk}) {
          for (const auto order : {spec::MicroBatchOrder::kDepthFirst, spec::MicroBatchOrder::kLayerByLayer}) {
            ++n;
            spec::Plan plan;
            plan.zero_stage = away.working != spec::Tier::kDevice ? 3 : 2;
            plan.chunk_elements = n % 2 == 0 ? 2'360'064 : 9'437'184;
            plan.micro_batch = 1;
            plan.accumulation = 12;
            plan.order = order;
            plan.update_mode = n % 3 == 0 ? spec::UpdateMode::kNextForward : spec::UpdateMode::kAtEnd;
            plan.threads = 4;
            plan.mesh = request.mesh;
            if (plan.zero_stage == 3) plan.rcache_elements = test::rcache_at(bench, plan.chunk_elements, 1, 0.25 * (n % 4));
            plan.activations.assign(bench.model().segments.size(), activation);
            plan.homes.assign(bench.layout(plan.chunk_elements).chunks().size(), away);
            const schedule::BuildInputs inputs = bench.inputs(plan);
            const double whole = bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs).seconds;
            const double reduced = reduced_seconds(bench, plan);
            worst = std::max(worst, std::abs(reduced - whole) / whole);
            EXPECT_LE(std::abs(reduced - whole), kPromised * whole)
                << ranks << " ranks, disk " << disk << ", " << describe(plan) << ": " << reduced << " for " << whole;
          }
        }
      }
    }
  }
  RecordProperty("worst_error_percent", static_cast<int>(std::ceil(100 * worst)));
}

TEST(ReducedGraph, IsTheWholeOneWhereThatIsSmall) {
  const PlanRequest request = test::plan_request("gpt2-micro", 2, 4, 64, kGiB);
  Workbench bench(request);
  spec::Plan plan;
  plan.zero_stage = 2;
  plan.chunk_elements = 131'072;
  plan.micro_batch = 1;
  plan.accumulation = 2;
  plan.threads = 4;
  plan.activations.assign(bench.model().segments.size(), spec::Activation::kKeep);
  const schedule::BuildInputs inputs = bench.inputs(plan);
  EXPECT_DOUBLE_EQ(reduced_seconds(bench, plan), bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs).seconds);
}

TEST(Workbench, RCacheGoesFromTheLeastToTheWhole) {
  const PlanRequest request = test::plan_request("gpt2-124m", 2, 16, 256, kGiB);
  Workbench bench(request);
  const auto [least, whole] = bench.rcache_range(4'194'304, 1);
  EXPECT_GE(least, 38'597'376);  // the token table stands whole
  EXPECT_EQ(whole, bench.layout(4'194'304).elements());
  EXPECT_LT(least, whole);
  EXPECT_LT(bench.rcache_range(4'194'304, 0).first, least);
}

TEST(Workbench, AgreesStandAboutASecondApart) {
  PlanRequest request = test::plan_request("gpt2-124m", 2, 16, 256, kGiB);
  Workbench quick(request);
  EXPECT_EQ(quick.segments_between_agrees(1), 0);
  request.machine.flops_per_core = 50e6;
  Workbench slow(request);
  EXPECT_GE(slow.segments_between_agrees(8), 1);
  // A micro-batch of one takes minutes: the longest segment, the head's, sets the distance.
  const schedule::PriceList list(request.machine, 2, 4);
  const model::Segment& head = *slow.model().segments.back();
  const double seconds = list.alone_seconds(list.compute(head, 768, model::Phase::kForwardBackward, {1, 256}));
  EXPECT_EQ(slow.segments_between_agrees(1), std::max(1, static_cast<int>(1 / seconds)));
}

}  // namespace
}  // namespace sluice::plan
