#pragma once
// What must hold of every result of the search.

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/explain.hpp"
#include "plan/plan_requests.hpp"
#include "plan/workbench.hpp"

namespace sluice::test {

inline std::int64_t arena_bytes(const plan::Prediction& p, spec::Tier tier) {
  return p.arena_bytes[static_cast<std::size_t>(tier)];
}
inline std::int64_t device_bytes(const plan::Prediction& p) {
  return arena_bytes(p, spec::Tier::kDevice) + p.unplanned_bytes;
}
inline std::int64_t segments_with(const spec::Plan& plan, spec::Activation activation) {
  return std::count(plan.activations.begin(), plan.activations.end(), activation);
}
inline bool recomputes(const spec::Plan& plan) {
  return segments_with(plan, spec::Activation::kRecompute) > 0;
}
inline bool moves_anything(const spec::Plan& plan) {
  return plan.uses_tier(spec::Tier::kHost) || plan.uses_tier(spec::Tier::kDisk);
}

/// What the search says of its plan, found again without it.
inline void expect_true(const plan::PlanRequest& request, const plan::PlanResult& result) {
  using plan::TagBytes;
  EXPECT_EQ(plan::plan_problem(result.plan, request), "");
  plan::Workbench bench(request);
  schedule::BuildInputs inputs = bench.inputs(result.plan);
  inputs.segments_between_agrees = result.segments_between_agrees;
  const schedule::StepGraph graph = schedule::build(schedule::GraphKind::kStep, inputs);
  EXPECT_EQ(graph.hash(), result.prediction.graph_hash);
  EXPECT_LE(device_bytes(result.prediction), request.budget.device_bytes);
  for (const schedule::GraphKind kind :
       {schedule::GraphKind::kStep, schedule::GraphKind::kEvaluate, schedule::GraphKind::kFlush, schedule::GraphKind::kSave}) {
    const schedule::StepGraph of_set = schedule::build(kind, inputs);
    for (std::size_t tier = 0; tier < spec::kTierCount; ++tier) EXPECT_LE(of_set.arena_bytes[tier], result.prediction.arena_bytes[tier]);
  }
  if (request.budget.host_bytes > 0) {
    EXPECT_LE(arena_bytes(result.prediction, spec::Tier::kHost) * bench.ranks_per_node(), request.budget.host_bytes);
  }
  EXPECT_LE(arena_bytes(result.prediction, spec::Tier::kDisk) * bench.ranks_per_node(), request.budget.disk_bytes);
  const schedule::Simulation simulation = schedule::simulate(graph, schedule::price_tasks(graph, inputs, request.machine), request.machine,
                                                             {.ranks = inputs.ranks, .threading = schedule::threading_of(graph)});
  EXPECT_DOUBLE_EQ(simulation.seconds, result.prediction.seconds);
  EXPECT_EQ(result.plan.micro_batch * result.plan.accumulation * request.mesh.data, request.training.batch.global_batch);
  std::int64_t tagged = result.prediction.gap_bytes;
  for (const TagBytes& tag : result.prediction.tags) tagged += tag.tier == spec::Tier::kDevice ? tag.bytes : 0;
  EXPECT_EQ(tagged, arena_bytes(result.prediction, spec::Tier::kDevice));
  EXPECT_GE(result.prediction.gap_bytes, 0);
  std::int64_t read = 0, written = 0;
  for (const schedule::Task& task : graph.tasks) {
    if (task.lane == schedule::Lane::kDiskRead) read += schedule::moved_bytes(graph, task, inputs);
    if (task.lane == schedule::Lane::kDiskWrite) written += schedule::moved_bytes(graph, task, inputs);
  }
  EXPECT_EQ(result.prediction.disk_read_bytes, read);
  EXPECT_EQ(result.prediction.disk_write_bytes, written);
  EXPECT_EQ(result.too_large + result.bounded + result.reduced + result.simulated, result.considered);
  EXPECT_LE(result.simulated, 20);
}

}  // namespace sluice::test
