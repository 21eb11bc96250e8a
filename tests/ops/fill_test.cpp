#include "ops/fill.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(Fill, Value) {
  for (const Context& ctx : fast_contexts()) {
    Values x(40001, 1.0f);
    fill(ctx, x.data() + 1, 39999, 2.5f);
    EXPECT_EQ(x.front(), 1.0f);
    EXPECT_EQ(x.back(), 1.0f);
    EXPECT_TRUE(same_bits(Values(x.begin() + 1, x.end() - 1), Values(39999, 2.5f)));
  }
}

TEST(FillNormal, AShardHasTheNumbersOfItsPlace) {
  const std::array<std::uint32_t, 2> key = {3, 4};
  Values whole(10007);
  fill_normal(reference_context(), whole.data(), 10007, 0.02f, key, 0);
  EXPECT_EQ(whole[12], 0.02f * normal_at(key, 12));
  for (const Context& ctx : fast_contexts()) {
    Values shard(9001);
    fill_normal(ctx, shard.data(), 9001, 0.02f, key, 1001);
    EXPECT_TRUE(same_bits(shard, Values(whole.begin() + 1001, whole.begin() + 10002))) << text_of(ctx);
  }
}

TEST(FillNormal, Moments) {
  Values x(200000);
  fill_normal(make_cpu_context(2), x.data(), 200000, 2.0f, {1, 2}, std::uint64_t{1} << 40);
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  EXPECT_NEAR(sum / 200000, 0, 0.02);
  EXPECT_NEAR(squares / 200000, 4, 0.06);
  EXPECT_NEAR(fourth / 200000, 48, 2.5);
}

TEST(FillNormal, RefusesNegativeDeviation) {
  float x = 0;
  EXPECT_THROW(fill_normal(make_cpu_context(1), &x, 1, -1.0f, {}, 0), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
