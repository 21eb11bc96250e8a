#include <algorithm>

#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/rms_norm_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void rms_norm_forward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, double eps, float* y, float* rstd) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::rms_norm_forward_vectors : avx2::rms_norm_forward_vectors;
  const std::int64_t bytes = 8 * shape.rows * shape.groups * shape.width;
  parallel_shares(threads_for_bytes(ctx.threads, bytes), shape.rows, 1, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * shape.ld;
      kernel(x + at, gain, static_cast<float>(eps), shape.groups, shape.width, y + at, rstd + row * shape.groups);
    }
  });
}

void rms_norm_backward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, const float* rstd, const float* dy,
                       float* dx, bool dx_accumulate, float* dgain, bool accumulate, void* workspace) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::rms_norm_backward_vectors : avx2::rms_norm_backward_vectors;
  const std::int64_t c = shape.width;
  float* sums = static_cast<float*>(workspace);  // [threads, width]
  std::fill(sums, sums + c * ctx.threads, 0.0f);
  parallel_shares(ctx.threads, shape.rows, 1, [=](std::int64_t begin, std::int64_t end, int share) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * shape.ld;
      kernel(x + at, gain, rstd + row * shape.groups, dy + at, shape.groups, c, dx + at, dx_accumulate, sums + c * share);
    }
  });
  for (std::int64_t j = 0; dgain != nullptr && j < c; ++j) {
    float sum = accumulate ? dgain[j] : 0.0f;
    for (int share = 0; share < ctx.threads; ++share) sum += sums[c * share + j];
    dgain[j] = sum;
  }
}

}  // namespace sluice::ops::cpu
