#include <algorithm>
#include <cmath>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void rms_norm_forward(const RmsNormShape& shape, const float* x, const float* gain, double eps, float* y, float* rstd) {
  const std::int64_t c = shape.width;
  for (std::int64_t i = 0; i < shape.rows * shape.groups; ++i) {
    const std::int64_t at = i / shape.groups * shape.ld + i % shape.groups * c;
    double squares = 0;
    for (std::int64_t j = 0; j < c; ++j) squares += static_cast<double>(x[at + j]) * x[at + j];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c) + eps);
    for (std::int64_t j = 0; j < c; ++j) y[at + j] = static_cast<float>(x[at + j] * scale * gain[j]);
    rstd[i] = static_cast<float>(scale);
  }
}

// With xhat = x rstd and g = dy gain: dx = rstd (g - xhat mean(g xhat)).
void rms_norm_backward(const RmsNormShape& shape, const float* x, const float* gain, const float* rstd, const float* dy, float* dx,
                       bool dx_accumulate, float* dgain, bool accumulate, void* workspace) {
  const std::int64_t c = shape.width;
  double* gain_sums = static_cast<double*>(workspace);
  std::fill(gain_sums, gain_sums + c, 0.0);
  for (std::int64_t i = 0; i < shape.rows * shape.groups; ++i) {
    const std::int64_t at = i / shape.groups * shape.ld + i % shape.groups * c;
    const double scale = rstd[i];
    double sum = 0;
    for (std::int64_t j = 0; j < c; ++j) {
      const double xhat = x[at + j] * scale;
      sum += static_cast<double>(dy[at + j]) * gain[j] * xhat;
      gain_sums[j] += dy[at + j] * xhat;
    }
    for (std::int64_t j = 0; j < c; ++j) {
      const double xhat = x[at + j] * scale;
      const double value = scale * (static_cast<double>(dy[at + j]) * gain[j] - xhat * sum / static_cast<double>(c));
      dx[at + j] = static_cast<float>(dx_accumulate ? dx[at + j] + value : value);
    }
  }
  for (std::int64_t j = 0; dgain != nullptr && j < c; ++j)
    dgain[j] = static_cast<float>(accumulate ? dgain[j] + gain_sums[j] : gain_sums[j]);
}

}  // namespace sluice::ops::reference
