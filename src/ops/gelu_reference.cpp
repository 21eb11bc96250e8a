#include <cmath>
#include <numbers>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {
namespace {
// sqrt(2 / pi)
constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kCubic = 0.044715;
}  // namespace

void gelu_forward(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    y[i] = static_cast<float>(0.5 * v * (1.0 + std::tanh(kRoot * (v + kCubic * v * v * v))));
  }
}

void gelu_backward(const float* x, const float* dy, std::int64_t n, float* dx) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double t = std::tanh(kRoot * (v + kCubic * v * v * v));
    const double slope = kRoot * (1.0 + 3.0 * kCubic * v * v);
    dx[i] = static_cast<float>(dy[i] * (0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope));
  }
}

}  // namespace sluice::ops::reference
