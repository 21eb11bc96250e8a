#include <algorithm>
#include <limits>

#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/cross_entropy_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

double cross_entropy(const Context& ctx, float* logits, std::int64_t n, std::int64_t v, std::int64_t ld, const std::int32_t* targets,
                     float scale, bool gradient) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::cross_entropy_row : avx2::cross_entropy_row;
  constexpr std::int64_t kRows = 256;  // whose losses are kept to be added in order
  double losses[kRows];
  double total = 0;
  for (std::int64_t start = 0; start < n; start += kRows) {
    const std::int64_t count = std::min(kRows, n - start);
    parallel_shares(threads_for_bytes(ctx.threads, 8 * count * v), count, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        float* x = logits + (start + i) * ld;
        const std::int32_t target = targets[start + i];
        if (target == kIgnoredTarget) {
          losses[i] = 0;
          if (gradient) std::fill(x, x + v, 0.0f);
        } else {
          losses[i] = kernel(x, v, target, scale, gradient);
        }
      }
    });
    for (std::int64_t i = 0; i < count; ++i) total += losses[i];
  }
  return total;
}

}  // namespace sluice::ops::cpu
