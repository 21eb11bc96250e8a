#pragma once
// 16-bit floats, a number at a time. Widening is exact; narrowing rounds to nearest, ties to even.

#include <bit>
#include <cstdint>

namespace sluice {

/// bfloat16: the upper half of an f32.
inline float f32_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. NaN payloads move to the upper fraction bits, NaNs become
/// quiet.
inline float f32_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction != 0 ? 0x00400000u : 0u) | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;  // zero or subnormal: exact in f32
  return sign != 0 ? -magnitude : magnitude;
}

/// Beyond the largest bfloat16 by half a step: infinity. A NaN keeps its upper payload and becomes quiet.
inline std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/// From 65520 on: infinity; below 2^-14 subnormal, in steps of 2^-24. A NaN keeps its upper payload and becomes quiet.
inline std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  const auto nearest = [](std::uint32_t number, std::uint32_t dropped_bits) {
    const std::uint32_t kept = number >> dropped_bits;
    return (number + (1u << (dropped_bits - 1)) - 1u + (kept & 1u)) >> dropped_bits;
  };
  // A carry out of the fraction moves into the exponent, which is what rounding up to the next power of two means.
  if (magnitude >= 0x38800000u) return static_cast<std::uint16_t>(sign | nearest(magnitude - (112u << 23), 13));
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return static_cast<std::uint16_t>(sign);  // below half of 2^-24
  return static_cast<std::uint16_t>(sign | nearest((magnitude & 0x007FFFFFu) | 0x00800000u, 126 - exponent));
}

}  // namespace sluice
