#include "ops/layer_norm.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void layer_norm_forward(const Context& ctx, const float* x, const float* gain, const float* bias, double eps, std::int64_t n,
                        std::int64_t c, float* y, float* mean, float* rstd) {
  SLUICE_CHECK(n >= 1 && c >= 1, "layer_norm_forward of [", n, ", ", c, "]");
  SLUICE_CHECK(x != nullptr && gain != nullptr && bias != nullptr && y != nullptr && mean != nullptr && rstd != nullptr,
               "layer_norm_forward without one of its arrays");
  SLUICE_CHECK(eps > 0, "layer_norm's eps is ", eps);
  return wants_reference(ctx) ? reference::layer_norm_forward(x, gain, bias, eps, n, c, y, mean, rstd)
                              : cpu::layer_norm_forward(ctx, x, gain, bias, eps, n, c, y, mean, rstd);
}

void layer_norm_backward(const Context& ctx, const float* x, const float* gain, const float* mean, const float* rstd, const float* dy,
                         std::int64_t n, std::int64_t c, float* dx, bool dx_accumulate, float* dgain, float* dbias, bool accumulate,
                         void* workspace) {
  SLUICE_CHECK(n >= 1 && c >= 1, "layer_norm_backward of [", n, ", ", c, "]");
  SLUICE_CHECK(
      x != nullptr && gain != nullptr && mean != nullptr && rstd != nullptr && dy != nullptr && dx != nullptr && workspace != nullptr,
      "layer_norm_backward without one of its arrays");
  return wants_reference(ctx)
             ? reference::layer_norm_backward(x, gain, mean, rstd, dy, n, c, dx, dx_accumulate, dgain, dbias, accumulate, workspace)
             : cpu::layer_norm_backward(ctx, x, gain, mean, rstd, dy, n, c, dx, dx_accumulate, dgain, dbias, accumulate, workspace);
}

// Two rows of c sums for each thread, in f32; the reference has one pair in f64.
std::int64_t layer_norm_workspace_bytes(int threads, std::int64_t c) {
  return 2 * c * std::max<std::int64_t>(threads * static_cast<std::int64_t>(sizeof(float)), sizeof(double));
}

}  // namespace sluice::ops
