#include "plan/bounds.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "plan/plan_requests.hpp"

namespace sluice::plan {
namespace {

struct Case {
  int stage;
  std::int64_t chunk;
  double rcache_part;
  std::int64_t micro;
  spec::UpdateMode mode;
  int recompute;  // 0 none, 1 all, 2 some
  int prefetch;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t chunk : {2'360'064, 9'437'184}) {
      for (const int recompute : {0, 1, 2}) {
        all.push_back({stage, chunk, 0.25, 2, spec::UpdateMode::kAtEnd, recompute, 1});
        all.push_back({stage, chunk, 0.0, 1, spec::UpdateMode::kNextForward, recompute, 0});
        all.push_back({stage, chunk, 1.0, 4, spec::UpdateMode::kAtEnd, recompute, 2});
      }
    }
  }
  return all;
}

spec::Plan plan_of(Workbench& bench, const Case& c) {
  spec::Plan plan;
  plan.zero_stage = c.stage;
  plan.chunk_elements = c.chunk;
  plan.micro_batch = c.micro;
  plan.accumulation = 8 / c.micro;
  plan.update_mode = c.mode;
  plan.prefetch_segments = c.prefetch;
  plan.threads = 4;
  plan.mesh = bench.request().mesh;
  if (c.stage == 3) plan.rcache_elements = test::rcache_at(bench, c.chunk, c.prefetch, c.rcache_part);
  for (std::size_t s = 0; s < bench.model().segments.size(); ++s)
    plan.activations.push_back(c.recompute == 1 || (c.recompute == 2 && s > 15) ? spec::Activation::kRecompute : spec::Activation::kKeep);
  return plan;
}

std::string name(const Case& c) {
  return cat("stage ", c.stage, " chunk ", c.chunk, " rcache ", c.rcache_part, " micro ", c.micro, " recompute ", c.recompute);
}

/// What is stored in 16 bits, and what is trained.
struct Numbers {
  std::string name;
  spec::Precision precision;
  std::vector<std::string> trainable;
};
void PrintTo(const Numbers& numbers, std::ostream* out) {
  *out << numbers.name;
}

class BoundsOf : public ::testing::TestWithParam<Numbers> {};
INSTANTIATE_TEST_SUITE_P(All, BoundsOf,
                         ::testing::Values(Numbers{"fp32", spec::Precision::kFp32, {}}, Numbers{"bf16", spec::Precision::kBf16, {}},
                                           Numbers{"vectors", spec::Precision::kFp32, {"bias$", "ln_"}},
                                           Numbers{"upper_half", spec::Precision::kBf16, {"h\\.([6-9]|1.)\\.", "ln_f"}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(BoundsOf, MemoryIsWhatPlacementNeedsOrALittleLess) {
  PlanRequest request = test::plan_request("gpt2-124m", 2, 16, 256, 8 * kGiB);
  request.training.precision = GetParam().precision;
  request.training.trainable = GetParam().trainable;
  Workbench bench(request);
  for (const Case& c : cases()) {
    SCOPED_TRACE(name(c));
    const spec::Plan plan = plan_of(bench, c);
    const schedule::StepGraph graph = schedule::build(schedule::GraphKind::kStep, bench.inputs(plan));
    const std::int64_t bound = memory_bound(bench, plan).bytes(plan.activations);
    EXPECT_EQ(memory_bound(bench, plan).of_homes.persistent, graph.persistent_bytes);
    const double ratio = static_cast<double>(bound) / static_cast<double>(graph.arena_bytes[0]);
    // The rCache isn't used to its last byte at the same time as the rest; with frozen parameters it is a larger part of all.
    const double unused_rcache = GetParam().trainable.empty() ? 0.05 : 0.08;
    EXPECT_LE(ratio, c.stage == 3 ? 1 + unused_rcache : 1.0);
    EXPECT_GE(ratio, 0.80);
    const double least = static_cast<double>(memory_bound(bench, plan).least_bytes(plan.activations)) /
                         static_cast<double>(graph.live_bytes_peak[0] + graph.persistent_bytes[0]);
    EXPECT_LE(least, 1.0) << "what would fit is ruled out";
    EXPECT_GE(least, 0.80);
  }
}

TEST_P(BoundsOf, SecondsAreBelowEverySimulatedStep) {
  for (const std::int64_t ranks : {1, 2, 8}) {
    PlanRequest request = test::plan_request("gpt2-124m", ranks, 8 * ranks, 256, 8 * kGiB);
    request.training.precision = GetParam().precision;
    request.training.trainable = GetParam().trainable;
    request.machine.link_bytes_per_second = 2e9;
    Workbench bench(request);
    for (const Case& c : cases()) {
      SCOPED_TRACE(cat(ranks, " ranks, ", name(c)));
      const spec::Plan plan = plan_of(bench, c);
      const schedule::BuildInputs inputs = bench.inputs(plan);
      const double seconds = bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs).seconds;
      const double bound = seconds_bound(bench, plan);
      EXPECT_LE(bound, seconds * (1 + 1e-9));
      EXPECT_GE(bound, seconds * 0.4) << "a bound that prunes nothing";
    }
  }
}

/// Plans that move something: every level of homes, on host and disk, whole and mixed with the device, with every kind of activation.
template <typename Visit>
void for_each_tiered(Workbench& bench, Visit visit) {
  int n = 0;
  for (const int stage : {0, 1, 2, 3}) {
    for (int level = 0; level <= std::max(0, stage - 1); ++level) {
      for (const spec::Tier tier : {spec::Tier::kHost, spec::Tier::kDisk}) {
        for (int activation = 0; activation <= spec::kActivationCount; ++activation) {
          ++n;
          spec::Plan plan = plan_of(bench, {.stage = stage,
                                            .chunk = n % 2 == 0 ? 2'360'064 : 9'437'184,
                                            .rcache_part = 0.25 * (n % 5),
                                            .micro = 1 + n % 2,
                                            .mode = n % 3 == 0 ? spec::UpdateMode::kNextForward : spec::UpdateMode::kAtEnd,
                                            .recompute = 0,
                                            .prefetch = n % 3});
          if (stage >= 2 && n % 4 == 1) plan.order = spec::MicroBatchOrder::kLayerByLayer;
          plan.state_prefetch = 1 + n % 2;
          for (std::size_t s = 0; s < plan.activations.size(); ++s)
            plan.activations[s] = static_cast<spec::Activation>(activation < spec::kActivationCount ? activation : (s + 1) % 4);
          const spec::Tier slower = tier == spec::Tier::kDisk && activation % 2 == 1 ? spec::Tier::kDisk : spec::Tier::kHost;
          const spec::ChunkHomes away{level >= 2 ? tier : spec::Tier::kDevice, level >= 1 ? slower : spec::Tier::kDevice, tier};
          plan.homes.assign(bench.layout(plan.chunk_elements).chunks().size(), away);
          if (n % 3 == 1) std::fill_n(plan.homes.begin(), plan.homes.size() / 2, spec::ChunkHomes{});
          visit(plan, cat("stage ", stage, ", level ", level, " on ", spec::name_of(tier), ", activations ", activation, ", case ", n));
        }
      }
    }
  }
}

TEST_P(BoundsOf, TieredPlansNeedWhatTheBoundsSay) {
  for (const std::int64_t ranks : {1, 2}) {
    PlanRequest request = test::tiered_request("gpt2-124m", ranks, 8 * ranks, 256, {8 * kGiB, 8 * kGiB, 64 * kGiB});
    request.training.precision = GetParam().precision;
    request.training.trainable = GetParam().trainable;
    Workbench bench(request);
    for_each_tiered(bench, [&](const spec::Plan& plan, const std::string& words) {
      SCOPED_TRACE(cat(ranks, " ranks, ", words));
      const schedule::BuildInputs inputs = bench.inputs(plan);
      const schedule::StepGraph graph = schedule::build(schedule::GraphKind::kStep, inputs);
      const MemoryBound memory = memory_bound(bench, plan);
      EXPECT_EQ(memory.of_homes.persistent, graph.persistent_bytes);
      EXPECT_EQ(memory.disk_bytes(plan.activations), graph.arena_bytes[2]);
      const auto ratio = [&](std::int64_t bound, std::size_t tier) {
        return static_cast<double>(bound) / static_cast<double>(graph.arena_bytes[tier]);
      };
      // Not all that passes through is there at the worst moment: the rCache, a gradient's part, what is fetched back.
      const double device = ratio(memory.bytes(plan.activations), 0), host = ratio(memory.host_bytes(plan.activations), 1);
      if (GetParam().trainable.empty()) {  // else there is so little of each that what isn't there weighs
        EXPECT_LE(device, plan.zero_stage == 3 ? 1.15 : 1.08);
        EXPECT_LE(host, 1.25);
        // With next_forward what updates leave for the first gathers counts.
        const bool leaves_updated = plan.update_mode == spec::UpdateMode::kNextForward && plan.homes.back().working == spec::Tier::kDisk;
        EXPECT_GE(host, leaves_updated ? 0.70 : 0.60);
      }
      EXPECT_GE(device, 0.75);
      const auto at_once = [&](std::size_t tier) { return graph.persistent_bytes[tier] + graph.live_bytes_peak[tier]; };
      EXPECT_LE(memory.least_bytes(plan.activations), at_once(0)) << "what would fit is ruled out";
      EXPECT_LE(memory.least_host_bytes(plan.activations), at_once(1)) << "what would fit is ruled out";
      if (GetParam().trainable.empty()) {
        EXPECT_GE(memory.least_bytes(plan.activations), at_once(0) * 3 / 4) << "a bound that rules nothing out";
        EXPECT_GE(memory.least_host_bytes(plan.activations), at_once(1) / 2);
      }
      const double seconds = bench.simulate(graph, inputs).seconds, bound = seconds_bound(bench, plan);
      EXPECT_LE(bound, seconds * (1 + 1e-9));
      EXPECT_GE(bound, seconds * 0.4) << "a bound that prunes nothing";
    });
  }
}

TEST(LeastGivenUp, TakesTheCheapestUntilItFits) {
  MemoryBound memory;
  memory.of_homes.persistent = {100, 0, 0};
  memory.forward_bytes = {1, 2, 3, 4, 5, 0};
  memory.backward_bytes = {2, 3, 4, 5, 6, 7};
  memory.saved_bytes = {0, 10, 40, 10, 40, 0};
  memory.recompute_seconds = {0, 1, 1, 1, 1, 0};
  const auto flags = [](std::initializer_list<int> list) {
    Activations activations;
    for (const int flag : list) activations.push_back(flag != 0 ? spec::Activation::kRecompute : spec::Activation::kKeep);
    return activations;
  };
  EXPECT_EQ(memory.bytes(flags({0, 0, 0, 0, 0, 0})), 100 + 100 + 7);      // at the head
  EXPECT_EQ(memory.bytes(flags({0, 1, 1, 1, 1, 0})), 100 + 40 + 6);       // in the backward of the fifth
  EXPECT_EQ(memory.bytes(flags({0, 0, 0, 0, 1, 0})), 100 + 60 + 40 + 6);  // it is the peak wherever the last segment recomputes
  EXPECT_EQ(least_given_up(memory, 207, spec::Activation::kRecompute), flags({0, 0, 0, 0, 0, 0}));
  // Most bytes a second first, of those alike the last layer first.
  EXPECT_EQ(least_given_up(memory, 206, spec::Activation::kRecompute), (flags({0, 0, 0, 0, 1, 0})));
  EXPECT_EQ(least_given_up(memory, 205, spec::Activation::kRecompute), (flags({0, 0, 1, 0, 1, 0})));
  EXPECT_EQ(least_given_up(memory, 156, spec::Activation::kRecompute), (flags({0, 0, 1, 1, 1, 0})));
  EXPECT_EQ(least_given_up(memory, 0, spec::Activation::kRecompute), (flags({0, 1, 1, 1, 1, 0})));
  // Moved instead, what comes back stands beside the backward before.
  EXPECT_EQ(least_given_up(memory, 0, spec::Activation::kHost),
            (Activations{spec::Activation::kKeep, spec::Activation::kHost, spec::Activation::kHost, spec::Activation::kHost,
                         spec::Activation::kHost, spec::Activation::kKeep}));
  memory.recompute_seconds = {0, 1, 10, 1, 10, 0};  // now the small ones give more a second
  EXPECT_EQ(least_given_up(memory, 206, spec::Activation::kRecompute), (flags({0, 0, 0, 1, 0, 0})));
  memory.recompute_seconds = {0, 0, 1, 1, 1, 0};  // one that can't
  EXPECT_EQ(least_given_up(memory, 0, spec::Activation::kRecompute), (flags({0, 0, 1, 1, 1, 0})));
}

}  // namespace
}  // namespace sluice::plan
