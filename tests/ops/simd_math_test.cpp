#include <cmath>
#include <limits>
#include <numeric>

#include "ops/isa_includes.hpp"
#include "ops/ops_test_support.hpp"

#define SLUICE_KERNELS "ops/simd_math_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::test {
namespace {

void exp_of(device::Isa isa, const Values& x, Values& y) {
  (isa == device::Isa::kAvx512 ? avx512::exp_range : avx2::exp_range)(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
}

TEST(SimdMath, ExpIsWithinTwoUlp) {
  for (const device::Isa isa : fast_isas()) {
    Values x;
    for (double v = -87.3; v < 88.7; v += 0.00137) x.push_back(static_cast<float>(v));
    Values y(x.size());
    exp_of(isa, x, y);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      const float nearest = static_cast<float>(expected);
      const double ulp = std::nextafter(nearest, std::numeric_limits<float>::infinity()) - static_cast<double>(nearest);
      worst = std::max(worst, std::abs(y[i] - expected) / ulp);
    }
    EXPECT_LT(worst, 2.0) << device::name_of(isa);
  }
}

TEST(SimdMath, ExpAtTheEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const device::Isa isa : fast_isas()) {
    const Values x = {0.0f, -0.0f, -kInfinity, kInfinity, std::numeric_limits<float>::quiet_NaN(), -200.0f, 200.0f, -104.0f, 88.72f, 1.0f};
    Values y(x.size());
    exp_of(isa, x, y);
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 1.0f);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_EQ(y[3], kInfinity);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 0.0f);
    EXPECT_EQ(y[6], kInfinity);
    EXPECT_LT(y[7], 1e-44f);
    EXPECT_NEAR(y[8] / std::exp(static_cast<double>(88.72f)), 1.0, 1e-6);
    EXPECT_NEAR(y[9], 2.718281828, 3e-7);
  }
}

TEST(SimdMath, PowersOfTwoAreWithinTwoUlp) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const device::Isa isa : fast_isas()) {
    const auto exp2_range = isa == device::Isa::kAvx512 ? avx512::exp2_range : avx2::exp2_range;
    Values x;
    for (double v = -125.9; v < 126; v += 0.00171) x.push_back(static_cast<float>(v));
    Values y(x.size());
    exp2_range(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp2(static_cast<double>(x[i]));
      const float nearest = static_cast<float>(expected);
      worst = std::max(worst, std::abs(y[i] - expected) / (std::nextafter(nearest, kInfinity) - static_cast<double>(nearest)));
    }
    EXPECT_LT(worst, 2.0) << device::name_of(isa);
    x = {-kInfinity, -1000.0f, 0.0f, 3.0f, std::numeric_limits<float>::quiet_NaN()};
    exp2_range(x.data(), y.data(), 5);
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_EQ(y[3], 8.0f);
    EXPECT_TRUE(std::isnan(y[4]));
  }
}

TEST(SimdMath, ExpDoesNotDependOnTheLane) {
  for (const device::Isa isa : fast_isas()) {
    for (std::size_t length = 1; length < 40; ++length) {
      Values x(length);
      std::iota(x.begin(), x.end(), -17.25f);
      Values together(length), alone(1);
      exp_of(isa, x, together);
      for (std::size_t i = 0; i < length; ++i) {
        exp_of(isa, {x[i]}, alone);
        ASSERT_TRUE(bits_equal(together[i], alone[0])) << device::name_of(isa) << " element " << i << " of " << length;
      }
    }
  }
}

TEST(SimdMath, SineAndCosineUpToTwoToTheTwenty) {
  Values x = {0.0f, 1.5707964f, 3.1415927f, 4.712389f, 0.7853982f, 2.3561945f};
  for (double v = 0; v < 1000; v += 0.00317) x.push_back(static_cast<float>(v));
  for (double v = 1000; v < 1048575; v *= 1.00003) x.push_back(static_cast<float>(v));
  const std::size_t positive = x.size();
  for (std::size_t i = 0; i < positive; ++i) x.push_back(-x[i]);
  for (const device::Isa isa : fast_isas()) {
    Values s(x.size()), c(x.size());
    (isa == device::Isa::kAvx512 ? avx512::sine_cosine_range : avx2::sine_cosine_range)(x.data(), s.data(), c.data(),
                                                                                        static_cast<std::int64_t>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, std::abs(s[i] - std::sin(static_cast<double>(x[i]))));
      worst = std::max(worst, std::abs(c[i] - std::cos(static_cast<double>(x[i]))));
    }
    EXPECT_LT(worst, 1.2e-7) << device::name_of(isa);
  }
}

TEST(SimdMath, Reductions) {
  Values x(16);
  std::iota(x.begin(), x.end(), 1.0f);
  std::swap(x[3], x[7]);
  for (const device::Isa isa : fast_isas()) {
    const bool wide = isa == device::Isa::kAvx512;
    EXPECT_EQ(wide ? avx512::sum_of(x.data()) : avx2::sum_of(x.data()), wide ? 136.0f : 36.0f);
    EXPECT_EQ(wide ? avx512::maximum_of(x.data()) : avx2::maximum_of(x.data()), wide ? 16.0f : 8.0f);
  }
}

}  // namespace
}  // namespace sluice::ops::test
