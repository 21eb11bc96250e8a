#include "ops/convert.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/half.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

using Halves = std::vector<std::uint16_t>;

/// Numbers of every size, ties, and what isn't finite.
Values hard_values(std::int64_t n) {
  Values values = normal_values(n, 3);
  const float specials[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            65519.99f,
                            -65520.0f,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0x7F800001u),
                            1e-40f,
                            0x1p-25f,
                            0x1.8p-25f,
                            0x1.01p0f,
                            0x1.03p0f,
                            0x1.FFFFFEp127f,
                            std::numeric_limits<float>::denorm_min(),
                            -0x1.004p-14f};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= std::ldexp(1.0f, static_cast<int>(i * 7 % 90) - 60);
    if (i % 3 == 0) values[i] = specials[i / 3 % std::size(specials)];
  }
  return values;
}

TEST(Convert, EveryBodyRoundsToNearestEven) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t n : {0, 1, 7, 8, 15, 16, 17, 63, 256, 1000, 50001}) {
      const Values x = hard_values(n);
      Halves expected;
      for (const float value : x) expected.push_back(dtype == DType::kBF16 ? bf16_from_f32(value) : f16_from_f32(value));
      std::vector<Context> contexts = fast_contexts();
      contexts.push_back(reference_context());
      for (const Context& ctx : contexts) {
        SCOPED_TRACE(text_of(ctx) + ", n " + std::to_string(n) + ", " + std::string(name_of(dtype)));
        Halves y(x.size() + 1, 0xABCD);
        narrow(ctx, x.data(), n, dtype, y.data());
        EXPECT_EQ(y.back(), 0xABCD) << "written beyond the end";
        y.pop_back();
        EXPECT_EQ(y, expected);
        Values wide(x.size() + 1, 5.0f), rounded = x;
        widen(ctx, y.data(), n, dtype, wide.data());
        EXPECT_EQ(wide.back(), 5.0f) << "written beyond the end";
        wide.pop_back();
        Values wide_expected;
        for (const std::uint16_t bits : expected) wide_expected.push_back(dtype == DType::kBF16 ? f32_from_bf16(bits) : f32_from_f16(bits));
        EXPECT_TRUE(same_bits(wide, wide_expected));
        round_to(ctx, dtype, rounded.data(), n);
        EXPECT_TRUE(same_bits(rounded, wide_expected));
      }
    }
  }
}

TEST(Convert, EveryBodyWidensAllNumbers) {
  Halves all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Values expected(all.size());
    widen(reference_context(), all.data(), 65536, dtype, expected.data());
    for (const Context& ctx : fast_contexts()) {
      Values y(all.size());
      widen(ctx, all.data(), 65536, dtype, y.data());
      EXPECT_TRUE(same_bits(y, expected)) << text_of(ctx) << " " << name_of(dtype);
    }
  }
}

TEST(Convert, RoundingToF32ChangesNothing) {
  Values x = normal_values(100, 1);
  const Values before = x;
  round_to(make_cpu_context(1), DType::kF32, x.data(), 100);
  EXPECT_TRUE(same_bits(x, before));
}

TEST(Convert, RefusesBadArguments) {
  Values x(4);
  Halves y(4);
  EXPECT_THROW(narrow(make_cpu_context(1), x.data(), 4, DType::kF32, y.data()), LogicError);
  EXPECT_THROW(narrow(make_cpu_context(1), nullptr, 4, DType::kBF16, y.data()), LogicError);
  EXPECT_THROW(widen(make_cpu_context(1), y.data(), -1, DType::kBF16, x.data()), LogicError);
  EXPECT_THROW(round_to(make_cpu_context(1), DType::kI32, x.data(), 4), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
