#include "formats/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::formats {
namespace {

TEST(Half, WidensNamedValues) {
  EXPECT_EQ(f32_from_f16(0x3C00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xC000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7BFF), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0400), 0x1p-14f);  // the smallest normal
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);  // the smallest subnormal
  EXPECT_EQ(f32_from_f16(0x83FF), -1023 * 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x3555), 0x1.554p-2f);
  EXPECT_EQ(f32_from_f16(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(f32_from_f16(0xFC00), -std::numeric_limits<float>::infinity());
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

}  // namespace
}  // namespace sluice::formats
