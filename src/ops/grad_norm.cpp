#include "ops/grad_norm.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {
constexpr int kLowestExponent = -320;  // of limb 0's unit
constexpr int kLimbBits = 32;
constexpr int kFractionBits = 52, kExponentBias = 1023;  // of fp64
}  // namespace

void NormAccumulator::add(double block_sum) {
  SLUICE_CHECK(!(block_sum < 0), "a sum of squares is ", block_sum);
  if (!std::isfinite(block_sum)) {
    ++nonfinite;
    return;
  }
  const auto bits = std::bit_cast<std::uint64_t>(block_sum);
  const int exponent = static_cast<int>(bits >> kFractionBits);
  if (exponent == 0) return;  // zero, or far below the lowest limb
  std::uint64_t mantissa = (bits & ((std::uint64_t{1} << kFractionBits) - 1)) | std::uint64_t{1} << kFractionBits;
  int bit = exponent - kExponentBias - kFractionBits - kLowestExponent;  // of the mantissa's last bit
  if (bit < 0) {                                                         // bits below 2^-320, which no sum of f32 squares has
    mantissa = bit > -64 ? mantissa >> -bit : 0;
    bit = 0;
  }
  SLUICE_CHECK(bit + kFractionBits < kLimbs * kLimbBits, "the sum of squares ", block_sum, " is beyond what fits");
  int limb = bit / kLimbBits;
  const int shift = bit % kLimbBits;
  // mantissa 2^shift has up to 85 bits: the low 32 first, the rest fits 64.
  const std::uint64_t low = mantissa << shift & 0xFFFFFFFFu;
  std::uint64_t rest = mantissa >> (kLimbBits - shift);
  limbs[static_cast<std::size_t>(limb)] += static_cast<std::int64_t>(low);
  for (++limb; rest != 0; ++limb, rest >>= kLimbBits)
    limbs[static_cast<std::size_t>(limb)] += static_cast<std::int64_t>(rest & 0xFFFFFFFFu);
}

void NormAccumulator::merge(const NormAccumulator& other) {
  for (std::size_t i = 0; i < kLimbs; ++i) limbs[i] += other.limbs[i];
  nonfinite += other.nonfinite;
}

double NormAccumulator::value() const {
  if (nonfinite != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carry, so that each digit is in [0, 2^32); the carry out of the top is two more digits.
  std::array<std::uint64_t, kLimbs + 2> digits{};
  std::int64_t carry = 0;
  for (std::size_t i = 0; i < kLimbs; ++i) {
    // limb + carry can't overflow before 2^31 blocks times 2^32; the limb's own high half is split off first.
    const std::int64_t low = (limbs[i] & 0xFFFFFFFF) + (carry & 0xFFFFFFFF);
    digits[i] = static_cast<std::uint64_t>(low) & 0xFFFFFFFFu;
    carry = (limbs[i] >> kLimbBits) + (carry >> kLimbBits) + (low >> kLimbBits);
  }
  SLUICE_CHECK(carry >= 0, "a norm accumulator is negative");
  digits[kLimbs] = static_cast<std::uint64_t>(carry) & 0xFFFFFFFFu;
  digits[kLimbs + 1] = static_cast<std::uint64_t>(carry) >> kLimbBits;
  std::size_t top = digits.size();
  while (top > 0 && digits[top - 1] == 0) --top;
  if (top == 0) return 0.0;
  // The highest three digits hold at least 65 bits: 64 of them and one sticky bit for all below decide the rounding.
  const auto digit = [&](std::size_t below_top) { return top > below_top ? digits[top - 1 - below_top] : 0; };
  std::uint64_t high = digit(0) << kLimbBits | digit(1);
  std::uint64_t low = digit(2) << kLimbBits;
  bool sticky = false;
  for (std::size_t i = 0; i + 3 < top; ++i) sticky = sticky || digits[i] != 0;
  int exponent = kLimbBits * (static_cast<int>(top) - 2) + kLowestExponent;  // of high's last bit
  while ((high >> 63) == 0) {
    high = high << 1 | low >> 63;
    low <<= 1;
    --exponent;
  }
  constexpr int kDropped = 64 - (kFractionBits + 1);
  const std::uint64_t dropped = high & ((std::uint64_t{1} << kDropped) - 1);
  const std::uint64_t half = std::uint64_t{1} << (kDropped - 1);
  std::uint64_t mantissa = high >> kDropped;
  const bool rest = low != 0 || sticky;
  if (dropped > half || (dropped == half && (rest || (mantissa & 1) != 0))) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), exponent + kDropped);
}

void add_squared_norm(const Context& ctx, const float* x, std::int64_t n, NormAccumulator& accumulator) {
  SLUICE_CHECK(n >= 0 && (n == 0 || x != nullptr), "add_squared_norm of ", n, " elements");
  return wants_reference(ctx) ? reference::add_squared_norm(x, n, accumulator) : cpu::add_squared_norm(ctx, x, n, accumulator);
}

}  // namespace sluice::ops
