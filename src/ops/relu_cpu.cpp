#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/relu_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void relu_forward(const Context& ctx, const float* x, std::int64_t n, float* y) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::relu_forward_range : avx2::relu_forward_range;
  parallel_shares(threads_for_bytes(ctx.threads, 8 * n), n, 16,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(x + begin, y + begin, end - begin); });
}

void relu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::relu_backward_range : avx2::relu_backward_range;
  parallel_shares(threads_for_bytes(ctx.threads, 12 * n), n, 16,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(x + begin, dy + begin, dx + begin, end - begin); });
}

}  // namespace sluice::ops::cpu
