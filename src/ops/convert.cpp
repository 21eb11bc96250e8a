#include "ops/convert.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

void check_narrow_dtype(DType dtype) {
  SLUICE_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "conversion between f32 and ", name_of(dtype));
}

}  // namespace

void narrow(const Context& ctx, const float* x, std::int64_t n, DType dtype, std::uint16_t* y) {
  check_narrow_dtype(dtype);
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && y != nullptr)), "narrow of ", n, " elements");
  return wants_reference(ctx) ? reference::narrow(x, n, dtype, y) : cpu::narrow(ctx, x, n, dtype, y);
}

void widen(const Context& ctx, const std::uint16_t* x, std::int64_t n, DType dtype, float* y) {
  check_narrow_dtype(dtype);
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && y != nullptr)), "widen of ", n, " elements");
  return wants_reference(ctx) ? reference::widen(x, n, dtype, y) : cpu::widen(ctx, x, n, dtype, y);
}

void round_to(const Context& ctx, DType dtype, float* x, std::int64_t n) {
  if (dtype == DType::kF32) return;
  check_narrow_dtype(dtype);
  SLUICE_CHECK(n >= 0 && (n == 0 || x != nullptr), "round_to of ", n, " elements");
  return wants_reference(ctx) ? reference::round_to(dtype, x, n) : cpu::round_to(ctx, dtype, x, n);
}

}  // namespace sluice::ops
