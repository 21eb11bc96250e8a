#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// y[n,c] = (x[n,c] - mean_n) * rstd_n * gain[c] + bias[c]; rstd = 1/sqrt(var + eps), var biased (over C).
/// Shapes  x, y: [N, C]; gain, bias: [C]; mean, rstd (out): [N]. f32; sums in f32 or wider. y may alias x.
/// Source  Ba, Kiros, Hinton 2016, "Layer Normalization", eq. 3-4.
void layer_norm_forward(const Context& ctx, const float* x, const float* gain, const float* bias, double eps, std::int64_t n,
                        std::int64_t c, float* y, float* mean, float* rstd);

/// dx[n,c] = (dx_accumulate ? dx[n,c] : 0) + d loss / d x[n,c], given dy [N, C];
/// dgain, dbias [C] are overwritten, or added to if `accumulate`; null: not wanted.
/// `workspace`: layer_norm_workspace_bytes(threads, c). Bits depend on N, C, threads only.
void layer_norm_backward(const Context& ctx, const float* x, const float* gain, const float* mean, const float* rstd, const float* dy,
                         std::int64_t n, std::int64_t c, float* dx, bool dx_accumulate, float* dgain, float* dbias, bool accumulate,
                         void* workspace);
std::int64_t layer_norm_workspace_bytes(int threads, std::int64_t c);

}  // namespace sluice::ops
