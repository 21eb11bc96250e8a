#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "ops/context.hpp"

namespace sluice::ops {

/// y[i] = x[i] rounded to `dtype` (kBF16 or kF16), nearest even; too large numbers become infinite, NaNs stay NaN (base/half.hpp).
/// 6 bytes an element of traffic. Bits independent of threads and body. x and y don't overlap.
void narrow(const Context& ctx, const float* x, std::int64_t n, DType dtype, std::uint16_t* y);
/// y[i] = x[i], which is exact.
void widen(const Context& ctx, const std::uint16_t* x, std::int64_t n, DType dtype, float* y);
/// x[i] rounded to `dtype`, in place; nothing happens for kF32.
void round_to(const Context& ctx, DType dtype, float* x, std::int64_t n);

}  // namespace sluice::ops
