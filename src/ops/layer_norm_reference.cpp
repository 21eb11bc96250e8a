#include <algorithm>
#include <cmath>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void layer_norm_forward(const float* x, const float* gain, const float* bias, double eps, std::int64_t n, std::int64_t c, float* y,
                        float* mean, float* rstd) {
  for (std::int64_t row = 0; row < n; ++row) {
    const float* in = x + row * c;
    double sum = 0, squares = 0;
    for (std::int64_t j = 0; j < c; ++j) sum += in[j];
    const double center = sum / static_cast<double>(c);
    for (std::int64_t j = 0; j < c; ++j) squares += (in[j] - center) * (in[j] - center);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c) + eps);
    for (std::int64_t j = 0; j < c; ++j) y[row * c + j] = static_cast<float>((in[j] - center) * scale * gain[j] + bias[j]);
    mean[row] = static_cast<float>(center);
    rstd[row] = static_cast<float>(scale);
  }
}

// With xhat = (x - mean) rstd and g = dy gain: dx = rstd (g - mean(g) - xhat mean(g xhat)).
void layer_norm_backward(const float* x, const float* gain, const float* mean, const float* rstd, const float* dy, std::int64_t n,
                         std::int64_t c, float* dx, bool dx_accumulate, float* dgain, float* dbias, bool accumulate, void* workspace) {
  double* gain_sums = static_cast<double*>(workspace);
  double* bias_sums = gain_sums + c;
  std::fill(gain_sums, gain_sums + 2 * c, 0.0);
  for (std::int64_t row = 0; row < n; ++row) {
    const float* in = x + row * c;
    const float* d = dy + row * c;
    double sum = 0, sum_xhat = 0;
    for (std::int64_t j = 0; j < c; ++j) {
      const double xhat = (static_cast<double>(in[j]) - mean[row]) * rstd[row];
      const double g = static_cast<double>(d[j]) * gain[j];
      sum += g;
      sum_xhat += g * xhat;
      gain_sums[j] += d[j] * xhat;
      bias_sums[j] += d[j];
    }
    for (std::int64_t j = 0; j < c; ++j) {
      const double xhat = (static_cast<double>(in[j]) - mean[row]) * rstd[row];
      const double value = rstd[row] * (static_cast<double>(d[j]) * gain[j] - (sum + xhat * sum_xhat) / static_cast<double>(c));
      float& out = dx[row * c + j];
      out = static_cast<float>(dx_accumulate ? out + value : value);
    }
  }
  const auto add_up = [&](float* gradient, const double* sums) {
    for (std::int64_t j = 0; gradient != nullptr && j < c; ++j)
      gradient[j] = static_cast<float>(accumulate ? gradient[j] + sums[j] : sums[j]);
  };
  add_up(dgain, gain_sums);
  add_up(dbias, bias_sums);
}

}  // namespace sluice::ops::reference
