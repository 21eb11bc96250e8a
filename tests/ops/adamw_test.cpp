#include "ops/adamw.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/half.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

struct State {
  Values param, moment1, moment2;
};

AdamwArgs args_of(State& s, const Values& grad, std::int64_t count) {
  AdamwArgs args{};
  args.n = static_cast<std::int64_t>(grad.size());
  args.param = s.param.data();
  args.grad = grad.data();
  args.moment1 = s.moment1.data();
  args.moment2 = s.moment2.data();
  args.learning_rate = 1e-3;
  args.beta1 = 0.9;
  args.beta2 = 0.999;
  args.eps = 1e-8;
  args.weight_decay = 0.1;
  args.count = count;
  args.grad_scale = 0.5f;
  return args;
}

State make_state(std::int64_t n) {
  return {normal_values(n, 1), Values(static_cast<std::size_t>(n)), Values(static_cast<std::size_t>(n))};
}

TEST(Adamw, FollowsTheAlgorithmInF64) {
  const std::int64_t n = 500;
  State s = make_state(n);
  std::vector<double> p(s.param.begin(), s.param.end()), m(p.size()), v(p.size());
  for (std::int64_t t = 1; t <= 10; ++t) {
    const Values grad = normal_values(n, 100 + static_cast<std::uint64_t>(t), 0.01f);
    adamw(make_cpu_context(1), args_of(s, grad, t));
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = grad[i] * 0.5;
      p[i] -= 1e-3 * 0.1 * p[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, t)), v_hat = v[i] / (1 - std::pow(0.999, t));
      p[i] -= 1e-3 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
  }
  EXPECT_TRUE(all_near(s.param, Values(p.begin(), p.end()), 1e-6, 1e-6));
  EXPECT_TRUE(all_near(s.moment1, Values(m.begin(), m.end()), 1e-9, 1e-5));
  EXPECT_TRUE(all_near(s.moment2, Values(v.begin(), v.end()), 1e-12, 1e-5));
}

TEST(Adamw, EveryBodyHasTheSameBits) {
  for (const AdamDecay decay : {AdamDecay::kDecoupled, AdamDecay::kInGradient}) {
    for (const std::int64_t n : {1, 8, 17, 255, 256, 1000, 20001}) {
      State expected = make_state(n);
      std::vector<State> fast(fast_contexts().size(), expected);
      for (std::int64_t t = 1; t <= 3; ++t) {
        const Values grad = normal_values(n, 7 + static_cast<std::uint64_t>(t), 0.1f);
        const auto update = [&](const Context& ctx, State& s) {
          AdamwArgs args = args_of(s, grad, t);
          args.decay = decay;
          adamw(ctx, args);
        };
        update(reference_context(), expected);
        for (std::size_t i = 0; i < fast.size(); ++i) update(fast_contexts()[i], fast[i]);
      }
      for (std::size_t i = 0; i < fast.size(); ++i) {
        EXPECT_TRUE(same_bits(fast[i].param, expected.param)) << text_of(fast_contexts()[i]) << " n " << n;
        EXPECT_TRUE(same_bits(fast[i].moment1, expected.moment1));
        EXPECT_TRUE(same_bits(fast[i].moment2, expected.moment2));
      }
    }
  }
}

TEST(Adamw, ChunksOfAnySizeGiveTheSameBits) {
  const std::int64_t n = 3000;
  const Values grad = normal_values(n, 9);
  State whole = make_state(n), parts = whole;
  adamw(make_cpu_context(2), args_of(whole, grad, 4));
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t end = std::min<std::int64_t>(n, begin + 7 + begin / 3);
    AdamwArgs args = args_of(parts, grad, 4);
    args.n = end - begin;
    args.param += begin;
    args.grad += begin;
    args.moment1 += begin;
    args.moment2 += begin;
    adamw(make_cpu_context(1), args);
    begin = end;
  }
  EXPECT_TRUE(same_bits(parts.param, whole.param));
}

TEST(Adamw, WritesTheRoundedParametersAsWell) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t n : {1, 17, 1024, 20001}) {
      const Values grad = normal_values(n, 5, 0.1f);
      State plain = make_state(n);
      adamw(reference_context(), args_of(plain, grad, 2));
      std::vector<Context> contexts = fast_contexts();
      contexts.push_back(reference_context());
      for (const Context& ctx : contexts) {
        State s = make_state(n);
        std::vector<std::uint16_t> copy(static_cast<std::size_t>(n) + 1, 0xABCD);
        AdamwArgs args = args_of(s, grad, 2);
        args.copy = copy.data();
        args.copy_dtype = dtype;
        adamw(ctx, args);
        EXPECT_TRUE(same_bits(s.param, plain.param)) << text_of(ctx);
        EXPECT_EQ(copy.back(), 0xABCD);
        for (std::size_t i = 0; i < s.param.size(); ++i)
          ASSERT_EQ(copy[i], dtype == DType::kBF16 ? bf16_from_f32(s.param[i]) : f16_from_f32(s.param[i])) << text_of(ctx) << " " << i;
      }
    }
  }
}

TEST(Adamw, ZeroGradientOnlyDecays) {
  State s = make_state(100);
  const Values before = s.param;
  adamw(make_cpu_context(1), args_of(s, Values(100), 1));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_FLOAT_EQ(s.param[i], before[i] * (1 - 1e-4f));
  // In the gradient, decay moves by the rate, however large the parameter.
  s = make_state(100);
  AdamwArgs args = args_of(s, before, 1);
  const Values none(100);
  args.grad = none.data();
  args.decay = AdamDecay::kInGradient;
  adamw(make_cpu_context(1), args);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(s.param[i], before[i] - std::copysign(1e-3f, before[i]), 1e-7);
}

TEST(Adamw, RefusesBadArguments) {
  State s = make_state(4);
  const Values grad(4);
  EXPECT_THROW(adamw(make_cpu_context(1), args_of(s, grad, 0)), LogicError);
  AdamwArgs args = args_of(s, grad, 1);
  args.moment2 = nullptr;
  EXPECT_THROW(adamw(make_cpu_context(1), args), LogicError);
  args = args_of(s, grad, 1);
  args.beta2 = 1.0;
  EXPECT_THROW(adamw(make_cpu_context(1), args), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
