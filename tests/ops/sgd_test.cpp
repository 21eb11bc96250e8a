#include "ops/sgd.hpp"

#include "base/error.hpp"
#include "base/half.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

struct Rule {
  double momentum, dampening;
  bool nesterov;
};
constexpr Rule kRules[] = {{0, 0, false}, {0.9, 0, false}, {0.9, 0.25, false}, {0.9, 0, true}};

struct State {
  Values param, buffer;
};

SgdArgs args_of(State& s, const Values& grad, std::int64_t count, const Rule& rule) {
  SgdArgs args{};
  args.n = static_cast<std::int64_t>(grad.size());
  args.param = s.param.data();
  args.grad = grad.data();
  args.buffer = rule.momentum > 0 ? s.buffer.data() : nullptr;
  args.learning_rate = 1e-2;
  args.momentum = rule.momentum;
  args.dampening = rule.dampening;
  args.nesterov = rule.nesterov;
  args.weight_decay = 0.1;
  args.count = count;
  args.grad_scale = 0.5f;
  return args;
}

State make_state(std::int64_t n) {
  return {normal_values(n, 1), Values(static_cast<std::size_t>(n))};
}

TEST(Sgd, EveryBodyHasTheSameBitsAndRoundsItsParameters) {
  for (const Rule& rule : kRules) {
    for (const std::int64_t n : {1, 8, 17, 255, 256, 1000, 20001}) {
      State expected = make_state(n);
      std::vector<State> fast(fast_contexts().size(), expected);
      for (std::int64_t t = 1; t <= 3; ++t) {
        const Values grad = normal_values(n, 7 + static_cast<std::uint64_t>(t), 0.1f);
        sgd(reference_context(), args_of(expected, grad, t, rule));
        for (std::size_t i = 0; i < fast.size(); ++i) {
          SgdArgs args = args_of(fast[i], grad, t, rule);
          std::vector<std::uint16_t> copy(static_cast<std::size_t>(n) + 1, 0xABCD);
          args.copy = copy.data();
          sgd(fast_contexts()[i], args);
          EXPECT_EQ(copy.back(), 0xABCD);
          for (std::size_t e = 0; e < expected.param.size(); ++e) ASSERT_EQ(copy[e], bf16_from_f32(expected.param[e])) << e;
        }
      }
      for (std::size_t i = 0; i < fast.size(); ++i) {
        EXPECT_TRUE(same_bits(fast[i].param, expected.param)) << text_of(fast_contexts()[i]) << " n " << n;
        EXPECT_TRUE(same_bits(fast[i].buffer, expected.buffer));
      }
      EXPECT_EQ(expected.buffer == Values(static_cast<std::size_t>(n)), rule.momentum == 0);
    }
  }
}

TEST(Sgd, TheFirstUpdateTakesTheGradientWhole) {
  State s{{1, 2}, {0, 0}};
  const Values grad{4, -8};
  sgd(make_cpu_context(1), args_of(s, grad, 1, {0.9, 0.25, false}));
  EXPECT_TRUE(all_near(s.buffer, {2 + 0.1f, -4 + 0.2f}, 0, 1e-6));
  EXPECT_TRUE(all_near(s.param, {1 - 0.021f, 2 + 0.038f}, 0, 1e-6));
  const State first = s;
  sgd(make_cpu_context(1), args_of(s, grad, 2, {0.9, 0.25, false}));
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(s.buffer[i], 0.9f * first.buffer[i] + 0.75f * (grad[i] / 2 + 0.1f * first.param[i]), 1e-6);
}

TEST(Sgd, RefusesBadArguments) {
  State s = make_state(4);
  const Values grad(4);
  const Context ctx = make_cpu_context(1);
  const Rule plain{0, 0, false}, heavy{0.9, 0, false};
  EXPECT_THROW(sgd(ctx, args_of(s, grad, 0, plain)), LogicError);
  SgdArgs args = args_of(s, grad, 1, heavy);
  args.buffer = nullptr;
  EXPECT_THROW(sgd(ctx, args), LogicError);
  args = args_of(s, grad, 1, plain);
  args.buffer = s.buffer.data();
  EXPECT_THROW(sgd(ctx, args), LogicError);
  EXPECT_THROW(sgd(ctx, args_of(s, grad, 1, {0, 0, true})), LogicError);
  EXPECT_THROW(sgd(ctx, args_of(s, grad, 1, {0.9, 0.1, true})), LogicError);
  args = args_of(s, grad, 1, heavy);
  args.grad = nullptr;
  EXPECT_THROW(sgd(ctx, args), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
