#include "ops/gelu.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void gelu_forward(const Context& ctx, const float* x, std::int64_t n, float* y) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && y != nullptr)), "gelu_forward of ", n, " elements");
  return wants_reference(ctx) ? reference::gelu_forward(x, n, y) : cpu::gelu_forward(ctx, x, n, y);
}

void gelu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && dy != nullptr && dx != nullptr)), "gelu_backward of ", n, " elements");
  return wants_reference(ctx) ? reference::gelu_backward(x, dy, n, dx) : cpu::gelu_backward(ctx, x, dy, n, dx);
}

}  // namespace sluice::ops
