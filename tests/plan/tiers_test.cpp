// The search over tiers: what leaves the device, where it goes, and what is said of it.

#include <gmock/gmock.h>

#include <chrono>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/homes.hpp"
#include "plan/plan_checks.hpp"
#include "plan/search.hpp"
#include "support/expect_error.hpp"
#include "support/sanitized.hpp"

namespace sluice::plan {
namespace {

using ::sluice::testing::expect_error;
using spec::Activation;
using spec::ChunkHomes;
using spec::Tier;
using test::arena_bytes;
using test::expect_true;
using test::moves_anything;
using test::segments_with;
using test::tiered_request;
using ::testing::HasSubstr;

std::int64_t chunks_in(const spec::Plan& plan, Tier ChunkHomes::*plane, Tier tier) {
  return std::count_if(plan.homes.begin(), plan.homes.end(), [&](const ChunkHomes& home) { return home.*plane == tier; });
}
std::int64_t tag_bytes(const PlanResult& result, Tier tier, schedule::BufferTag tag) {
  std::int64_t bytes = 0;
  for (const TagBytes& each : result.prediction.tags) bytes += each.tier == tier && each.tag == tag ? each.bytes : 0;
  return bytes;
}

TEST(Tiers, WithRoomForEverythingNothingMoves) {
  for (const std::int64_t ranks : {1, 2}) {
    PlanRequest request = tiered_request("gpt2-124m", ranks, 8, 512, {6 * kGiB, 32 * kGiB, 100 * kGiB});
    const PlanResult tiered = search(request);
    EXPECT_FALSE(moves_anything(tiered.plan));
    EXPECT_TRUE(tiered.plan.homes.empty());
    EXPECT_EQ(arena_bytes(tiered.prediction, Tier::kDisk), 0);
    expect_true(request, tiered);
    // The same plan as where there are no tiers.
    request.budget = {6 * kGiB, 0, 0};
    const PlanResult plain = search(request);
    EXPECT_EQ(tiered.plan, plain.plan);
    EXPECT_EQ(tiered.prediction.graph_hash, plain.prediction.graph_hash);
  }
}

TEST(Tiers, StatesGoToTheHostWhenTheDeviceIsShort) {
  // 1.3 GiB: working parameters and gradients are 950 MiB, the moments another 950.
  const PlanRequest request = tiered_request("gpt2-124m", 1, 8, 512, {1300 * kMiB, 8 * kGiB, 0});
  const PlanResult result = search(request);
  expect_true(request, result);
  EXPECT_GT(chunks_in(result.plan, &ChunkHomes::states, Tier::kHost), 0);
  EXPECT_FALSE(result.plan.uses_tier(Tier::kDisk));
  // Nothing is recomputed that has room, and the moments are somewhere.
  const std::int64_t moments = 8 * Workbench(request).layout(result.plan.chunk_elements).elements();
  EXPECT_GE(tag_bytes(result, Tier::kDevice, schedule::BufferTag::kMoments) + tag_bytes(result, Tier::kHost, schedule::BufferTag::kMoments),
            moments);
  EXPECT_EQ(result.state_bytes, moments);
  EXPECT_LT(result.device_bytes_for_states, moments);
  // Without them the device alone can't do it.
  PlanRequest alone = request;
  alone.budget.host_bytes = 0;
  EXPECT_THROW(search(alone), EnvironmentError);
}

TEST(Tiers, StatesGoToDiskWhenTheHostIsShortToo) {
  const PlanRequest request = tiered_request("gpt2-124m", 1, 8, 512, {1300 * kMiB, 300 * kMiB, 20 * kGiB});
  const PlanResult result = search(request);
  expect_true(request, result);
  const auto on_disk = chunks_in(result.plan, &ChunkHomes::states, Tier::kDisk);
  EXPECT_GT(on_disk, 0);
  EXPECT_GT(result.prediction.disk_read_bytes, 0);
  EXPECT_EQ(result.prediction.disk_read_bytes, result.prediction.disk_write_bytes);
  // Two halves of each.
  EXPECT_EQ(arena_bytes(result.prediction, Tier::kDisk), 2 * result.prediction.disk_read_bytes);
  // The host is used before the disk: what stands there and could have been kept there isn't much.
  EXPECT_GT(arena_bytes(result.prediction, Tier::kHost), 200 * kMiB);
}

/// Without clipping nothing waits for the norm, so that a gradient is gone once its chunk is updated: three times what the tiers of memory
/// hold is trained from disk.
TEST(Tiers, StatesOfThreeTimesTheMemoryFitOnDisk) {
  PlanRequest request = tiered_request("gpt2-124m", 1, 4, 128, {400 * kMiB, 200 * kMiB, 20 * kGiB});
  request.training.optimizer.gradient_clipping = 0;
  const PlanResult result = search(request);
  expect_true(request, result);
  EXPECT_EQ(result.plan.update_mode, spec::UpdateMode::kInBackward);
  EXPECT_GT(chunks_in(result.plan, &ChunkHomes::states, Tier::kDisk), 0);
  // With clipping all gradients wait for the norm. Those that have no room in memory, 475 MiB of them for 200, wait on disk, once each.
  request.training.optimizer.gradient_clipping = 1;
  const PlanResult clipped = search(request);
  expect_true(request, clipped);
  EXPECT_EQ(chunks_in(clipped.plan, &ChunkHomes::states, Tier::kDisk), static_cast<std::int64_t>(clipped.plan.homes.size()));
  EXPECT_GT(chunks_in(clipped.plan, &ChunkHomes::gradient, Tier::kDisk), 0);
  const std::int64_t gradients = tag_bytes(clipped, Tier::kDisk, schedule::BufferTag::kGradient);
  EXPECT_GT(gradients, 200 * kMiB);
  EXPECT_LT(gradients, 500 * kMiB);
  EXPECT_THAT(explain(request, clipped), HasSubstr("on disk: those wait there for the norm, host memory has no room for them"));
  EXPECT_THAT(describe(clipped.plan), HasSubstr(", gradients "));
  // What can't go to disk, can't: without one, or with states that are to stay in host memory.
  request.budget.disk_bytes = 0;
  expect_error<EnvironmentError>([&] { search(request); }, {"does not fit"});
  request.budget.disk_bytes = 20 * kGiB;
  request.pins.states = Tier::kHost;
  expect_error<EnvironmentError>([&] { search(request); }, {"does not fit"});
}

TEST(Tiers, MastersIn32BitsLeaveWithTheMoments) {
  PlanRequest request = tiered_request("gpt2-124m", 1, 8, 256, {1100 * kMiB, 500 * kMiB, 20 * kGiB});
  request.training.precision = spec::Precision::kBf16;
  const PlanResult result = search(request);
  expect_true(request, result);
  EXPECT_GT(tag_bytes(result, Tier::kDisk, schedule::BufferTag::kMaster), 0);
  EXPECT_EQ(tag_bytes(result, Tier::kDisk, schedule::BufferTag::kMoments),
            2 * tag_bytes(result, Tier::kDisk, schedule::BufferTag::kMaster));
}

TEST(Tiers, OneRankGathersParametersOnlyWhenTheyLeaveTheDevice) {
  std::vector<int> stages;
  for (const std::int64_t mib : {6000, 1300, 950, 700}) {
    PlanRequest request = tiered_request("gpt2-124m", 1, 8, 512, {mib * kMiB, 16 * kGiB, 0});
    request.training.batch.micro_batch = 1;
    const PlanResult result = search(request);
    SCOPED_TRACE(mib);
    expect_true(request, result);
    const auto away = chunks_in(result.plan, &ChunkHomes::working, Tier::kHost);
    EXPECT_EQ(result.plan.zero_stage == 3, away > 0);
    if (result.plan.zero_stage == 3) {
      EXPECT_EQ(away, static_cast<std::int64_t>(result.plan.homes.size()));
    }
    if (result.plan.zero_stage == 2) {
      EXPECT_GT(chunks_in(result.plan, &ChunkHomes::gradient, Tier::kHost), 0);
    }
    stages.push_back(result.plan.zero_stage);
  }
  EXPECT_EQ(stages.front(), 0);
  EXPECT_EQ(stages.back(), 3);
}

TEST(Tiers, MoreOfATierNeverPredictsASlowerStep) {
  for (const std::int64_t ranks : {1, 2}) {
    double slower = 0;
    for (const spec::Budget& budget : std::vector<spec::Budget>{{800 * kMiB, 900 * kMiB * ranks, 40 * kGiB},
                                                                {800 * kMiB, 8 * kGiB, 40 * kGiB},
                                                                {1100 * kMiB, 8 * kGiB, 40 * kGiB},
                                                                {1600 * kMiB, 8 * kGiB, 40 * kGiB},
                                                                {2400 * kMiB, 8 * kGiB, 40 * kGiB},
                                                                {6000 * kMiB, 8 * kGiB, 40 * kGiB}}) {
      PlanRequest request = tiered_request("gpt2-124m", ranks, 8, 512, budget);
      request.training.batch.micro_batch = 2;
      const PlanResult result = search(request);
      SCOPED_TRACE(cat(ranks, " ranks, ", format_bytes(budget.device_bytes), " and ", format_bytes(budget.host_bytes)));
      expect_true(request, result);
      if (slower > 0) {
        EXPECT_LE(result.prediction.seconds, slower * 1.006);
      }
      slower = result.prediction.seconds;
    }
  }
}

std::int64_t advised(const std::string& what, const std::string& option) {
  const std::size_t found = what.find(option + " ");
  if (found == std::string::npos) return 0;
  const std::size_t from = found + option.size() + 1;
  return parse_bytes(what.substr(from, what.find(" or more", from) - from));
}

TEST(Tiers, WhatIsMissingIsSaidTierByTierAndFollowingItHelps) {
  PlanRequest request = tiered_request("gpt2-124m", 1, 8, 512, {1300 * kMiB, 300 * kMiB, 0});
  std::string what;
  try {
    search(request);
    FAIL() << "950 MiB of moments can't stand in 300";
  } catch (const EnvironmentError& error) {
    what = error.what();
  }
  EXPECT_THAT(what, HasSubstr("gpt2-124m does not fit"));
  EXPECT_THAT(what, HasSubstr("of host memory a node, "));
  EXPECT_THAT(what, HasSubstr("more than the 300 MiB given"));
  EXPECT_THAT(what, HasSubstr("or a disk with --nvme-path"));
  EXPECT_EQ(what.find('\n'), std::string::npos);
  PlanRequest followed = request;
  followed.budget.host_bytes = std::max(request.budget.host_bytes, advised(what, "--host-memory"));
  followed.budget.device_bytes = std::max(request.budget.device_bytes, advised(what, "--device-memory"));
  EXPECT_GT(followed.budget.host_bytes, request.budget.host_bytes);
  EXPECT_NO_THROW(search(followed));
  followed = request;
  followed.budget.disk_bytes = 20 * kGiB;
  followed.budget.device_bytes = std::max(request.budget.device_bytes, advised(what, "--device-memory"));
  EXPECT_NO_THROW(search(followed));
  // A disk that is too small.
  followed.budget.disk_bytes = 100 * kMiB;
  expect_error<EnvironmentError>([&] { search(followed); }, {"of disk a node", "more than the 100 MiB given", "--nvme-space"});
}

TEST(Tiers, PinsPutStatesAndParametersWhereTheySay) {
  PlanRequest request = tiered_request("gpt2-124m", 2, 8, 256, {6 * kGiB, 16 * kGiB, 100 * kGiB});
  request.training.batch.micro_batch = 2;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    request.pins = {.states = tier};
    const PlanResult result = search(request);
    SCOPED_TRACE(spec::name_of(tier));
    expect_true(request, result);
    for (std::size_t c = 0; c < result.plan.homes.size(); ++c) EXPECT_EQ(result.plan.home(c).states, tier);
    EXPECT_EQ(result.plan.homes.empty(), tier == Tier::kDevice);
    EXPECT_EQ(chunks_in(result.plan, &ChunkHomes::working, Tier::kDevice), static_cast<std::int64_t>(result.plan.homes.size()));
  }
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    request.pins = {.working = tier};
    const PlanResult result = search(request);
    SCOPED_TRACE(spec::name_of(tier));
    expect_true(request, result);
    EXPECT_EQ(result.plan.zero_stage, 3);
    EXPECT_EQ(chunks_in(result.plan, &ChunkHomes::working, tier), static_cast<std::int64_t>(result.plan.homes.size()));
    EXPECT_EQ(chunks_in(result.plan, &ChunkHomes::states, Tier::kDevice), 0);
  }
  request.pins = {.zero_stage = 3, .host_activations = true, .order = spec::MicroBatchOrder::kLayerByLayer};
  const PlanResult result = search(request);
  expect_true(request, result);
  EXPECT_EQ(result.plan.order, spec::MicroBatchOrder::kLayerByLayer);
  EXPECT_EQ(segments_with(result.plan, Activation::kHost), 24);
  EXPECT_EQ(segments_with(result.plan, Activation::kRecompute), 0);
}

TEST(Tiers, PinsThatContradictEachOtherAreRefused) {
  PlanRequest request = tiered_request("gpt2-micro", 2, 8, 128, {kGiB, kGiB, 0});
  const auto refuse = [&](const Choices& pins, const std::vector<std::string>& pieces) {
    request.pins = pins;
    expect_error<RequestError>([&] { search(request); }, pieces);
  };
  refuse({.zero_stage = 2, .working = Tier::kHost}, {"offload_param is cpu", "stage 2", "stage 3 only"});
  refuse({.states = Tier::kDevice, .working = Tier::kHost}, {"offload_optimizer none", "faster tier"});
  refuse({.states = Tier::kDisk}, {"--nvme-path"});
  refuse({.zero_stage = 1, .order = spec::MicroBatchOrder::kLayerByLayer}, {"layer_by_layer", "stage 2 or 3"});
  request.pins = {};
  request.budget.disk_bytes = kGiB;
  request.machine.disk = {};
  expect_error<RequestError>([&] { search(request); }, {"machine round", "1.00 GiB of disk", "\"disk\""});
}

TEST(Tiers, NothingLeavesADeviceWhoseLinkNobodyMeasured) {
  PlanRequest request = tiered_request("gpt2-124m", 2, 8, 256, {900 * kMiB, 16 * kGiB, 0});
  request.machine.device_flops = 20e12;
  request.machine.device_memory_bytes_per_second = 1e12;
  EXPECT_TRUE(search(request).plan.uses_tier(Tier::kHost));
  request.machine.upload_bytes_per_second = 0;
  expect_error<EnvironmentError>([&] { search(request); }, {"does not fit", "--device-memory"});
  request.pins.states = Tier::kHost;
  expect_error<RequestError>([&] { search(request); }, {"machine round", "upload_bytes_per_second"});
}

TEST(Tiers, HintsAboutTiersAreWeighedAndReported) {
  PlanRequest request = tiered_request("gpt2-124m", 2, 8, 256, {6 * kGiB, 16 * kGiB, 100 * kGiB});
  request.training.batch.micro_batch = 2;
  request.machine.disk.read_bytes_per_second = request.machine.disk.write_bytes_per_second = 0.2e9;
  const PlanResult free = search(request);
  request.hints = {.zero_stage = 3, .states = Tier::kDisk};
  const PlanResult beaten = search(request);
  EXPECT_EQ(beaten.plan, free.plan);
  ASSERT_TRUE(beaten.hint.has_value());
  EXPECT_TRUE(beaten.hint->fits);
  EXPECT_FALSE(beaten.hint->followed);
  EXPECT_GT(beaten.hint->seconds, 1.05 * beaten.prediction.seconds);
  EXPECT_THAT(explain(request, beaten), HasSubstr("your file: " + format_seconds(beaten.hint->seconds) + " a step; chosen: "));
  ASSERT_TRUE(beaten.hint->plan.has_value());
  EXPECT_EQ(chunks_in(*beaten.hint->plan, &ChunkHomes::states, Tier::kDisk), static_cast<std::int64_t>(beaten.hint->plan->homes.size()));
  // What can't be is said, and nothing else goes wrong.
  request.hints = {.zero_stage = 2, .working = Tier::kHost};
  const PlanResult impossible = search(request);
  EXPECT_EQ(impossible.plan, free.plan);
  EXPECT_FALSE(impossible.hint->plan.has_value());
  EXPECT_THAT(explain(request, impossible), HasSubstr("your file: can't be followed, offload_param is cpu"));
  // The one that nobody beats.
  request.hints = {.states = Tier::kDevice};
  EXPECT_TRUE(search(request).hint->followed);
}

TEST(Tiers, EqualRequestsGetTheEqualPlan) {
  PlanRequest request = tiered_request("gpt2-124m", 2, 8, 512, {900 * kMiB, 1200 * kMiB, 40 * kGiB});
  request.training.batch.micro_batch = 1;
  request.hints.states = Tier::kHost;
  const PlanResult a = search(request), b = search(request);
  EXPECT_EQ(a.plan, b.plan);
  EXPECT_EQ(a.prediction.graph_hash, b.prediction.graph_hash);
  EXPECT_EQ(explain(request, a), explain(request, b));
}

/// Fuyou's question: recompute or swap. A fast link swaps, a slow one recomputes, and nobody asks which is which by hand.
TEST(Tiers, ActivationsMoveWhereThatIsFasterThanRecomputing) {
  PlanRequest request = tiered_request("gpt2-355m", 1, 8, 512, {4 * kGiB, 64 * kGiB, 0});
  request.training.batch.micro_batch = 8;
  request.pins.zero_stage = 0;
  request.pins.states = Tier::kHost;
  request.machine.cores_per_node = 8;  // somebody has to copy
  request.machine.upload_bytes_per_second = request.machine.download_bytes_per_second = 20e9;
  const PlanResult fast = search(request);
  expect_true(request, fast);
  EXPECT_GT(segments_with(fast.plan, Activation::kHost), 0);
  request.machine.upload_bytes_per_second = request.machine.download_bytes_per_second = 0.1e9;
  const PlanResult slow = search(request);
  expect_true(request, slow);
  EXPECT_EQ(segments_with(slow.plan, Activation::kHost), 0);
  EXPECT_GT(segments_with(slow.plan, Activation::kRecompute), 0);
  EXPECT_GT(slow.prediction.seconds, fast.prediction.seconds);
  // Forbidden, it isn't done.
  request.machine.upload_bytes_per_second = request.machine.download_bytes_per_second = 20e9;
  request.pins.host_activations = false;
  EXPECT_EQ(segments_with(search(request).plan, Activation::kHost), 0);
  // Where the host is full they go to disk, if that is fast.
  request.pins.host_activations = {};
  request.budget.host_bytes = 8 * kGiB;
  request.budget.disk_bytes = 100 * kGiB;
  request.machine.disk = {
      .read_bytes_per_second = 20e9, .write_bytes_per_second = 20e9, .read_beside_write = 15e9, .write_beside_read = 15e9};
  const PlanResult spilled = search(request);
  expect_true(request, spilled);
  EXPECT_LE(segments_with(spilled.plan, Activation::kHost), segments_with(fast.plan, Activation::kHost));
}

/// Elixir's question, answered by price, both answers shown.
TEST(Tiers, GatheredParametersOrStatesFirstIsAMatterOfPrices) {
  PlanRequest request = tiered_request("gpt2-355m", 2, 16, 256, {2200 * kMiB, 32 * kGiB, 0});
  request.pins.zero_stage = 3;
  request.training.batch.micro_batch = 2;
  request.pins.order = spec::MicroBatchOrder::kDepthFirst;
  // Gathering costs much and copies to the host nothing: as many parameters as possible.
  request.machine.gather.bytes_per_second = 0.2e9;
  const PlanResult slow_network = search(request);
  expect_true(request, slow_network);
  ASSERT_TRUE(slow_network.cache.has_value());
  EXPECT_LT(slow_network.cache->rcache_first_seconds, slow_network.cache->states_first_seconds);
  EXPECT_GT(slow_network.cache->rcache_first.rcache_elements, slow_network.cache->states_first.rcache_elements);
  // Gathering costs nothing and copies much.
  request.machine.gather.bytes_per_second = 50e9;
  request.machine.gather.latency_seconds = 0;
  request.machine.upload_bytes_per_second = request.machine.download_bytes_per_second = 0.2e9;
  const PlanResult slow_link = search(request);
  expect_true(request, slow_link);
  ASSERT_TRUE(slow_link.cache.has_value());
  EXPECT_LT(slow_link.cache->states_first_seconds, slow_link.cache->rcache_first_seconds);
  const std::string text = explain(request, slow_link);
  EXPECT_THAT(text, HasSubstr("gathered parameters before states: " + format_seconds(slow_link.cache->rcache_first_seconds)));
  EXPECT_THAT(text, HasSubstr("states before them: " + format_seconds(slow_link.cache->states_first_seconds)));
  EXPECT_THAT(text, HasSubstr("so the states come first here, where a rank uploads 191 MiB/s"));
}

TEST(Tiers, Plans175BOn512RanksWithinItsBudget) {
  if (testing::kIsSanitized) GTEST_SKIP() << "its time isn't the search's";
  PlanRequest request = tiered_request("gpt3-175b", 512, 4096, 2048, {40 * kGiB, 200 * kGiB, 4000 * kGiB});
  request.machine.ranks_per_node = 8;
  request.machine.cores_per_node = 96;
  request.threads = 12;
  const auto start = std::chrono::steady_clock::now();
  const PlanResult result = search(request);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 30);
  EXPECT_TRUE(result.plan.uses_tier(Tier::kHost));
  expect_true(request, result);
}

TEST(Homes, ChunksStayInOrderWhileTheyFit) {
  const PlanRequest request = tiered_request("gpt2-124m", 2, 8, 256, {kGiB, kGiB, kGiB});
  Workbench bench(request);
  spec::Plan plan;
  plan.zero_stage = 3;
  plan.chunk_elements = 4'718'592;
  plan.activations.assign(bench.model().segments.size(), Activation::kKeep);
  plan.mesh = request.mesh;
  const auto count = static_cast<std::int64_t>(bench.layout(plan.chunk_elements).chunks().size());
  const auto homes = [&](const Room& room, const HomeRules& rules = {}) {
    spec::Plan with = plan;
    with.homes = choose_homes(bench, plan, room, rules);
    return with;
  };
  const auto on = [&](const spec::Plan& with, Tier ChunkHomes::*plane, Tier tier) { return chunks_in(with, plane, tier); };
  constexpr std::int64_t kAll = 2 * kGiB;
  const HomeBytes whole = home_bytes(bench, plan);
  const std::int64_t device = whole.persistent[0];  // 16 bytes an element of half the model
  EXPECT_TRUE(homes({device, kAll, 0}).homes.empty());
  EXPECT_TRUE(homes({device - 1, 0, 0}).homes.empty()) << "nowhere to go";
  const spec::Plan most = homes({device - 1, kAll, 0});
  EXPECT_EQ(on(most, &ChunkHomes::states, Tier::kHost), 1);
  EXPECT_EQ(most.homes.back().states, Tier::kHost) << "the first ones stay";
  const spec::Plan half = homes({device * 3 / 4, kAll, 0});
  EXPECT_GT(on(half, &ChunkHomes::states, Tier::kHost), count / 3);
  EXPECT_LT(on(half, &ChunkHomes::states, Tier::kHost), count);
  EXPECT_EQ(on(half, &ChunkHomes::gradient, Tier::kHost), 0);
  const spec::Plan third = homes({device * 2 / 5, kAll, 0});
  EXPECT_EQ(on(third, &ChunkHomes::states, Tier::kHost), count);
  EXPECT_GT(on(third, &ChunkHomes::gradient, Tier::kHost), 0);
  EXPECT_EQ(on(third, &ChunkHomes::working, Tier::kHost), 0);
  const spec::Plan fifth = homes({device / 5, kAll, 0});
  EXPECT_EQ(on(fifth, &ChunkHomes::gradient, Tier::kHost), count);
  EXPECT_GT(on(fifth, &ChunkHomes::working, Tier::kHost), 0);
  EXPECT_LT(on(fifth, &ChunkHomes::working, Tier::kHost), count);
  for (const spec::Plan& each : {most, half, third, fifth}) EXPECT_EQ(plan_problem(each, request), "");

  // The host's turn: gradients and working parameters before states, states to disk.
  const spec::Plan spilled = homes({device / 5, 500 * kMiB, 10 * kGiB});
  EXPECT_EQ(on(spilled, &ChunkHomes::working, Tier::kDisk), 0);
  EXPECT_GT(on(spilled, &ChunkHomes::states, Tier::kDisk), 0);
  const HomeBytes spilled_bytes = home_bytes(bench, spilled);
  EXPECT_LE(spilled_bytes.persistent[1] + std::max(spilled_bytes.update_staging, spilled_bytes.read_staging), 500 * kMiB);
  EXPECT_LE(spilled_bytes.persistent[0], device / 5);
  const spec::Plan deepest = homes({40 * kMiB, 400 * kMiB, 10 * kGiB});
  EXPECT_GT(on(deepest, &ChunkHomes::working, Tier::kDisk), 0);
  EXPECT_EQ(on(deepest, &ChunkHomes::states, Tier::kDisk), count) << "no states on a faster tier than parameters that left";
  EXPECT_EQ(plan_problem(deepest, request), "");

  // Gradients are the last to go there: not before all else has, and no more than must; with updates in backward none, which use them up.
  EXPECT_EQ(on(deepest, &ChunkHomes::gradient, Tier::kDisk), 0);
  const spec::Plan waiting = homes({40 * kMiB, 250 * kMiB, 10 * kGiB});
  EXPECT_EQ(on(waiting, &ChunkHomes::states, Tier::kDisk), count);
  EXPECT_EQ(on(waiting, &ChunkHomes::working, Tier::kHost), 0);
  EXPECT_GT(on(waiting, &ChunkHomes::gradient, Tier::kDisk), 0);
  EXPECT_GT(on(waiting, &ChunkHomes::gradient, Tier::kHost), 0);
  EXPECT_EQ(waiting.homes.front().gradient, Tier::kHost) << "the first ones stay";
  const HomeBytes waiting_bytes = home_bytes(bench, waiting);
  EXPECT_LE(waiting_bytes.persistent[1] + std::max(waiting_bytes.update_staging, waiting_bytes.read_staging + waiting_bytes.sum_staging),
            250 * kMiB);
  EXPECT_EQ(plan_problem(waiting, request), "");
  EXPECT_EQ(on(homes({40 * kMiB, 250 * kMiB, 0}), &ChunkHomes::gradient, Tier::kDisk), 0);
  EXPECT_EQ(on(homes({40 * kMiB, 250 * kMiB, 10 * kGiB}, {.working = Tier::kHost}), &ChunkHomes::working, Tier::kDisk), 0);
  plan.update_mode = spec::UpdateMode::kInBackward;
  EXPECT_EQ(on(homes({40 * kMiB, 250 * kMiB, 10 * kGiB}), &ChunkHomes::gradient, Tier::kDisk), 0);
  plan.update_mode = spec::UpdateMode::kAtEnd;

  // With zero_stage 0 a run leaves the device whole, since it stands there whole.
  plan.zero_stage = 0;
  const spec::Plan whole_runs = homes({device * 3 / 2, kAll, 0});
  for (const chunks::Run& run : bench.layout(plan.chunk_elements).runs()) {
    for (int c = 1; c < run.chunk_count; ++c) {
      EXPECT_EQ(whole_runs.home(static_cast<std::size_t>(run.first_chunk + c)), whole_runs.home(static_cast<std::size_t>(run.first_chunk)));
    }
  }
  EXPECT_EQ(on(whole_runs, &ChunkHomes::gradient, Tier::kHost), 0) << "needs zero_stage 2";
}

}  // namespace
}  // namespace sluice::plan
