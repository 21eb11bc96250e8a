#include "base/half.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void narrow(const float* x, std::int64_t n, DType dtype, std::uint16_t* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = dtype == DType::kBF16 ? bf16_from_f32(x[i]) : f16_from_f32(x[i]);
}

void widen(const std::uint16_t* x, std::int64_t n, DType dtype, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = dtype == DType::kBF16 ? f32_from_bf16(x[i]) : f32_from_f16(x[i]);
}

void round_to(DType dtype, float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = dtype == DType::kBF16 ? f32_from_bf16(bf16_from_f32(x[i])) : f32_from_f16(f16_from_f32(x[i]));
}

}  // namespace sluice::ops::reference
