// Near the least memory that a model can be trained in: what fits is found, what doesn't is refused with what it misses.

#include <gmock/gmock.h>

#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/plan_checks.hpp"
#include "plan/search.hpp"
#include "support/sanitized.hpp"

namespace sluice::plan {
namespace {

using spec::Activation;
using spec::ChunkHomes;
using spec::MicroBatchOrder;
using spec::Tier;

/// A small space of plans, and the tier of which less and less is given.
struct Case {
  std::string name, model;
  std::int64_t ranks, batch, micro, sequence, chunk;
  spec::Budget budget;  // of the other tiers, and of this one enough
  Tier axis;
};
void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

PlanRequest request_of(const Case& of) {
  PlanRequest request = test::tiered_request(of.model, of.ranks, of.batch, of.sequence, of.budget);
  request.training.batch.micro_batch = of.micro;
  request.machine.unplanned_bytes = 0;
  request.pins.chunk_elements = of.chunk;
  request.pins.update_mode = spec::UpdateMode::kAtEnd;
  return request;
}

std::int64_t& given(PlanRequest& request, Tier tier) {
  return tier == Tier::kDevice ? request.budget.device_bytes : tier == Tier::kHost ? request.budget.host_bytes : request.budget.disk_bytes;
}

/// The plan with so much of a tier, or none and the budget that the refusal advises.
struct Answer {
  std::optional<PlanResult> result;
  spec::Budget advised;
  std::string refusal;
};
Answer ask(const PlanRequest& request) {
  try {
    Answer answer{search(request), request.budget, {}};
    test::expect_true(request, *answer.result);
    return answer;
  } catch (const EnvironmentError& error) {
    Answer answer{std::nullopt, request.budget, error.what()};
    const auto follow = [&](const std::string& option, std::int64_t& bytes) {
      const std::size_t found = answer.refusal.find(option);
      if (found == std::string::npos) return;
      const std::size_t from = found + option.size();
      bytes = parse_bytes(answer.refusal.substr(from, answer.refusal.find(" or more", from) - from));
    };
    follow("--device-memory ", answer.advised.device_bytes);
    follow("--host-memory ", answer.advised.host_bytes);
    follow("--nvme-space ", answer.advised.disk_bytes);
    return answer;
  }
}

/// The least bytes of the tier that any plan of the case's space takes whose other tiers have room, every one placed: all stages, orders
/// and prefetches, with everything kept or recomputed, and with states, then gradients, then working parameters off the device, of all
/// chunks from one on.
std::int64_t true_minimum(const Case& of) {
  const PlanRequest request = request_of(of);
  Workbench bench(request);
  const std::size_t chunks = bench.layout(of.chunk).chunks().size();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto place = [&](const spec::Plan& plan) {
    const schedule::BuildInputs inputs = bench.inputs(plan);
    const schedule::SetBytes of_set = schedule::bytes_of_set(schedule::build(schedule::GraphKind::kStep, inputs), inputs);
    auto bytes = of_set.arenas;
    bytes[static_cast<std::size_t>(Tier::kDevice)] += of_set.bookkeeping;
    for (const Tier tier : {Tier::kHost, Tier::kDisk}) bytes[static_cast<std::size_t>(tier)] *= bench.ranks_per_node();
    const std::array<std::int64_t, spec::kTierCount> have{of.budget.device_bytes, of.budget.host_bytes, of.budget.disk_bytes};
    for (std::size_t tier = 0; tier < bytes.size(); ++tier) {
      const bool is_limited = tier != static_cast<std::size_t>(Tier::kHost) || of.budget.host_bytes > 0;
      if (static_cast<Tier>(tier) != of.axis && is_limited && bytes[tier] > have[tier]) return;
    }
    least = std::min(least, bytes[static_cast<std::size_t>(of.axis)]);
  };
  const auto place_homes = [&](spec::Plan plan) {
    place(plan);
    if (of.budget.host_bytes == 0) return;
    const Tier away = of.budget.disk_bytes > 0 ? Tier::kDisk : Tier::kHost;
    const std::size_t step = of.axis == Tier::kDevice ? chunks : 1;  // of the device everything gone takes least
    plan.homes.assign(chunks, {});
    const int levels = plan.zero_stage == 3 ? 3 : plan.zero_stage == 2 ? 2 : 1;
    for (int level = 0; level < levels; ++level) {
      for (std::size_t gone = step; gone <= chunks; gone += step) {
        for (std::size_t c = chunks - gone; c < chunks; ++c) {
          if (level == 0) plan.homes[c].states = away;
          if (level == 1) plan.homes[c].gradient = away;
          if (level == 2) plan.homes[c].working = away;
        }
        place(plan);
      }
    }
  };
  for (const int stage : {0, 1, 2, 3}) {
    for (const int prefetch : {0, 1}) {
      for (const MicroBatchOrder order : {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer}) {
        if ((order == MicroBatchOrder::kLayerByLayer && stage < 2) || (stage < 3 && prefetch == 0)) continue;
        for (const Activation activation : {Activation::kKeep, Activation::kRecompute}) {
          spec::Plan plan;
          plan.zero_stage = stage;
          plan.chunk_elements = of.chunk;
          plan.prefetch_segments = prefetch;
          if (stage == 3) plan.rcache_elements = bench.rcache_range(of.chunk, prefetch).first;
          plan.micro_batch = of.micro;
          plan.accumulation = of.batch / of.micro / of.ranks;
          plan.order = order;
          plan.activations.assign(bench.model().segments.size(), activation);
          plan.threads = request.threads;
          plan.mesh = request.mesh;
          place_homes(plan);
        }
      }
    }
  }
  return least;
}

class Floor : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    All, Floor,
    ::testing::Values(Case{"micro_device", "gpt2-micro", 2, 8, 1, 128, 131'072, {kGiB, 0, 0}, Tier::kDevice},
                      Case{"micro_device_with_host", "gpt2-micro", 1, 8, 2, 128, 131'072, {kGiB, kGiB, 0}, Tier::kDevice},
                      Case{"micro_host", "gpt2-micro", 1, 4, 1, 128, 65'536, {14 * kMiB, kGiB, 0}, Tier::kHost},
                      Case{"micro_host_with_disk", "gpt2-micro", 2, 8, 1, 128, 65'536, {37 * kMiB / 4, kGiB, kGiB}, Tier::kHost},
                      Case{"mid_device_with_host", "gpt2-124m", 2, 8, 2, 256, 4'718'592, {8 * kGiB, 8 * kGiB, 0}, Tier::kDevice},
                      Case{"mid_host_with_disk", "gpt2-124m", 1, 4, 1, 256, 4'718'592, {700 * kMiB, 8 * kGiB, 20 * kGiB}, Tier::kHost}),
    [](const auto& test) { return test.param.name; });

TEST_P(Floor, IsWhereSmallerBudgetsAreRefusedWithWhatTheyMiss) {
  if (testing::kIsSanitized && GetParam().model != "gpt2-micro") GTEST_SKIP() << "many minutes, and no other code";
  const Tier axis = GetParam().axis;
  PlanRequest request = request_of(GetParam());
  const std::int64_t floor = true_minimum(GetParam());
  ASSERT_LT(floor, std::numeric_limits<std::int64_t>::max());
  std::int64_t accepted = 0;  // the least that is
  double seconds = 0;         // the fewest so far
  for (const int percent : {40, 80, 92, 95, 97, 98, 99, 100, 101, 102, 103, 105, 107, 110, 115, 120, 130, 150}) {
    const std::int64_t bytes = floor * percent / 100;
    SCOPED_TRACE(cat(percent, " % of ", floor, " bytes"));
    given(request, axis) = bytes;
    const Answer answer = ask(request);
    if (!answer.result) {
      EXPECT_EQ(accepted, 0) << "what fits in less is refused: " << answer.refusal;
      PlanRequest followed = request;
      followed.budget = answer.advised;
      EXPECT_TRUE(ask(followed).result) << answer.refusal;
      continue;
    }
    if (accepted == 0) accepted = bytes;
    const double now = answer.result->prediction.seconds;
    // Plans within 0.5 % of each other count as equally fast; and how many activations had better be moved than recomputed is tried by
    // quarters, for the best few plans.
    if (seconds > 0) {
      EXPECT_LE(now, seconds * 1.03) << describe(answer.result->plan);
    }
    seconds = seconds > 0 ? std::min(seconds, now) : now;
  }
  ASSERT_GT(accepted, 0);
  EXPECT_LE(accepted, floor * 101 / 100) << "a plan of the space needs less";
}

}  // namespace
}  // namespace sluice::plan
