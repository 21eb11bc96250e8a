#include "ops/lion.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/half.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

struct State {
  Values param, moment;
};

LionArgs args_of(State& s, const Values& grad) {
  LionArgs args{};
  args.n = static_cast<std::int64_t>(grad.size());
  args.param = s.param.data();
  args.grad = grad.data();
  args.moment = s.moment.data();
  args.learning_rate = 1e-2;
  args.beta1 = 0.9;
  args.beta2 = 0.99;
  args.weight_decay = 0.1;
  args.grad_scale = 0.5f;
  return args;
}

State make_state(std::int64_t n) {
  return {normal_values(n, 1), Values(static_cast<std::size_t>(n))};
}

TEST(Lion, EveryBodyHasTheSameBitsAndRoundsItsParameters) {
  for (const std::int64_t n : {1, 8, 17, 255, 256, 1000, 20001}) {
    State expected = make_state(n);
    std::vector<State> fast(fast_contexts().size(), expected);
    for (std::int64_t t = 1; t <= 3; ++t) {
      Values grad = normal_values(n, 7 + static_cast<std::uint64_t>(t), 0.1f);
      for (std::size_t i = 0; i < grad.size(); i += 5) grad[i] = 0;
      lion(reference_context(), args_of(expected, grad));
      for (std::size_t i = 0; i < fast.size(); ++i) {
        LionArgs args = args_of(fast[i], grad);
        std::vector<std::uint16_t> copy(static_cast<std::size_t>(n) + 1, 0xABCD);
        args.copy = copy.data();
        lion(fast_contexts()[i], args);
        EXPECT_EQ(copy.back(), 0xABCD);
        for (std::size_t e = 0; e < expected.param.size(); ++e) ASSERT_EQ(copy[e], bf16_from_f32(expected.param[e])) << e;
      }
    }
    for (std::size_t i = 0; i < fast.size(); ++i) {
      EXPECT_TRUE(same_bits(fast[i].param, expected.param)) << text_of(fast_contexts()[i]) << " n " << n;
      EXPECT_TRUE(same_bits(fast[i].moment, expected.moment));
    }
  }
}

TEST(Lion, MovesByTheRateAlone) {
  const Values grad{1e-30f, -7, 0, std::numeric_limits<float>::quiet_NaN()};
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    State s{{1, 1, 1, 1}, {0, 0, 0, 0}};
    lion(ctx, args_of(s, grad));
    EXPECT_FLOAT_EQ(s.param[0], 0.999f - 0.01f);
    EXPECT_FLOAT_EQ(s.param[1], 0.999f + 0.01f);
    EXPECT_FLOAT_EQ(s.param[2], 0.999f) << "nothing pulls it: it only decays";
    EXPECT_TRUE(std::isnan(s.param[3])) << "a divergence shows";
    EXPECT_FLOAT_EQ(s.moment[1], -0.035f);
    // The moment outweighs the gradient of the other sign.
    s = {{1}, {1}};
    lion(ctx, args_of(s, {-8}));
    EXPECT_FLOAT_EQ(s.param[0], 0.999f - 0.01f);
    EXPECT_FLOAT_EQ(s.moment[0], 0.99f - 0.04f);
  }
}

TEST(Lion, RefusesBadArguments) {
  State s = make_state(4);
  const Values grad(4);
  LionArgs args = args_of(s, grad);
  args.moment = nullptr;
  EXPECT_THROW(lion(make_cpu_context(1), args), LogicError);
  args = args_of(s, grad);
  args.beta2 = 1.0;
  EXPECT_THROW(lion(make_cpu_context(1), args), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
