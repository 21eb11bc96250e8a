#include "base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Half, WidensNamedValues) {
  EXPECT_EQ(f32_from_f16(0x3C00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xC000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7BFF), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0400), 0x1p-14f);  // the smallest normal
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);  // the smallest subnormal
  EXPECT_EQ(f32_from_f16(0x83FF), -1023 * 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x3555), 0x1.554p-2f);
  EXPECT_EQ(f32_from_f16(0x7C00), kInfinity);
  EXPECT_EQ(f32_from_f16(0xFC00), -kInfinity);
  EXPECT_TRUE(std::isnan(f32_from_f16(0x7E00)));
  EXPECT_TRUE(std::signbit(f32_from_f16(0x8000)));
  EXPECT_EQ(f32_from_bf16(0x3F80), 1.0f);
  EXPECT_EQ(f32_from_bf16(0xC040), -3.0f);
  EXPECT_EQ(f32_from_bf16(0x0001), 0x1p-133f);
}

TEST(Half, WidensEveryFiniteF16ToItsDefinition) {
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31;
    if (exponent == 31) continue;
    const int fraction = bits & 1023;
    const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(f32_from_f16(static_cast<std::uint16_t>(bits)), bits < 32768 ? magnitude : -magnitude) << bits;
  }
}

TEST(Half, NarrowsNamedValues) {
  EXPECT_EQ(f16_from_f32(1.0f), 0x3C00);
  EXPECT_EQ(f16_from_f32(-2.0f), 0xC000);
  EXPECT_EQ(f16_from_f32(65504.0f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7C00);  // halfway to what would be 65536: to even, which is infinity
  EXPECT_EQ(f16_from_f32(-kInfinity), 0xFC00);
  EXPECT_EQ(f16_from_f32(-0.0f), 0x8000);
  EXPECT_EQ(f16_from_f32(0x1p-24f), 0x0001);
  EXPECT_EQ(f16_from_f32(0x1p-25f), 0x0000);  // a tie with zero
  EXPECT_EQ(f16_from_f32(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(f16_from_f32(0x1.FFCp-15f), 0x0400);  // the tie between the largest subnormal and 2^-14
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::quiet_NaN()), 0x7E00);
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_f32(-3.0f), 0xC040);
  EXPECT_EQ(bf16_from_f32(0x1.01p0f), 0x3F80);  // ties go to even
  EXPECT_EQ(bf16_from_f32(0x1.03p0f), 0x3F82);
  EXPECT_EQ(bf16_from_f32(0x1.010002p0f), 0x3F81);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bf16_from_f32(-kInfinity), 0xFF80);
  EXPECT_EQ(bf16_from_f32(0x1p-133f), 0x0001);
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7F800001u)))));  // a payload in the dropped bits only
}

/// Between each two neighbours the first half goes down, the second up, and the middle to the even one.
template <typename Widen, typename Narrow>
void check_rounding(Widen widen, Narrow narrow, std::uint16_t infinity) {
  for (std::uint16_t bits = 0; bits < infinity; ++bits) {
    const float low = widen(bits);
    ASSERT_EQ(narrow(low), bits);
    ASSERT_EQ(narrow(-low), bits | 0x8000);
    if (bits + 1 == infinity) break;
    const float high = widen(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);  // exact: f32 has more fraction bits
    ASSERT_EQ(narrow(middle), bits + bits % 2) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, kInfinity)), bits + 1) << bits;
  }
}

TEST(Half, NarrowsToTheNearest) {
  check_rounding(f32_from_f16, f16_from_f32, 0x7C00);
  check_rounding(f32_from_bf16, bf16_from_f32, 0x7F80);
}

}  // namespace
}  // namespace sluice
