#include "ops/relu.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void relu_forward(const Context& ctx, const float* x, std::int64_t n, float* y) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && y != nullptr)), "relu_forward of ", n, " elements");
  return wants_reference(ctx) ? reference::relu_forward(x, n, y) : cpu::relu_forward(ctx, x, n, y);
}

void relu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && dy != nullptr && dx != nullptr)), "relu_backward of ", n, " elements");
  return wants_reference(ctx) ? reference::relu_backward(x, dy, n, dx) : cpu::relu_backward(ctx, x, dy, n, dx);
}

}  // namespace sluice::ops
