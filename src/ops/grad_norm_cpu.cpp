#include <algorithm>
#include <mutex>

#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

namespace sluice::ops {
namespace {

double ordered_sum(const double (&lanes)[8]) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// The squares are exact in fp64, so fused or not the bits are the reference's. Four blocks at once hide the latency of the sums.
__attribute__((target("avx2,fma"))) void sum_four_blocks_avx2(const float* x, double (&sums)[4]) {
  __m256d low[4], high[4];
  for (int b = 0; b < 4; ++b) low[b] = high[b] = _mm256_setzero_pd();
  for (std::int64_t i = 0; i < kNormBlock; i += 8) {
    for (int b = 0; b < 4; ++b) {
      const __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x + b * kNormBlock + i));
      const __m256d c = _mm256_cvtps_pd(_mm_loadu_ps(x + b * kNormBlock + i + 4));
      low[b] = _mm256_fmadd_pd(a, a, low[b]);
      high[b] = _mm256_fmadd_pd(c, c, high[b]);
    }
  }
  for (int b = 0; b < 4; ++b) {
    double lanes[8];
    _mm256_storeu_pd(lanes, low[b]);
    _mm256_storeu_pd(lanes + 4, high[b]);
    sums[b] = ordered_sum(lanes);
  }
}

__attribute__((target("avx512f,avx512dq"))) void sum_four_blocks_avx512(const float* x, double (&sums)[4]) {
  __m512d total[4];
  for (auto& t : total) t = _mm512_setzero_pd();
  for (std::int64_t i = 0; i < kNormBlock; i += 8) {
    for (int b = 0; b < 4; ++b) {
      const __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + b * kNormBlock + i));
      total[b] = _mm512_fmadd_pd(a, a, total[b]);
    }
  }
  for (int b = 0; b < 4; ++b) {
    double lanes[8];
    _mm512_storeu_pd(lanes, total[b]);
    sums[b] = ordered_sum(lanes);
  }
}

}  // namespace

namespace cpu {

void add_squared_norm(const Context& ctx, const float* x, std::int64_t n, NormAccumulator& accumulator) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? sum_four_blocks_avx512 : sum_four_blocks_avx2;
  std::mutex lock;
  parallel_shares(threads_for_bytes(ctx.threads, 4 * n), n, kNormBlock, [&](std::int64_t begin, std::int64_t end, int) {
    NormAccumulator own;
    std::int64_t i = begin;
    for (; i + 4 * kNormBlock <= end; i += 4 * kNormBlock) {
      double sums[4];
      kernel(x + i, sums);
      for (const double sum : sums) own.add(sum);
    }
    reference::add_squared_norm(x + i, end - i, own);
    const std::scoped_lock hold(lock);
    accumulator.merge(own);  // integers: the order doesn't matter
  });
}

}  // namespace cpu
}  // namespace sluice::ops
