#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// gelu_tanh(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise over n. (Hendrycks & Gimpel 2016, section 2;
/// transformers' "gelu_new".) The same value for an element wherever it stands in the array. y may alias x.
void gelu_forward(const Context& ctx, const float* x, std::int64_t n, float* y);
/// dx[i] = dy[i] * gelu_tanh'(x[i]). dx may alias dy.
void gelu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx);

}  // namespace sluice::ops
