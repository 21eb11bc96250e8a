#include "ops/grad_norm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(NormAccumulator, HoldsOneNumberExactly) {
  for (const double x :
       {1.0, 0.1, 3.0, 1e-80, 0x1.fffffffffffffp200, 0x1p-298, 0x1.fffffep263, 12345.678, 0x1.0000000000001p31, 0x1.fffffffffffffp31}) {
    NormAccumulator a;
    a.add(x);
    EXPECT_EQ(a.value(), x);
  }
  EXPECT_EQ(NormAccumulator{}.value(), 0.0);
}

TEST(NormAccumulator, RoundsHalfToEvenOverTheWholeSum) {
  const double ulp = 0x1p-52;
  NormAccumulator half;
  half.add(1.0);
  half.add(ulp / 2);
  EXPECT_EQ(half.value(), 1.0) << "a tie goes to even";
  NormAccumulator above = half;
  above.add(0x1p-290);
  EXPECT_EQ(above.value(), 1.0 + ulp) << "one far lower bit breaks the tie";
  NormAccumulator odd;
  odd.add(1.0 + ulp);
  odd.add(ulp / 2);
  EXPECT_EQ(odd.value(), 1.0 + 2 * ulp);
  NormAccumulator carry;
  carry.add(2.0 - ulp);
  carry.add(ulp / 2);
  EXPECT_EQ(carry.value(), 2.0);
}

TEST(NormAccumulator, AgreesWithExactIntegers) {
  // Multiples of 2^-60 below 2^-7, so that __int128 holds their sums.
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    NormAccumulator a;
    __extension__ unsigned __int128 exact = 0;
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t mantissa = random() >> 11;
      a.add(std::ldexp(static_cast<double>(mantissa), -60));
      exact += mantissa;
    }
    const double high = static_cast<double>(static_cast<std::uint64_t>(exact >> 10)), expected = std::ldexp(high, 10 - 60);
    EXPECT_NEAR(a.value() / expected, 1.0, 1e-15);
    // Rounded right: no double is nearer.
    const auto distance = [&](double v) {
      const auto scaled = static_cast<long double>(std::ldexp(v, 60)) - static_cast<long double>(exact);
      return scaled < 0 ? -scaled : scaled;
    };
    EXPECT_LE(distance(a.value()), distance(std::nextafter(a.value(), 1e300)));
    EXPECT_LE(distance(a.value()), distance(std::nextafter(a.value(), 0)));
  }
}

TEST(NormAccumulator, AnyOrderAndAnyGroupingGiveTheSameNumber) {
  std::mt19937_64 random(2);
  std::vector<double> sums(2000);
  for (double& s : sums) s = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52, static_cast<int>(random() % 120) - 90);
  NormAccumulator expected;
  for (const double s : sums) expected.add(s);
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(sums.begin(), sums.end(), random);
    std::vector<NormAccumulator> parts(1 + random() % 7);
    for (std::size_t i = 0; i < sums.size(); ++i) parts[i % parts.size()].add(sums[i]);
    std::shuffle(parts.begin(), parts.end(), random);
    NormAccumulator merged;
    for (const NormAccumulator& part : parts) merged.merge(part);
    EXPECT_EQ(merged.value(), expected.value());
  }
}

TEST(NormAccumulator, LimbsOfMergedRanksMayExceed32Bits) {
  NormAccumulator a;
  a.add(0x1.fffffffffffffp40);
  NormAccumulator many;
  for (int i = 0; i < 1024; ++i) many.merge(a);
  EXPECT_EQ(many.value(), 0x1.fffffffffffffp50);
}

TEST(NormAccumulator, NotFiniteIsRemembered) {
  NormAccumulator a;
  a.add(1.0);
  a.add(std::numeric_limits<double>::infinity());
  a.add(std::nan(""));
  EXPECT_EQ(a.nonfinite, 2);
  EXPECT_TRUE(std::isnan(a.value()));
  EXPECT_THROW(a.add(-1.0), LogicError);
}

TEST(SquaredNorm, IsTheSumOfSquares) {
  for (const std::int64_t n : {0, 1, 255, 256, 257, 1023, 1024, 1025, 100000}) {
    const Values x = normal_values(n, 3, 0.01f);
    long double exact = 0;
    for (const float v : x) exact += static_cast<long double>(v) * v;
    NormAccumulator expected;
    add_squared_norm(reference_context(), x.data(), n, expected);
    EXPECT_NEAR(expected.value(), static_cast<double>(exact), 1e-14 * static_cast<double>(exact));
    for (const Context& ctx : fast_contexts()) {
      NormAccumulator a;
      add_squared_norm(ctx, x.data(), n, a);
      EXPECT_EQ(a.value(), expected.value()) << text_of(ctx) << " n " << n;
      EXPECT_EQ(a.limbs, expected.limbs);
    }
  }
}

TEST(SquaredNorm, DoesNotDependOnChunks) {
  const std::int64_t n = 256 * 40;
  const Values x = normal_values(n, 4);
  NormAccumulator whole;
  add_squared_norm(make_cpu_context(2), x.data(), n, whole);
  for (const std::int64_t blocks : {1, 3, 7, 13}) {
    NormAccumulator parts;
    for (std::int64_t begin = 0; begin < n; begin += 256 * blocks) {
      add_squared_norm(make_cpu_context(1), x.data() + begin, std::min(256 * blocks, n - begin), parts);
    }
    EXPECT_EQ(parts.limbs, whole.limbs);
  }
}

TEST(SquaredNorm, ExtremesAndNotFinite) {
  for (const Context& ctx : fast_contexts()) {
    NormAccumulator largest;
    const Values big(512, std::numeric_limits<float>::max());
    add_squared_norm(ctx, big.data(), 512, largest);
    const double square = static_cast<double>(std::numeric_limits<float>::max()) * std::numeric_limits<float>::max();
    EXPECT_EQ(largest.value(), 512 * square);
    NormAccumulator smallest;
    const Values tiny(256, std::numeric_limits<float>::denorm_min());
    add_squared_norm(ctx, tiny.data(), 256, smallest);
    EXPECT_EQ(smallest.value(), 0x1p-290);
    Values bad(2000, 1.0f);
    bad[700] = std::nanf("");
    bad[1999] = std::numeric_limits<float>::infinity();
    NormAccumulator a;
    add_squared_norm(ctx, bad.data(), 2000, a);
    EXPECT_EQ(a.nonfinite, 2);
    EXPECT_TRUE(std::isnan(a.value()));
  }
}

}  // namespace
}  // namespace sluice::ops::test
