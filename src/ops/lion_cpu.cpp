#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/update_parts.hpp"

#define SLUICE_KERNELS "ops/lion_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void lion(const Context& ctx, const LionArgs& args, const LionFactors& factors) {
  run_update(ctx, args, factors, 20, ctx.isa == device::Isa::kAvx512 ? avx512::lion_range : avx2::lion_range);
}

}  // namespace sluice::ops::cpu
