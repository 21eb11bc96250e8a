#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/convert_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {
namespace {

// Shares begin at whole vectors of either instruction set.
constexpr std::int64_t kUnit = 64;

}  // namespace

void narrow(const Context& ctx, const float* x, std::int64_t n, DType dtype, std::uint16_t* y) {
  const bool bf16 = dtype == DType::kBF16;
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? (bf16 ? avx512::narrow_range<avx512::Bf16> : avx512::narrow_range<avx512::F16>)
                                                      : (bf16 ? avx2::narrow_range<avx2::Bf16> : avx2::narrow_range<avx2::F16>);
  parallel_shares(threads_for_bytes(ctx.threads, 6 * n), n, kUnit,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(x + begin, y + begin, end - begin); });
}

void widen(const Context& ctx, const std::uint16_t* x, std::int64_t n, DType dtype, float* y) {
  const bool bf16 = dtype == DType::kBF16;
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? (bf16 ? avx512::widen_range<avx512::Bf16> : avx512::widen_range<avx512::F16>)
                                                      : (bf16 ? avx2::widen_range<avx2::Bf16> : avx2::widen_range<avx2::F16>);
  parallel_shares(threads_for_bytes(ctx.threads, 6 * n), n, kUnit,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(x + begin, y + begin, end - begin); });
}

void round_to(const Context& ctx, DType dtype, float* x, std::int64_t n) {
  const bool bf16 = dtype == DType::kBF16;
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? (bf16 ? avx512::round_range<avx512::Bf16> : avx512::round_range<avx512::F16>)
                                                      : (bf16 ? avx2::round_range<avx2::Bf16> : avx2::round_range<avx2::F16>);
  parallel_shares(threads_for_bytes(ctx.threads, 8 * n), n, kUnit,
                  [=](std::int64_t begin, std::int64_t end, int) { kernel(x + begin, end - begin); });
}

}  // namespace sluice::ops::cpu
