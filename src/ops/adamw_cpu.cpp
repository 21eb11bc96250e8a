#include <algorithm>

#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/adamw_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void adamw(const Context& ctx, const AdamwArgs& args, const AdamwFactors& factors) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::adamw_range : avx2::adamw_range;
  parallel_shares(threads_for_bytes(ctx.threads, 28 * args.n), args.n, kNormBlock, [&](std::int64_t begin, std::int64_t end, int) {
    if (args.copy == nullptr) return kernel(args, factors, begin, end);
    // In pieces that are still in the first cache when they are rounded.
    constexpr std::int64_t kPiece = 4 * kNormBlock;
    for (std::int64_t at = begin; at < end; at += kPiece) {
      const std::int64_t next = std::min(end, at + kPiece);
      kernel(args, factors, at, next);
      cpu::narrow({ctx.backend, ctx.isa, 1}, args.param + at, next - at, args.copy_dtype, args.copy + at);
    }
  });
}

}  // namespace sluice::ops::cpu
