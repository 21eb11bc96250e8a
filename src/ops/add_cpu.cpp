#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/add_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void add(const Context& ctx, const float* x, std::int64_t n, float* sum) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::add_range : avx2::add_range;
  parallel_shares(threads_for_bytes(ctx.threads, 12 * n), n, 16,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(x + begin, sum + begin, end - begin); });
}

}  // namespace sluice::ops::cpu
