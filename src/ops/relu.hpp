#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// y[i] = max(x[i], 0), elementwise over n. y may alias x.
void relu_forward(const Context& ctx, const float* x, std::int64_t n, float* y);
/// dx[i] = x[i] > 0 ? dy[i] : 0. dx may alias dy.
void relu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx);

}  // namespace sluice::ops
