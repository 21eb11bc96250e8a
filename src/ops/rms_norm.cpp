#include "ops/rms_norm.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

void check_shape(const RmsNormShape& shape) {
  SLUICE_CHECK(shape.rows >= 1 && shape.width >= 1 && shape.groups >= 1 && shape.ld >= shape.groups * shape.width, "rms_norm of ",
               shape.rows, " rows of ", shape.groups, " x ", shape.width, ", ", shape.ld, " apart");
}

}  // namespace

void rms_norm_forward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, double eps, float* y, float* rstd) {
  check_shape(shape);
  SLUICE_CHECK(x != nullptr && gain != nullptr && y != nullptr && rstd != nullptr, "rms_norm_forward without one of its arrays");
  SLUICE_CHECK(eps > 0, "rms_norm's eps is ", eps);
  return wants_reference(ctx) ? reference::rms_norm_forward(shape, x, gain, eps, y, rstd)
                              : cpu::rms_norm_forward(ctx, shape, x, gain, eps, y, rstd);
}

void rms_norm_backward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, const float* rstd, const float* dy,
                       float* dx, bool dx_accumulate, float* dgain, bool accumulate, void* workspace) {
  check_shape(shape);
  SLUICE_CHECK(x != nullptr && gain != nullptr && rstd != nullptr && dy != nullptr && dx != nullptr && workspace != nullptr,
               "rms_norm_backward without one of its arrays");
  SLUICE_CHECK(!dx_accumulate || dx != dy, "rms_norm_backward adds to its own input");
  return wants_reference(ctx) ? reference::rms_norm_backward(shape, x, gain, rstd, dy, dx, dx_accumulate, dgain, accumulate, workspace)
                              : cpu::rms_norm_backward(ctx, shape, x, gain, rstd, dy, dx, dx_accumulate, dgain, accumulate, workspace);
}

// A row of sums for each thread, in f32; the reference has one in f64.
std::int64_t rms_norm_workspace_bytes(int threads, std::int64_t width) {
  return width * std::max<std::int64_t>(threads * static_cast<std::int64_t>(sizeof(float)), sizeof(double));
}

}  // namespace sluice::ops
