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

// The squares are exact in fp64, so fused or not the bits are the reference's. One block after the other: memory's prefetchers follow one
// stream better than several (20 against 7 GB/s on a Genoa core), and the chain of sums is faster than memory.
__attribute__((target("avx2,fma"))) double sum_block_avx2(const float* x) {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  for (std::int64_t i = 0; i < kNormBlock; i += 8) {
    const __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
    const __m256d c = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(c, c, high);
  }
  double lanes[8];
  _mm256_storeu_pd(lanes, low);
  _mm256_storeu_pd(lanes + 4, high);
  return ordered_sum(lanes);
}

__attribute__((target("avx512f,avx512dq"))) double sum_block_avx512(const float* x) {
  __m512d total = _mm512_setzero_pd();
  for (std::int64_t i = 0; i < kNormBlock; i += 8) {
    const __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
    total = _mm512_fmadd_pd(a, a, total);
  }
  double lanes[8];
  _mm512_storeu_pd(lanes, total);
  return ordered_sum(lanes);
}

}  // namespace

namespace cpu {

void add_squared_norm(const Context& ctx, const float* x, std::int64_t n, NormAccumulator& accumulator) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? sum_block_avx512 : sum_block_avx2;
  std::mutex lock;
  parallel_shares(threads_for_bytes(ctx.threads, 4 * n), n, kNormBlock, [&](std::int64_t begin, std::int64_t end, int) {
    NormAccumulator own;
    std::int64_t i = begin;
    for (; i + kNormBlock <= end; i += kNormBlock) own.add(kernel(x + i));
    reference::add_squared_norm(x + i, end - i, own);
    const std::scoped_lock hold(lock);
    accumulator.merge(own);  // integers: the order doesn't matter
  });
}

}  // namespace cpu
}  // namespace sluice::ops
