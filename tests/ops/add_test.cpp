#include "ops/add.hpp"

#include <limits>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(Add, EveryBodyHasThePlainLoopsBits) {
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const std::int64_t n : {0, 1, 7, 8, 15, 16, 17, 40001}) {
    const Values x = normal_values(n, 1), before = normal_values(n, 2);
    Values expected = before;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += x[i];
    for (const Context& ctx : contexts) {
      Values sum = before;
      sum.push_back(7.0f);
      add(ctx, x.data(), n, sum.data());
      EXPECT_EQ(sum.back(), 7.0f) << "beyond the end";
      sum.pop_back();
      EXPECT_TRUE(same_bits(sum, expected)) << n;
    }
  }
}

TEST(Add, KeepsWhatIsNotFinite) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    Values sum(20, kInfinite), x(20, 1.0f);
    x[3] = -kInfinite;
    sum[19] = -0.0f;
    x[19] = -0.0f;
    add(ctx, x.data(), 20, sum.data());
    EXPECT_EQ(sum[0], kInfinite);
    EXPECT_TRUE(std::isnan(sum[3]));
    EXPECT_TRUE(std::signbit(sum[19]));
  }
}

TEST(Add, RefusesBadArguments) {
  Values x(4);
  EXPECT_THROW(add(make_cpu_context(1), x.data(), 4, nullptr), LogicError);
  EXPECT_THROW(add(make_cpu_context(1), nullptr, 4, x.data()), LogicError);
  EXPECT_THROW(add(make_cpu_context(1), x.data(), -1, x.data()), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
