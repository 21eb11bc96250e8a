#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// `rows` rows `ld` floats apart, each with `groups` vectors of `width` side by side: a whole activation (groups 1, ld = width) or
/// the heads in a part of qkv.
struct RmsNormShape {
  std::int64_t rows = 0, width = 0;
  std::int64_t groups = 1, ld = width;
};

/// y[n,g,c] = x[n,g,c] * rstd[n,g] * gain[c]; rstd = 1 / sqrt(mean over c of x^2 + eps).
/// Shapes  x, y as the shape says, both at ld; gain: [width]; rstd (out): [rows * groups]. f32; sums in f32 or wider. y may alias x.
/// Source  Zhang, Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4; eps as in LLaMA.
void rms_norm_forward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, double eps, float* y, float* rstd);

/// dx = (dx_accumulate ? dx : 0) + d loss / d x, given dy, both at ld; dx may alias dy unless it accumulates. dgain [width] is
/// overwritten, or added to if `accumulate`; null: not wanted. `workspace`: rms_norm_workspace_bytes(threads, width). Bits depend on the
/// shape and threads only.
void rms_norm_backward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, const float* rstd, const float* dy,
                       float* dx, bool dx_accumulate, float* dgain, bool accumulate, void* workspace);
std::int64_t rms_norm_workspace_bytes(int threads, std::int64_t width);

}  // namespace sluice::ops
