#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/rope_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void rotate(const Context& ctx, const RopeShape& shape, const float* inverse_frequencies, bool backward, float* x) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::rotate_token : avx2::rotate_token;
  const std::int64_t count = shape.rows * shape.tokens;
  parallel_shares(
      threads_for_bytes(ctx.threads, 8 * count * shape.heads * shape.head_dim), count, 1, [=](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t n = begin; n < end; ++n) {
          kernel(static_cast<float>(shape.position(n)), inverse_frequencies, shape.heads, shape.head_dim / 2, backward, x + n * shape.ld);
        }
      });
}

}  // namespace sluice::ops::cpu
