#include "plan/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <numeric>

#include "base/error.hpp"
#include "plan/plan_checks.hpp"
#include "support/expect_error.hpp"
#include "support/sanitized.hpp"

namespace sluice::plan {
namespace {

using ::sluice::testing::expect_error;
using spec::UpdateMode;
using test::device_bytes;
using test::expect_true;
using test::plan_request;
using test::recomputes;
using ::testing::HasSubstr;

TEST(Search, OneRankKeepsEverything) {
  const PlanRequest request = plan_request("gpt2-micro", 1, 16, 128, kGiB);
  const PlanResult result = search(request);
  EXPECT_EQ(result.plan.zero_stage, 0);
  EXPECT_FALSE(recomputes(result.plan));
  EXPECT_DOUBLE_EQ(result.prediction.tokens_per_second, 16 * 128 / result.prediction.seconds);
  expect_true(request, result);
}

TEST(Search, StaysWithinEveryBudgetAndUsesWhatItGets) {
  double slower = 0;
  int stages = 0, recomputed = 0;
  for (const std::int64_t mib : {1400, 1600, 2000, 4000}) {
    const PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, mib * kMiB);
    const PlanResult result = search(request);
    SCOPED_TRACE(mib);
    expect_true(request, result);
    if (slower > 0) {
      EXPECT_LE(result.prediction.seconds, slower * 1.006);
    }
    slower = result.prediction.seconds;
    stages += result.plan.zero_stage == 3 ? 1 : 0;
    recomputed += recomputes(result.plan) ? 1 : 0;
  }
  EXPECT_GT(recomputed, 0) << "the tight budgets must cost something";
  EXPECT_LT(recomputed, 4);
  EXPECT_GT(stages, 0);
}

TEST(Search, IsAFunctionOfItsArguments) {
  PlanRequest request = plan_request("gpt2-124m", 2, 8, 256, 1600 * kMiB);
  request.hints.zero_stage = 2;
  const PlanResult a = search(request), b = search(request);
  EXPECT_EQ(a.plan, b.plan);
  EXPECT_EQ(a.prediction.seconds, b.prediction.seconds);
  EXPECT_EQ(a.prediction.graph_hash, b.prediction.graph_hash);
  ASSERT_EQ(a.refused.size(), b.refused.size());
  for (std::size_t i = 0; i < a.refused.size(); ++i) EXPECT_EQ(a.refused[i].reason, b.refused[i].reason);
}

std::int64_t missing_of(const Refusal& refusal) {
  return std::accumulate(refusal.missing_bytes.begin(), refusal.missing_bytes.end(), std::int64_t{0});
}

TEST(Search, SaysWhatItRefusedWithNumbers) {
  const PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, 1500 * kMiB);
  const PlanResult result = search(request);
  bool too_large = false, slower = false;
  for (const Refusal& refusal : result.refused) {
    if (missing_of(refusal) > 0) {
      too_large = true;
      EXPECT_EQ(refusal.seconds, 0);
      EXPECT_THAT(refusal.reason, HasSubstr(format_bytes(missing_of(refusal)) + " more than the 1.46 GiB given"));
    } else {
      EXPECT_GT(refusal.seconds, 0);
      EXPECT_THAT(refusal.reason, HasSubstr(format_seconds(refusal.seconds) + " a step"));
      if (refusal.seconds < result.prediction.seconds) {
        EXPECT_THAT(refusal.reason, ::testing::AnyOf(HasSubstr("taken as equal: within 0.5 %"), HasSubstr(" only: others came first")));
      }
      slower = slower || refusal.seconds > result.prediction.seconds;
    }
    EXPECT_NE(refusal.plan, result.plan);
  }
  EXPECT_TRUE(too_large);  // zero_stage 0 holds 2 GB of states
  EXPECT_TRUE(slower);
  for (const int stage : {0, 1, 2, 3}) {
    if (stage == result.plan.zero_stage) continue;
    EXPECT_TRUE(std::any_of(result.refused.begin(), result.refused.end(), [&](const Refusal& r) { return r.plan.zero_stage == stage; }))
        << stage;
  }
}

TEST(Search, WhatFitsNothingIsRefusedWithTheBudgetThatWouldDo) {
  PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, 600 * kMiB);
  std::int64_t advised = 0;
  try {
    search(request);
    FAIL() << "600 MiB can't hold gpt2-124m";
  } catch (const EnvironmentError& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    EXPECT_THAT(what, HasSubstr("gpt2-124m does not fit"));
    EXPECT_THAT(what, HasSubstr("more than the 600 MiB given"));
    EXPECT_EQ(what.find('\n'), std::string::npos);
    const std::string option = "give --device-memory ";
    const std::size_t at = what.find(option);
    ASSERT_NE(at, std::string::npos) << what;
    const std::size_t from = at + option.size();
    advised = parse_bytes(what.substr(from, what.find(" or more", from) - from));
  }
  request.budget.device_bytes = advised;
  expect_true(request, search(request));
  request.budget.device_bytes = advised - advised / 10;
  EXPECT_THROW(search(request), EnvironmentError);
}

TEST(Search, HintsArePricedAndBeaten) {
  PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, 6 * kGiB);
  request.training.batch.micro_batch = 4;
  const PlanResult free = search(request);
  EXPECT_FALSE(free.hint.has_value());

  // What a hint can't beat is followed.
  request.hints.zero_stage = free.plan.zero_stage;
  const PlanResult same = search(request);
  ASSERT_TRUE(same.hint.has_value());
  EXPECT_TRUE(same.hint->followed);
  EXPECT_EQ(same.plan, free.plan);

  // A bad one is named with its time, and a pin keeps it.
  request.hints = {.recompute = true};
  const PlanResult beaten = search(request);
  EXPECT_EQ(beaten.plan, free.plan);
  ASSERT_TRUE(beaten.hint.has_value());
  EXPECT_FALSE(beaten.hint->followed);
  EXPECT_TRUE(beaten.hint->fits);
  EXPECT_GT(beaten.hint->seconds, 1.1 * beaten.prediction.seconds);
  request.pins = request.hints;
  request.hints = {};
  const PlanResult pinned = search(request);
  EXPECT_EQ(std::count(pinned.plan.activations.begin(), pinned.plan.activations.end(), spec::Activation::kRecompute), 24);
  EXPECT_NEAR(pinned.prediction.seconds, beaten.hint->seconds, 0.01 * beaten.hint->seconds);

  // One that doesn't fit says by how much.
  PlanRequest tight = plan_request("gpt2-124m", 2, 16, 512, 1500 * kMiB);
  tight.hints.zero_stage = 0;
  const PlanResult squeezed = search(tight);
  ASSERT_TRUE(squeezed.hint.has_value());
  EXPECT_FALSE(squeezed.hint->fits);
  EXPECT_GT(squeezed.hint->missing_bytes[0], 100 * kMiB);
}

TEST(Search, PinsBind) {
  PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, 6 * kGiB);
  request.training.batch.micro_batch = 4;
  for (const int stage : {0, 1, 2, 3}) {
    request.pins = {.zero_stage = stage};
    const PlanResult result = search(request);
    EXPECT_EQ(result.plan.zero_stage, stage);
    expect_true(request, result);
  }
  request.pins = {.zero_stage = 3,
                  .chunk_elements = 1'000'000,
                  .rcache_elements = 50'000'000,
                  .prefetch_segments = 2,
                  .update_mode = UpdateMode::kNextForward};
  const PlanResult result = search(request);
  EXPECT_EQ(result.plan.chunk_elements, 1'000'192);  // the next multiple of 256
  EXPECT_NEAR(static_cast<double>(result.plan.rcache_elements), 50e6, 300);
  EXPECT_EQ(result.plan.prefetch_segments, 2);
  EXPECT_EQ(result.plan.update_mode, UpdateMode::kNextForward);
  request.pins = {.zero_stage = 0};
  request.budget.device_bytes = 1500 * kMiB;
  expect_error<EnvironmentError>([&] { search(request); }, {"does not fit", "zero 0", "unpin"});
}

TEST(Search, UpdatesInBackwardOnlyWhenNothingIsClipped) {
  PlanRequest request = plan_request("gpt2-micro", 2, 16, 128, kGiB);
  request.pins.update_mode = UpdateMode::kInBackward;
  expect_error<RequestError>([&] { search(request); }, {"in_backward", "gradient_clipping is 1", "expected 0"});
  request.training.optimizer.gradient_clipping = 0;
  EXPECT_EQ(search(request).plan.update_mode, UpdateMode::kInBackward);
  request.pins = {};
  const PlanResult free = search(request);
  EXPECT_TRUE(free.plan.update_mode == UpdateMode::kInBackward ||
              std::any_of(free.refused.begin(), free.refused.end(),
                          [](const Refusal& r) { return r.plan.update_mode == UpdateMode::kInBackward; }));
}

std::int64_t bytes_of(const PlanResult& result, schedule::BufferTag tag) {
  std::int64_t bytes = 0;
  for (const TagBytes& each : result.prediction.tags) bytes += each.tag == tag ? each.bytes : 0;
  return bytes;
}

TEST(Search, PlansTheStateThatTheOptimizerKeeps) {
  PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, 6 * kGiB);
  request.pins.zero_stage = 1;
  const PlanResult adam = search(request);
  request.training.optimizer.kind = spec::OptimizerKind::kLion;
  const PlanResult lion = search(request);
  expect_true(request, lion);
  request.training.optimizer.kind = spec::OptimizerKind::kSgd;
  const PlanResult sgd = search(request);
  expect_true(request, sgd);
  // The chunks, and with them the blocks that don't divide evenly, are each plan's own.
  const auto whole = static_cast<double>(bytes_of(adam, schedule::BufferTag::kMoments));
  EXPECT_NEAR(2.0 * static_cast<double>(bytes_of(lion, schedule::BufferTag::kMoments)), whole, 1e-3 * whole);
  EXPECT_EQ(bytes_of(sgd, schedule::BufferTag::kMoments), 0);
  EXPECT_LT(lion.prediction.seconds, adam.prediction.seconds);
  EXPECT_LT(sgd.prediction.seconds, lion.prediction.seconds);
  // Where two moments don't fit, one or none may.
  request.budget.device_bytes = device_bytes(sgd.prediction) + kMiB;
  EXPECT_NO_THROW(search(request));
}

TEST(Search, Plans16BitStorage) {
  PlanRequest request = plan_request("gpt2-124m", 2, 16, 512, 6 * kGiB);
  request.pins.zero_stage = 1;
  request.training.batch.micro_batch = 4;
  const PlanResult wide = search(request);
  request.training.precision = spec::Precision::kBf16;
  const PlanResult narrow = search(request);
  expect_true(request, narrow);
  EXPECT_EQ(2 * bytes_of(narrow, schedule::BufferTag::kWorking), bytes_of(wide, schedule::BufferTag::kWorking));
  EXPECT_EQ(2 * bytes_of(narrow, schedule::BufferTag::kMaster), bytes_of(narrow, schedule::BufferTag::kMoments));
  EXPECT_EQ(bytes_of(wide, schedule::BufferTag::kMaster), 0);
  EXPECT_LT(bytes_of(narrow, schedule::BufferTag::kSaved), bytes_of(wide, schedule::BufferTag::kSaved) * 11 / 20);
  // Where activations are most of it, what fits in bf16 would have to be recomputed in fp32.
  request.budget.device_bytes = device_bytes(narrow.prediction) + 20 * kMiB;
  EXPECT_FALSE(recomputes(search(request).plan));
  request.training.precision = spec::Precision::kFp32;
  EXPECT_TRUE(recomputes(search(request).plan));
}

TEST(Search, FrozenParametersCostWhatTheyNeed) {
  PlanRequest request = plan_request("gpt2-124m", 1, 8, 512, 6 * kGiB);
  const PlanResult all = search(request);
  request.training.trainable = {"h\\.11\\."};
  const PlanResult last = search(request);
  expect_true(request, last);
  EXPECT_EQ(all.prediction.frozen_parameters, 0);
  EXPECT_EQ(last.prediction.parameters, all.prediction.parameters);
  EXPECT_EQ(last.prediction.parameters - last.prediction.frozen_parameters, 12 * 768 * 768 + 13 * 768);  // of a layer
  // One backward of twelve, without most of the state.
  EXPECT_LT(last.prediction.seconds, 0.75 * all.prediction.seconds);
  EXPECT_LT(device_bytes(last.prediction), device_bytes(all.prediction) / 2);
  // All backwards, but without a product for any weight: a third of the work.
  request.training.trainable = {"bias$"};
  const PlanResult vectors = search(request);
  EXPECT_LT(vectors.prediction.seconds, 0.8 * all.prediction.seconds);
  EXPECT_GT(vectors.prediction.seconds, last.prediction.seconds);
  request.training.trainable = {"layers\\.11"};
  expect_error<RequestError>([&] { search(request); },
                             {"sluice.trainable", "layers\\.11", "finds none of the 148 parameters", "wte.weight"});
}

TEST(Search, Fp16NeverUpdatesInBackward) {
  PlanRequest request = plan_request("gpt2-micro", 2, 16, 128, kGiB);
  request.training.optimizer.gradient_clipping = 0;
  request.training.precision = spec::Precision::kFp16;
  const PlanResult result = search(request);
  EXPECT_NE(result.plan.update_mode, UpdateMode::kInBackward);
  for (const Refusal& refusal : result.refused) EXPECT_NE(refusal.plan.update_mode, UpdateMode::kInBackward);
  request.pins.update_mode = UpdateMode::kInBackward;
  expect_error<RequestError>([&] { search(request); }, {"in_backward", "fp16", "overflowed"});
  request.training.precision = spec::Precision::kBf16;
  EXPECT_EQ(search(request).plan.update_mode, UpdateMode::kInBackward);
}

TEST(Search, KeepsTheBatchThatTheUserFixed) {
  PlanRequest request = plan_request("gpt2-micro", 2, 16, 128, kGiB);
  request.training.batch.micro_batch = 2;
  const PlanResult result = search(request);
  EXPECT_EQ(result.plan.micro_batch, 2);
  EXPECT_EQ(result.plan.accumulation, 4);
  request.training.batch.micro_batch = 0;
  request.training.batch.accumulation = 8;
  EXPECT_EQ(search(request).plan.micro_batch, 1);
}

TEST(MicroBatches, AreTheDivisorsLargestFirst) {
  using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(micro_batches({.global_batch = 24}, 2), (Pairs{{12, 1}, {6, 2}, {4, 3}, {3, 4}, {2, 6}, {1, 12}}));
  EXPECT_EQ(micro_batches({.global_batch = 24, .micro_batch = 3}, 2), (Pairs{{3, 4}}));
  EXPECT_EQ(micro_batches({.global_batch = 24, .accumulation = 6}, 2), (Pairs{{2, 6}}));
  EXPECT_EQ(micro_batches({.micro_batch = 3, .accumulation = 2}, 2), (Pairs{{3, 2}}));
}

TEST(MicroBatches, ThatDoNotDivideAreRefusedWithTheNumbers) {
  expect_error<RequestError>([] { micro_batches({.global_batch = 7}, 2); },
                             {"7 sequences can't be divided among 2 ranks", "multiple of 2"});
  expect_error<RequestError>([] { micro_batches({.global_batch = 16, .micro_batch = 3}, 2); },
                             {"disagree", "train_batch_size 16", "train_micro_batch_size_per_gpu 3", "2 data-parallel ranks"});
  expect_error<RequestError>([] { micro_batches({.global_batch = 16, .micro_batch = 4, .accumulation = 4}, 2); },
                             {"gradient_accumulation_steps 4"});
  expect_error<RequestError>([] { micro_batches({}, 2); }, {"write train_batch_size"});
}

TEST(Search, AHostBudgetIsSharedByTheNodesRanks) {
  PlanRequest request = plan_request("gpt2-micro", 2, 16, 128, kGiB);
  const PlanResult result = search(request);
  const std::int64_t host = result.prediction.arena_bytes[static_cast<std::size_t>(spec::Tier::kHost)];
  request.budget.host_bytes = 2 * host;
  EXPECT_EQ(search(request).plan, result.plan);
  request.budget.host_bytes = 1024;
  EXPECT_THROW(search(request), EnvironmentError);
}

TEST(Search, Plans175BOn64RanksWithinItsBudget) {
  if (testing::kIsSanitized) GTEST_SKIP() << "its time isn't the search's";
  PlanRequest request = plan_request("gpt3-175b", 64, 1536, 2048, 90 * kGiB);
  request.machine.ranks_per_node = 8;
  request.machine.cores_per_node = 96;
  request.threads = 12;
  request.hints.zero_stage = 3;
  const auto start = std::chrono::steady_clock::now();
  const PlanResult result = search(request);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(result.plan.zero_stage, 3);
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  EXPECT_LT(seconds, 30);
  EXPECT_LT(usage.ru_maxrss / 1024, 2048) << "MiB";
  expect_true(request, result);
}

}  // namespace
}  // namespace sluice::plan
