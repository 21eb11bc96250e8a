#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void relu_forward(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0.0f;
}

void relu_backward(const float* x, const float* dy, std::int64_t n, float* dx) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = x[i] > 0 ? dy[i] : 0.0f;
}

}  // namespace sluice::ops::reference
