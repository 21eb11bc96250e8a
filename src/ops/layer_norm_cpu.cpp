#include <algorithm>

#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/layer_norm_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void layer_norm_forward(const Context& ctx, const float* x, const float* gain, const float* bias, double eps, std::int64_t n,
                        std::int64_t c, float* y, float* mean, float* rstd) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::layer_norm_forward_rows : avx2::layer_norm_forward_rows;
  parallel_shares(threads_for_bytes(ctx.threads, 8 * n * c), n, 1, [=](std::int64_t begin, std::int64_t end, int) {
    kernel(x + begin * c, gain, bias, static_cast<float>(eps), end - begin, c, y + begin * c, mean + begin, rstd + begin);
  });
}

void layer_norm_backward(const Context& ctx, const float* x, const float* gain, const float* mean, const float* rstd, const float* dy,
                         std::int64_t n, std::int64_t c, float* dx, bool dx_accumulate, float* dgain, float* dbias, bool accumulate,
                         void* workspace) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::layer_norm_backward_rows : avx2::layer_norm_backward_rows;
  float* sums = static_cast<float*>(workspace);  // per thread: gain [C], bias [C]
  std::fill(sums, sums + 2 * c * ctx.threads, 0.0f);
  parallel_shares(ctx.threads, n, 1, [=](std::int64_t begin, std::int64_t end, int share) {
    kernel(x + begin * c, gain, mean + begin, rstd + begin, dy + begin * c, end - begin, c, dx + begin * c, dx_accumulate,
           sums + 2 * c * share, sums + 2 * c * share + c);
  });
  const auto add_up = [&](float* gradient, const float* first) {
    for (std::int64_t j = 0; gradient != nullptr && j < c; ++j) {
      float sum = accumulate ? gradient[j] : 0.0f;
      for (int share = 0; share < ctx.threads; ++share) sum += first[2 * c * share + j];
      gradient[j] = sum;
    }
  };
  add_up(dgain, sums);
  add_up(dbias, sums + c);
}

}  // namespace sluice::ops::cpu
