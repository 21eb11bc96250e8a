#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/update_parts.hpp"

#define SLUICE_KERNELS "ops/adamw_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void adamw(const Context& ctx, const AdamwArgs& args, const AdamwFactors& factors) {
  run_update(ctx, args, factors, 28, ctx.isa == device::Isa::kAvx512 ? avx512::adamw_range : avx2::adamw_range);
}

}  // namespace sluice::ops::cpu
