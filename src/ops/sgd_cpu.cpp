#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/update_parts.hpp"

#define SLUICE_KERNELS "ops/sgd_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void sgd(const Context& ctx, const SgdArgs& args, const SgdFactors& factors) {
  const std::int64_t element_bytes = args.buffer == nullptr ? 12 : 20;
  run_update(ctx, args, factors, element_bytes, ctx.isa == device::Isa::kAvx512 ? avx512::sgd_range : avx2::sgd_range);
}

}  // namespace sluice::ops::cpu
