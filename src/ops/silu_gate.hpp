#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// y[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)), elementwise over n. (Shazeer 2020, "GLU Variants", SwiGLU.)
/// y may alias gate or up.
void silu_gate_forward(const Context& ctx, const float* gate, const float* up, std::int64_t n, float* y);
/// dgate[i] = dy[i] up[i] silu'(gate[i]), dup[i] = dy[i] silu(gate[i]). Either may alias any of the inputs, but not each other.
void silu_gate_backward(const Context& ctx, const float* gate, const float* up, const float* dy, std::int64_t n, float* dgate, float* dup);

}  // namespace sluice::ops
