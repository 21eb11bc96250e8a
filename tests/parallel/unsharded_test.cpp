#include "parallel/unsharded.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/guarded_buffer.hpp"
#include "support/op_contexts.hpp"

namespace sluice::parallel {
namespace {

using model::WeightOrder;
using test::GuardedBuffer;

constexpr std::int64_t kTokens = 7, kIn = 5, kOut = 11, kLd = 14;  // kLd: other layers write the columns beyond kOut

/// Small and different everywhere, exact in f32.
GuardedBuffer numbers(std::int64_t n, int seed) {
  GuardedBuffer buffer = GuardedBuffer::floats(n);
  for (std::int64_t i = 0; i < n; ++i) buffer.f32()[i] = static_cast<float>((i * 37 + seed * 11) % 23 - 11) / 16.0f;
  return buffer;
}

class UnshardedTest : public ::testing::TestWithParam<std::tuple<test::NamedContext, WeightOrder>> {
 protected:
  const ops::Context& ctx() const { return std::get<0>(GetParam()).context; }
  WeightOrder order() const { return std::get<1>(GetParam()); }
  /// Where the weight from input i to output o stands.
  std::int64_t at(std::int64_t i, std::int64_t o) const { return order() == WeightOrder::kInOut ? i * kOut + o : o * kIn + i; }
  std::unique_ptr<model::ModuleFactory> factory_ = make_unsharded_modules();
  std::unique_ptr<model::Linear> linear_ = factory_->linear(model::LinearRole::kColumn, kIn, kOut, order());
  GuardedBuffer x_ = numbers(kTokens * kIn, 1), w_ = numbers(kIn * kOut, 2), b_ = numbers(kOut, 3), dy_ = numbers(kTokens * kLd, 4);
};

TEST_P(UnshardedTest, IsWhole) {
  EXPECT_EQ(linear_->in(), kIn);
  EXPECT_EQ(linear_->out(), kOut);
  EXPECT_EQ(factory_->linear(model::LinearRole::kRow, kIn, kOut, WeightOrder::kOutIn)->in(), kIn);
  EXPECT_EQ(factory_->local_heads(12), 12);
}

TEST_P(UnshardedTest, ForwardMultipliesByAWeightInItsOrder) {
  GuardedBuffer y = GuardedBuffer::floats(kTokens * kOut), gelu = GuardedBuffer::floats(kTokens * kOut);
  linear_->forward(ctx(), kTokens, x_.f32(), w_.f32(), b_.f32(), y.f32(), kOut, gelu.f32());
  GuardedBuffer plain = GuardedBuffer::floats(kTokens * kLd), unbiased = GuardedBuffer::floats(kTokens * kOut);
  std::fill_n(plain.f32(), kTokens * kLd, 7.0f);
  linear_->forward(ctx(), kTokens, x_.f32(), w_.f32(), b_.f32(), plain.f32(), kLd, nullptr);
  linear_->forward(ctx(), kTokens, x_.f32(), w_.f32(), nullptr, unbiased.f32(), kOut, nullptr);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t o = 0; o < kOut; ++o) {
      double sum = b_.f32()[o];
      for (std::int64_t i = 0; i < kIn; ++i) sum += static_cast<double>(x_.f32()[t * kIn + i]) * w_.f32()[at(i, o)];
      const double activated = 0.5 * sum * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
      EXPECT_NEAR(y.f32()[t * kOut + o], sum, 1e-6);
      EXPECT_NEAR(gelu.f32()[t * kOut + o], activated, 1e-6);
      EXPECT_NEAR(plain.f32()[t * kLd + o], sum, 1e-6);
      EXPECT_NEAR(unbiased.f32()[t * kOut + o], sum - b_.f32()[o], 1e-6);
    }
    for (std::int64_t o = kOut; o < kLd; ++o) EXPECT_EQ(plain.f32()[t * kLd + o], 7.0f);
  }
  EXPECT_TRUE(y.guard_intact() && gelu.guard_intact() && plain.guard_intact() && unbiased.guard_intact());
}

TEST_P(UnshardedTest, BackwardInputOverwritesOrAdds) {
  for (const bool accumulate : {false, true}) {
    GuardedBuffer dx = GuardedBuffer::floats(kTokens * kIn);  // NaN before
    if (accumulate) std::fill_n(dx.f32(), kTokens * kIn, 0.5f);
    linear_->backward_input(ctx(), kTokens, dy_.f32(), kLd, w_.f32(), dx.f32(), accumulate);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t i = 0; i < kIn; ++i) {
        double sum = accumulate ? 0.5 : 0;
        for (std::int64_t o = 0; o < kOut; ++o) sum += static_cast<double>(dy_.f32()[t * kLd + o]) * w_.f32()[at(i, o)];
        EXPECT_NEAR(dx.f32()[t * kIn + i], sum, 1e-6);
      }
    }
    EXPECT_TRUE(dx.guard_intact());
  }
}

TEST_P(UnshardedTest, BackwardWeightHonoursEachFlag) {
  for (const bool add_weight : {false, true}) {
    for (const bool add_bias : {false, true}) {
      GuardedBuffer dw = add_weight ? numbers(kIn * kOut, 5) : GuardedBuffer::floats(kIn * kOut);
      GuardedBuffer db = add_bias ? numbers(kOut, 6) : GuardedBuffer::floats(kOut);
      GuardedBuffer alone = GuardedBuffer::floats(kIn * kOut);
      const GuardedBuffer dw0 = numbers(kIn * kOut, 5), db0 = numbers(kOut, 6);
      linear_->backward_weight(ctx(), kTokens, dy_.f32(), kLd, x_.f32(), dw.f32(), add_weight, db.f32(), add_bias);
      linear_->backward_weight(ctx(), kTokens, dy_.f32(), kLd, x_.f32(), alone.f32(), false, nullptr, false);  // of a layer without a bias
      for (std::int64_t o = 0; o < kOut; ++o) {
        double bias = add_bias ? db0.f32()[o] : 0;
        for (std::int64_t t = 0; t < kTokens; ++t) bias += dy_.f32()[t * kLd + o];
        EXPECT_NEAR(db.f32()[o], bias, 1e-6);
        for (std::int64_t i = 0; i < kIn; ++i) {
          double sum = 0;
          for (std::int64_t t = 0; t < kTokens; ++t) sum += static_cast<double>(x_.f32()[t * kIn + i]) * dy_.f32()[t * kLd + o];
          EXPECT_NEAR(dw.f32()[at(i, o)], sum + (add_weight ? dw0.f32()[at(i, o)] : 0), 1e-6);
          EXPECT_NEAR(alone.f32()[at(i, o)], sum, 1e-6);
        }
      }
      EXPECT_TRUE(dw.guard_intact() && db.guard_intact() && alone.guard_intact());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, UnshardedTest,
                         ::testing::Combine(test::single_thread_contexts(), ::testing::Values(WeightOrder::kInOut, WeightOrder::kOutIn)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + (std::get<1>(test.param) == WeightOrder::kInOut ? "_in_out" : "_out_in");
                         });

}  // namespace
}  // namespace sluice::parallel
