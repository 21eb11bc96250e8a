#pragma once
// 16-bit floats of files, widened exactly.

#include <bit>
#include <cstdint>

namespace sluice::formats {

/// bfloat16: the upper half of an f32.
inline float f32_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. NaN payloads move to the upper fraction bits.
inline float f32_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;  // zero or subnormal: exact in f32
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace sluice::formats
