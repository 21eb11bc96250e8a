#include "ops/relu.hpp"

#include <cmath>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(Relu, EveryBodyIsTheFormulaExactly) {
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const std::int64_t n : {1, 8, 15, 17, 40001}) {
    Values x = normal_values(n, 1);
    const Values dy = normal_values(n, 2);
    x[0] = 0.0f;
    for (const Context& ctx : contexts) {
      Values y(x.size()), dx(x.size());
      relu_forward(ctx, x.data(), n, y.data());
      relu_backward(ctx, x.data(), dy.data(), n, dx.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(y[i], x[i] > 0 ? x[i] : 0.0f) << i;
        ASSERT_EQ(dx[i], x[i] > 0 ? dy[i] : 0.0f) << i;
      }
      Values in_place = x, gradient = dy;
      relu_forward(ctx, in_place.data(), n, in_place.data());
      relu_backward(ctx, x.data(), gradient.data(), n, gradient.data());
      EXPECT_TRUE(same_bits(in_place, y));
      EXPECT_TRUE(same_bits(gradient, dx));
    }
  }
}

TEST(Relu, RefusesBadArguments) {
  Values x(4);
  EXPECT_THROW(relu_forward(make_cpu_context(1), x.data(), 4, nullptr), LogicError);
  EXPECT_THROW(relu_backward(make_cpu_context(1), x.data(), nullptr, 4, x.data()), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
