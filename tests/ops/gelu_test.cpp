#include "ops/gelu.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(Gelu, KnownValues) {
  // torch.nn.functional.gelu(x, approximate="tanh") at -3, -1, 0, 0.5, 2 in f64.
  const Values x = {-3.0f, -1.0f, 0.0f, 0.5f, 2.0f};
  const Values expected = {-0.00363739f, -0.15880801f, 0.0f, 0.34571401f, 1.95459769f};
  for (Context ctx : fast_contexts()) {
    Values y(x.size());
    gelu_forward(ctx, x.data(), 5, y.data());
    EXPECT_TRUE(all_near(y, expected, 2e-8, 1e-6)) << text_of(ctx);
  }
  Values y(x.size());
  gelu_forward(reference_context(), x.data(), 5, y.data());
  EXPECT_TRUE(all_near(y, expected, 2e-8, 1e-6));
}

TEST(Gelu, FastBodiesAgreeWithTheReference) {
  for (const std::int64_t n : {1, 7, 8, 15, 16, 17, 100, 50001}) {
    Values x = normal_values(n, 1, 3.0f);
    for (std::size_t i = 0; i < x.size(); i += 97) x[i] *= 5.0f;
    const Values dy = normal_values(n, 2);
    Values y(x.size()), dx(x.size());
    gelu_forward(reference_context(), x.data(), n, y.data());
    gelu_backward(reference_context(), x.data(), dy.data(), n, dx.data());
    for (const Context& ctx : fast_contexts()) {
      Values fast(x.size());
      gelu_forward(ctx, x.data(), n, fast.data());
      EXPECT_TRUE(all_near(fast, y, 3e-8, 1e-6)) << text_of(ctx) << " n " << n;
      gelu_backward(ctx, x.data(), dy.data(), n, fast.data());
      EXPECT_TRUE(all_near(fast, dx, 1e-6, 2e-6)) << text_of(ctx) << " n " << n;
      Values in_place = x;
      gelu_forward(ctx, in_place.data(), n, in_place.data());
      EXPECT_TRUE(all_near(in_place, y, 3e-8, 1e-6));
    }
  }
}

TEST(Gelu, SlopeIsTheDerivative) {
  const Values x = normal_values(64, 3, 2.0f);
  const Values dy(64, 1.0f);
  Values dx(64);
  gelu_backward(reference_context(), x.data(), dy.data(), 64, dx.data());
  for (std::size_t i = 0; i < 64; ++i) {
    const auto gelu = [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); };
    const double h = 1e-6;
    EXPECT_NEAR(dx[i], (gelu(x[i] + h) - gelu(x[i] - h)) / (2 * h), 1e-6);
  }
}

TEST(Gelu, SameBitsWhereverAnElementStands) {
  const Values x = normal_values(3001, 4, 2.0f), dy = normal_values(3001, 5);
  for (const Context& ctx : fast_contexts()) {
    Values y(x.size()), dx(x.size());
    gelu_forward(ctx, x.data(), 3001, y.data());
    gelu_backward(ctx, x.data(), dy.data(), 3001, dx.data());
    for (std::size_t i = 0; i < x.size(); i += 13) {
      float one = 0, slope = 0;
      gelu_forward(ctx, &x[i], 1, &one);
      gelu_backward(ctx, &x[i], &dy[i], 1, &slope);
      ASSERT_TRUE(bits_equal(one, y[i])) << text_of(ctx) << " element " << i;
      ASSERT_TRUE(bits_equal(slope, dx[i])) << text_of(ctx) << " element " << i;
    }
  }
}

TEST(Gelu, LargeAndMissingNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Values x = {1e30f, -1e30f, 100.0f, -100.0f, nan, 13.0f, -13.0f};
  const Values one(x.size(), 1.0f);
  for (const Context& ctx : fast_contexts()) {
    Values y(x.size()), dx(x.size());
    gelu_forward(ctx, x.data(), 7, y.data());
    gelu_backward(ctx, x.data(), one.data(), 7, dx.data());
    EXPECT_EQ(y[0], 1e30f);
    EXPECT_EQ(std::abs(y[1]), 0.0f);
    EXPECT_EQ(y[2], 100.0f);
    EXPECT_EQ(std::abs(y[3]), 0.0f);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 13.0f);
    EXPECT_EQ(std::abs(y[6]), 0.0f);
    EXPECT_EQ(dx[0], 1.0f);
    EXPECT_EQ(dx[1], 0.0f);
    EXPECT_TRUE(std::isnan(dx[4]));
    EXPECT_EQ(dx[5], 1.0f);
    EXPECT_EQ(dx[6], 0.0f);
  }
}

TEST(Gelu, RefusesNull) {
  float y = 0;
  EXPECT_THROW(gelu_forward(make_cpu_context(1), nullptr, 1, &y), LogicError);
  EXPECT_THROW(gelu_backward(make_cpu_context(1), &y, nullptr, 1, &y), LogicError);
}

TEST(Context, NamesTheLibraries) {
  EXPECT_EQ(std::string(library_versions()).rfind("onednn ", 0), 0u);
}

}  // namespace
}  // namespace sluice::ops::test
