#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/adamw_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void adamw(const Context& ctx, const AdamwArgs& args, const AdamwFactors& factors) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::adamw_range : avx2::adamw_range;
  parallel_shares(threads_for_bytes(ctx.threads, 28 * args.n), args.n, kNormBlock,
                  [&](std::int64_t begin, std::int64_t end, int) { kernel(args, factors, begin, end); });
}

}  // namespace sluice::ops::cpu
