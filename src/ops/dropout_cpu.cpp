#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/dropout_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void dropout_add(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* x,
                 const float* residual, float* y) {
  const std::int64_t count = positions.rows * positions.tokens;
  if (site.rate == 0) {
    if (x == y && residual == nullptr) return;
    const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::add_residual_range : avx2::add_residual_range;
    parallel_shares(threads_for_bytes(ctx.threads, 12 * count * c), count * c, 16, [=](std::int64_t begin, std::int64_t end, int) {
      kernel(x + begin, residual != nullptr ? residual + begin : nullptr, y + begin, end - begin);
    });
    return;
  }
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::dropout_row : avx2::dropout_row;
  parallel_shares(threads_for_bytes(ctx.threads, 12 * count * c), count, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      kernel(site, static_cast<std::uint32_t>(positions.first_position + i % positions.tokens),
             static_cast<std::uint64_t>(positions.sample_ids[i / positions.tokens]), c, x + i * c,
             residual != nullptr ? residual + i * c : nullptr, y + i * c);
    }
  });
}

void dropout_backward(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* dy,
                      float* dx) {
  cpu::dropout_add(ctx, site, positions, c, dy, nullptr, dx);
}

}  // namespace sluice::ops::cpu
