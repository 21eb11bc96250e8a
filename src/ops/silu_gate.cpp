#include "ops/silu_gate.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void silu_gate_forward(const Context& ctx, const float* gate, const float* up, std::int64_t n, float* y) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (gate != nullptr && up != nullptr && y != nullptr)), "silu_gate_forward of ", n, " elements");
  return wants_reference(ctx) ? reference::silu_gate_forward(gate, up, n, y) : cpu::silu_gate_forward(ctx, gate, up, n, y);
}

void silu_gate_backward(const Context& ctx, const float* gate, const float* up, const float* dy, std::int64_t n, float* dgate, float* dup) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (gate != nullptr && up != nullptr && dy != nullptr && dgate != nullptr && dup != nullptr)),
               "silu_gate_backward of ", n, " elements");
  SLUICE_CHECK(n == 0 || dgate != dup, "silu_gate_backward's gradients are one array");
  return wants_reference(ctx) ? reference::silu_gate_backward(gate, up, dy, n, dgate, dup)
                              : cpu::silu_gate_backward(ctx, gate, up, dy, n, dgate, dup);
}

}  // namespace sluice::ops
