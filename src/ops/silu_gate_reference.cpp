#include <cmath>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void silu_gate_forward(const float* gate, const float* up, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = gate[i];
    y[i] = static_cast<float>(x / (1.0 + std::exp(-x)) * up[i]);
  }
}

void silu_gate_backward(const float* gate, const float* up, const float* dy, std::int64_t n, float* dgate, float* dup) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = gate[i], d = dy[i], s = 1.0 / (1.0 + std::exp(-x)), other = up[i];
    dgate[i] = static_cast<float>(d * other * s * (1.0 + x * (1.0 - s)));
    dup[i] = static_cast<float>(d * x * s);
  }
}

}  // namespace sluice::ops::reference
