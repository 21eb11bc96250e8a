#include "ops/cross_entropy.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

std::vector<std::int32_t> make_targets(std::int64_t n, std::int64_t v) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    targets[static_cast<std::size_t>(i)] = i % 5 == 3 ? kIgnoredTarget : static_cast<std::int32_t>(i * 7919 % v);
  if (n > 1) targets.back() = static_cast<std::int32_t>(v - 1);
  return targets;
}

TEST(CrossEntropy, KnownValue) {
  for (const Context& ctx : {reference_context(), make_cpu_context(1)}) {
    Values x = {1.0f, 2.0f, 3.0f};
    const std::int32_t target = 2;
    // log(e^1 + e^2 + e^3) - 3 = log(1 + e^-1 + e^-2)
    EXPECT_NEAR(cross_entropy(ctx, x.data(), 1, 3, 3, &target, 0.5f, true), 0.40760596444438, 1e-7);
    EXPECT_TRUE(all_near(x, {0.5f * 0.09003057f, 0.5f * 0.24472847f, 0.5f * (0.66524096f - 1)}, 1e-7, 1e-6));
  }
}

TEST(CrossEntropy, FastBodiesAgreeWithTheReference) {
  for (const auto& [n, v] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {4, 16}, {9, 33}, {300, 100}, {6, 1025}, {5, 50257}}) {
    const std::int64_t ld = v + 3;
    Values logits = normal_values(n * ld, 1, 4.0f);
    logits[0] += 300.0f;  // a shift of the maximum doesn't overflow
    const auto targets = make_targets(n, v);
    Values expected = logits;
    const double loss = cross_entropy(reference_context(), expected.data(), n, v, ld, targets.data(), 0.25f, true);
    for (const Context& ctx : fast_contexts()) {
      Values x = logits;
      EXPECT_NEAR(cross_entropy(ctx, x.data(), n, v, ld, targets.data(), 0.25f, true), loss, 3e-7 * (1 + std::abs(loss)))
          << text_of(ctx) << ' ' << n << 'x' << v;
      EXPECT_TRUE(all_near(x, expected, 3e-8, 2e-6)) << text_of(ctx) << ' ' << n << 'x' << v;
      Values unchanged = logits;
      const double only_loss = cross_entropy(ctx, unchanged.data(), n, v, ld, targets.data(), 0.25f, false);
      EXPECT_TRUE(same_bits(unchanged, logits)) << "without the gradient the logits stay";
      Values again = logits;
      EXPECT_EQ(cross_entropy(ctx, again.data(), n, v, ld, targets.data(), 0.25f, true), only_loss);
      EXPECT_TRUE(same_bits(again, x));
    }
  }
}

TEST(CrossEntropy, LossDoesNotDependOnThreads) {
  const std::int64_t n = 600, v = 777;
  const Values logits = normal_values(n * v, 1, 3.0f);
  const auto targets = make_targets(n, v);
  for (const device::Isa isa : fast_isas()) {
    Values one = logits, three = logits;
    const double a = cross_entropy({Backend::kCpu, isa, 1}, one.data(), n, v, v, targets.data(), 1.0f, true);
    const double b = cross_entropy({Backend::kCpu, isa, 3}, three.data(), n, v, v, targets.data(), 1.0f, true);
    EXPECT_EQ(a, b);
    EXPECT_TRUE(same_bits(one, three));
  }
}

TEST(CrossEntropy, GradientIsTheCentralDifference) {
  const std::int64_t n = 4, v = 9;
  const Values logits = normal_values(n * v, 2);
  const auto targets = make_targets(n, v);
  const auto loss = [&](Values x) { return cross_entropy(reference_context(), x.data(), n, v, v, targets.data(), 1.0f, false); };
  Values gradient = logits;
  cross_entropy(reference_context(), gradient.data(), n, v, v, targets.data(), 2.0f, true);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    Values up = logits, down = logits;
    up[i] += 1e-2f;
    down[i] -= 1e-2f;
    EXPECT_NEAR(gradient[i], 2.0 * (loss(up) - loss(down)) / (static_cast<double>(up[i]) - down[i]), 1e-4);
  }
}

TEST(CrossEntropy, IgnoredRowsAndBadTargets) {
  const std::int32_t ignored[2] = {kIgnoredTarget, kIgnoredTarget};
  Values x = normal_values(20, 3);
  EXPECT_EQ(cross_entropy(make_cpu_context(1), x.data(), 2, 10, 10, ignored, 1.0f, true), 0.0);
  EXPECT_TRUE(same_bits(x, Values(20, 0.0f)));
  const std::int32_t bad[2] = {0, 10};
  EXPECT_THROW(cross_entropy(make_cpu_context(1), x.data(), 2, 10, 10, bad, 1.0f, true), LogicError);
  EXPECT_THROW(cross_entropy(make_cpu_context(1), x.data(), 2, 10, 9, ignored, 1.0f, true), LogicError);
}

TEST(CrossEntropy, NotANumberReachesTheLoss) {
  for (const Context& ctx : fast_contexts()) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{40}, std::size_t{99}}) {
      Values x = normal_values(100, 4);
      x[at] = std::nanf("");
      const std::int32_t target = 5;
      EXPECT_TRUE(std::isnan(cross_entropy(ctx, x.data(), 1, 100, 100, &target, 1.0f, true)));
    }
  }
}

}  // namespace
}  // namespace sluice::ops::test
