#include "model/segments.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "base/error.hpp"
#include "model/random_model.hpp"
#include "ops/cross_entropy.hpp"
#include "support/op_contexts.hpp"

namespace sluice::model {
namespace {

using test::Batch;
using test::GuardedBuffer;
using test::SegmentDriver;

bool same_bytes(const GuardedBuffer& a, const GuardedBuffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// max |a - b| over all gradients, relative to the largest gradient.
double gradient_distance(const SegmentDriver& a, const SegmentDriver& b) {
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < a.grads.size(); ++i) {
    for (std::int64_t e = 0; e < a.grads[i].float_count(); ++e) {
      const double x = a.grads[i].f32()[e], y = b.grads[i].f32()[e];
      if (!std::isfinite(x) || !std::isfinite(y)) return std::nan("");
      largest = std::max(largest, std::abs(x));
      apart = std::max(apart, std::abs(x - y));
    }
  }
  return apart / largest;
}

class SegmentsTest : public ::testing::TestWithParam<std::tuple<test::NamedContext, std::string>> {
 protected:
  const ops::Context& ctx() const { return std::get<0>(GetParam()).context; }
  const std::string& family() const { return std::get<1>(GetParam()); }
  SegmentDriver make_driver(double dropout = 0.3) const {
    SegmentDriver driver(test::small_spec_of(family(), dropout), ctx());
    test::randomise_params(driver, 1);
    return driver;
  }
  const Batch batch_ = test::random_batch(4, 10, 37, 2);
  const StepView step_{.seed = 9, .step = 5, .training = true, .loss_scale = 1.0f / 40};
};

TEST_P(SegmentsTest, RecomputeSavesTheSameBitsAsForward) {
  SegmentDriver driver = make_driver();
  const std::vector<GuardedBuffer> saved = driver.forward(batch_, step_);
  for (std::size_t s = 0; s + 1 < driver.model().segments.size(); ++s) {
    const Segment& segment = *driver.model().segments[s];
    if (!segment.has_phase(Phase::kRecompute)) continue;
    GuardedBuffer again(segment.saved_bytes(batch_.shape));
    SegmentCall call = driver.start(s, batch_, step_);
    call.x = driver.boundaries[s - 1].f32();
    call.saved = again.data();
    driver.run(s, Phase::kRecompute, call, false);
    EXPECT_TRUE(same_bytes(saved[s], again)) << segment.name();
  }
}

TEST_P(SegmentsTest, SavedIsWrittenWholeButForPadding) {
  SegmentDriver driver = make_driver();
  const Batch batch = test::random_batch(3, 11, 37, 2);  // no piece is a multiple of 64 bytes
  const std::vector<GuardedBuffer> saved = driver.forward(batch, step_);
  for (std::size_t s = 0; s < saved.size(); ++s) {
    EXPECT_LT(saved[s].untouched_bytes(), 3 * 64) << driver.model().segments[s]->name();
  }
}

TEST_P(SegmentsTest, RecomputeInsteadOfKeepingGivesTheSameBits) {
  SegmentDriver keep = make_driver(), recompute = make_driver();
  const double kept = keep.train(batch_, step_, false);
  EXPECT_EQ(recompute.train(batch_, step_, true), kept);
  for (std::size_t i = 0; i < keep.grads.size(); ++i) {
    EXPECT_TRUE(same_bytes(keep.grads[i], recompute.grads[i])) << keep.model().params[i].name;
  }
}

TEST_P(SegmentsTest, TheSameStepTwiceGivesTheSameBits) {
  SegmentDriver once = make_driver(), twice = make_driver();
  once.train(batch_, step_);
  twice.train(batch_, step_);
  twice.begin_step();
  twice.train(batch_, step_);
  for (std::size_t i = 0; i < once.grads.size(); ++i) EXPECT_TRUE(same_bytes(once.grads[i], twice.grads[i])) << once.model().params[i].name;
}

TEST_P(SegmentsTest, MicroBatchesAddUpToTheBatchWithItsDropout) {
  SegmentDriver whole = make_driver(), parts = make_driver();
  const double loss = whole.train(batch_, step_);
  double sum = 0;
  for (std::int64_t row = 0; row < 4; row += 2) sum += parts.train(batch_.slice(row, 2), step_);
  EXPECT_NEAR(sum, loss, 1e-5 * loss);
  EXPECT_LT(gradient_distance(whole, parts), 1e-5);
  parts.begin_step();  // rows of their own, last first: masks go with the samples, not with the places
  sum = 0;
  for (const std::int64_t row : {3, 1, 0, 2}) sum += parts.train(batch_.slice(row, 1), step_);
  EXPECT_NEAR(sum, loss, 1e-5 * loss);
  EXPECT_LT(gradient_distance(whole, parts), 1e-5);
}

TEST_P(SegmentsTest, ARowDoesNotSeeTheOthers) {
  SegmentDriver driver = make_driver(), other = make_driver();
  Batch changed = batch_;
  for (std::int64_t t = 0; t < 10; ++t) {
    for (const std::int64_t row : {0, 2, 3}) {
      const auto i = static_cast<std::size_t>(row * 10 + t);
      changed.inputs[i] = (changed.inputs[i] + 5) % 37;
      changed.targets[i] = (changed.targets[i] + 9) % 37;
    }
  }
  driver.train(batch_, step_);
  other.train(changed, step_);
  const std::size_t row_bytes = 10 * 24 * sizeof(float);
  for (std::size_t s = 0; s < driver.boundaries.size(); ++s) {
    const auto row = [&](const std::vector<GuardedBuffer>& buffers, std::size_t r) { return buffers[s].data() + r * row_bytes; };
    EXPECT_EQ(std::memcmp(row(driver.boundaries, 1), row(other.boundaries, 1), row_bytes), 0) << "y of segment " << s;
    EXPECT_EQ(std::memcmp(row(driver.boundary_grads, 1), row(other.boundary_grads, 1), row_bytes), 0) << "d of segment " << s;
    EXPECT_NE(std::memcmp(row(driver.boundaries, 2), row(other.boundaries, 2), row_bytes), 0);  // the test can fail
    EXPECT_NE(std::memcmp(row(driver.boundary_grads, 2), row(other.boundary_grads, 2), row_bytes), 0);
  }
}

TEST_P(SegmentsTest, ATokenDoesNotSeeLaterOnes) {
  SegmentDriver driver = make_driver(), other = make_driver();
  Batch changed = batch_;
  for (std::size_t row = 0; row < 4; ++row) changed.inputs[row * 10 + 6] = (changed.inputs[row * 10 + 6] + 1) % 37;
  driver.forward(batch_, step_);
  other.forward(changed, step_);
  for (std::size_t s = 0; s < driver.boundaries.size(); ++s) {
    for (std::int64_t row = 0; row < 4; ++row) {
      const float* const a = driver.boundaries[s].f32() + row * 10 * 24;
      const float* const b = other.boundaries[s].f32() + row * 10 * 24;
      EXPECT_EQ(std::memcmp(a, b, 6 * 24 * sizeof(float)), 0) << s;
      EXPECT_NE(std::memcmp(a + 6 * 24, b + 6 * 24, 24 * sizeof(float)), 0) << s;
    }
  }
}

TEST_P(SegmentsTest, DropoutChangesWithStepAndSeedAndIsOffOutsideTraining) {
  SegmentDriver driver = make_driver();
  const double loss = driver.evaluate(batch_, step_);
  EXPECT_EQ(driver.evaluate(batch_, step_), loss);
  EXPECT_NE(driver.evaluate(batch_, {.seed = 9, .step = 6}), loss);
  EXPECT_NE(driver.evaluate(batch_, {.seed = 10, .step = 5}), loss);
  SegmentDriver without = make_driver(0.0);
  const double plain = without.evaluate(batch_, step_);
  EXPECT_EQ(driver.evaluate(batch_, {.seed = 9, .step = 5, .training = false}), plain);
  EXPECT_NE(plain, loss);
  EXPECT_EQ(without.evaluate(batch_, {.seed = 10, .step = 6}), plain);
}

TEST(DropoutSite, EverySiteLayerAndStepHasItsOwnStream) {
  std::set<std::array<std::uint32_t, 2>> keys;
  for (const char* site : {"embedding", "attention", "attention_residual", "mlp_residual"}) {
    for (const std::int64_t layer : {-1, 0, 1}) {
      for (const std::int64_t step : {1, 2}) keys.insert(dropout_site(0.1, site, layer, {.seed = 3, .step = step}).key);
    }
  }
  EXPECT_EQ(keys.size(), 24u);
  EXPECT_EQ(dropout_site(0.1, "attention", 0, {.seed = 3, .step = 1}).rate, 0.1f);
  EXPECT_EQ(dropout_site(0.1, "attention", 0, {.seed = 3, .step = 1, .training = false}).rate, 0.0f);
}

TEST_P(SegmentsTest, IgnoredTargetsCountForNothing) {
  SegmentDriver driver = make_driver(), other = make_driver();
  Batch ignoring = batch_;
  for (std::size_t i = 30; i < 40; ++i) ignoring.targets[i] = ops::kIgnoredTarget;  // the last row
  const double loss = driver.train(batch_.slice(0, 3), step_);
  EXPECT_NEAR(other.train(ignoring, step_), loss, 1e-5 * loss);
  EXPECT_LT(gradient_distance(driver, other), 1e-5);
}

TEST_P(SegmentsTest, EachGradientHasItsOwnFlag) {
  // The driver's flags follow use; here every pattern of two neighbours that one op fills together.
  for (std::size_t s = 0; s < make_driver().model().segments.size(); ++s) {
    for (const unsigned pattern : {0x5555u, 0xAAAAu}) {
      SegmentDriver driver = make_driver();
      const Segment& segment = *driver.model().segments[s];
      const bool head = segment.kind() == SegmentKind::kHead;
      const Phase phase = head ? Phase::kForwardBackward : Phase::kBackward;
      const std::vector<GuardedBuffer> saved = driver.forward(batch_, step_);
      GuardedBuffer workspace(segment.workspace_bytes(phase, batch_.shape, ctx().threads));
      std::vector<const float*> params;
      std::vector<GuardedBuffer> plain, mixed;
      std::vector<std::uint8_t> flags;
      for (const int index : segment.params()) {
        const auto& param = driver.params[static_cast<std::size_t>(index)];
        params.push_back(param.f32());
        plain.emplace_back(static_cast<std::int64_t>(param.size()));
        mixed.emplace_back(static_cast<std::int64_t>(param.size()));
        flags.push_back(static_cast<std::uint8_t>(pattern >> flags.size() & 1));
        if (flags.back() != 0) std::fill_n(mixed.back().f32(), mixed.back().float_count(), 2.0f);
      }
      const auto backward = [&](std::vector<GuardedBuffer>& grads, std::span<const std::uint8_t> accumulate) {
        GuardedBuffer d(driver.model().activation_bytes(batch_.shape));
        for (std::int64_t i = 0; i < d.float_count(); ++i) d.f32()[i] = head ? std::nanf("") : 0.01f * static_cast<float>(i % 17 - 8);
        std::vector<float*> pointers;
        for (GuardedBuffer& grad : grads) pointers.push_back(grad.f32());
        double loss = 0;
        workspace.poison();
        SegmentCall call = driver.start(s, batch_, step_);
        call.targets = batch_.targets.data();
        call.params = params;
        call.grads = pointers;
        call.accumulate = accumulate;
        call.x = s > 0 ? driver.boundaries[s - 1].f32() : nullptr;
        call.saved = s < saved.size() ? const_cast<std::byte*>(saved[s].data()) : nullptr;
        call.d = d.f32();
        call.workspace = workspace.data();
        call.loss_sum = &loss;
        segment.run(phase, call);
      };
      backward(plain, std::vector<std::uint8_t>(params.size(), 0));
      backward(mixed, flags);
      for (std::size_t i = 0; i < params.size(); ++i) {
        for (std::int64_t e = 0; e < plain[i].float_count(); ++e) {
          ASSERT_NEAR(mixed[i].f32()[e], plain[i].f32()[e] + (flags[i] != 0 ? 2.0f : 0.0f), 1e-5) << segment.name() << " gradient " << i;
        }
        EXPECT_TRUE(plain[i].guard_intact() && mixed[i].guard_intact());
      }
    }
  }
}

// A vocabulary that needs several tiles, held against what one tile after another gives when the rows are calls of their own.
class HeadTest : public SegmentsTest {};

TEST_P(HeadTest, TilesGiveWhatTheirRowsGiveAlone) {
  constexpr std::int64_t kVocab = 120000, kTokens = 150, kHidden = 8;
  ASSERT_EQ(head_tile_rows(kTokens, kVocab), 64);
  spec::ModelSpec spec{
      .name = "wide", .family = family(), .vocab = kVocab, .context = kTokens, .hidden = kHidden, .layers = 1, .heads = 1, .ffn = 8};
  if (family() == "llama") spec.rope.theta = 100;
  SegmentDriver whole(spec, ctx()), parts(spec, ctx());
  for (std::size_t i = 0; i < whole.params.size(); ++i) {
    const float base = whole.model().params[i].init == Init::kOnes ? 1.0f : 0.0f;
    for (std::int64_t e = 0; e < whole.params[i].float_count(); ++e) {
      whole.params[i].f32()[e] = parts.params[i].f32()[e] = base + 0.02f * static_cast<float>((e * 131 + 7) % 101 - 50);
    }
  }
  const Batch batch = test::random_batch(3, 50, kVocab, 3);
  const StepView step{.training = true, .loss_scale = 1.0f / 150};
  const double loss = whole.train(batch, step);
  double sum = 0;
  for (std::int64_t row = 0; row < 3; ++row) sum += parts.train(batch.slice(row, 1), step);
  EXPECT_NEAR(sum, loss, 1e-6 * loss);
  EXPECT_NEAR(whole.evaluate(batch, step), loss, 1e-9 * loss);
  EXPECT_LT(gradient_distance(whole, parts), 1e-5);
}

TEST_P(SegmentsTest, LogitsGiveTheLossOfTheirPosition) {
  SegmentDriver driver = make_driver(0.0);
  const double loss = driver.evaluate(batch_, {.training = false});
  double sum = 0;
  for (std::int64_t position = 0; position < 10; ++position) {
    const std::vector<float> logits = driver.logits(batch_, position);
    for (std::int64_t row = 0; row < 4; ++row) {
      const float* const l = logits.data() + row * 37;
      double total = 0;
      for (int v = 0; v < 37; ++v) total += std::exp(static_cast<double>(l[v]));
      sum += std::log(total) - l[batch_.targets[static_cast<std::size_t>(row * 10 + position)]];
    }
  }
  EXPECT_NEAR(sum, loss, 1e-5 * loss);
}

TEST_P(SegmentsTest, BrokenCallsAreDefects) {
  SegmentDriver driver = make_driver();
  driver.forward(batch_, step_);
  GuardedBuffer y(driver.model().activation_bytes(batch_.shape)), saved(driver.model().segments[1]->saved_bytes(batch_.shape));
  const auto attempt = [&](std::size_t s, Phase phase, auto&& spoil) {
    SegmentCall call = driver.start(s, batch_, step_);
    call.x = driver.boundaries[0].f32();
    call.y = y.f32();
    call.saved = saved.data();
    spoil(call);
    driver.run(s, phase, call, false);
  };
  EXPECT_NO_THROW(attempt(1, Phase::kForward, [](SegmentCall&) {}));
  EXPECT_THROW(attempt(1, Phase::kForward, [](SegmentCall& call) { call.x = nullptr; }), LogicError);
  EXPECT_THROW(attempt(1, Phase::kForward, [](SegmentCall& call) { call.y = nullptr; }), LogicError);
  EXPECT_THROW(attempt(1, Phase::kForward, [](SegmentCall& call) { call.saved = nullptr; }), LogicError);
  EXPECT_THROW(attempt(1, Phase::kBackward, [](SegmentCall&) {}), LogicError);                             // no gradients
  EXPECT_THROW(attempt(1, Phase::kForwardBackward, [](SegmentCall&) {}), LogicError);                      // no such phase
  EXPECT_THROW(attempt(0, Phase::kForward, [](SegmentCall& call) { call.shape = {1, 13}; }), LogicError);  // beyond the context
  EXPECT_THROW(driver.logits(batch_, 10), LogicError);
}

// With either norm.
INSTANTIATE_TEST_SUITE_P(Backends, HeadTest, ::testing::Combine(test::single_thread_contexts(), ::testing::Values("gpt2", "llama")),
                         [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });
// Mistral's segments are LLaMA's.
INSTANTIATE_TEST_SUITE_P(Backends, SegmentsTest,
                         ::testing::Combine(test::single_thread_contexts(), ::testing::Values("gpt2", "opt", "llama", "qwen2", "qwen3")),
                         [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });
INSTANTIATE_TEST_SUITE_P(Threads, SegmentsTest,
                         ::testing::Combine(::testing::Values(test::NamedContext{"cpu_two_threads", ops::make_cpu_context(2)}),
                                            ::testing::Values("gpt2", "qwen3")),
                         [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });

}  // namespace
}  // namespace sluice::model
