#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/silu_gate_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void silu_gate_forward(const Context& ctx, const float* gate, const float* up, std::int64_t n, float* y) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::silu_gate_forward_range : avx2::silu_gate_forward_range;
  parallel_shares(threads_for_bytes(ctx.threads, 12 * n), n, 16,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(gate + begin, up + begin, y + begin, end - begin); });
}

void silu_gate_backward(const Context& ctx, const float* gate, const float* up, const float* dy, std::int64_t n, float* dgate, float* dup) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::silu_gate_backward_range : avx2::silu_gate_backward_range;
  parallel_shares(threads_for_bytes(ctx.threads, 20 * n), n, 16, [=](std::int64_t begin, std::int64_t end, int) {
    kernel(gate + begin, up + begin, dy + begin, dgate + begin, dup + begin, end - begin);
  });
}

}  // namespace sluice::ops::cpu
