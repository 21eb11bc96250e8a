#include "comm/rank_sum.hpp"

#include <algorithm>
#include <cstring>

#include "device/cpu/cpu_device.hpp"

// Before a loop: out may be exactly one of the vectors, which carries nothing from one i to the next.
#if defined(__clang__)
#define SLUICE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define SLUICE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace sluice::comm {
namespace {

constexpr std::int64_t kTile = 4096;  // floats; 16 KiB of partial sums stay in the first-level cache

using SumFunction = void (*)(const float* const*, int, float*, std::int64_t, bool);

[[gnu::always_inline]] inline void add_two(const float* a, const float* b, float* out, std::int64_t n, bool accumulate) {
  if (accumulate) {
    SLUICE_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) out[i] = out[i] + (a[i] + b[i]);
  } else {
    SLUICE_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
  }
}

[[gnu::always_inline]] inline void sum_body(const float* const* vectors, int count, float* out, std::int64_t n, bool accumulate) {
  if (count == 1) {
    if (!accumulate) {
      if (out != vectors[0]) std::memcpy(out, vectors[0], static_cast<std::size_t>(n) * sizeof(float));
      return;
    }
    const float* a = vectors[0];
    SLUICE_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) out[i] = out[i] + a[i];
    return;
  }
  if (count == 2) {
    add_two(vectors[0], vectors[1], out, n, accumulate);
    return;
  }
  alignas(64) float partial[kTile];
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t length = std::min(kTile, n - begin);
    add_two(vectors[0] + begin, vectors[1] + begin, partial, length, false);
    for (int r = 2; r < count - 1; ++r) {
      const float* next = vectors[r] + begin;
      SLUICE_INDEPENDENT
      for (std::int64_t i = 0; i < length; ++i) partial[i] = partial[i] + next[i];
    }
    add_two(partial, vectors[count - 1] + begin, out + begin, length, accumulate);
  }
}

void sum_baseline(const float* const* vectors, int count, float* out, std::int64_t n, bool accumulate) {
  sum_body(vectors, count, out, n, accumulate);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void sum_avx2(const float* const* vectors, int count, float* out, std::int64_t n, bool accumulate) {
  sum_body(vectors, count, out, n, accumulate);
}

__attribute__((target("avx512f"))) void sum_avx512(const float* const* vectors, int count, float* out, std::int64_t n, bool accumulate) {
  sum_body(vectors, count, out, n, accumulate);
}
#endif

SumFunction choose_sum() {
#if defined(__x86_64__)
  switch (device::detect_isa()) {
    case device::Isa::kAvx512:
      return sum_avx512;
    case device::Isa::kAvx2:
      return sum_avx2;
    case device::Isa::kBaseline:
      break;
  }
#endif
  return sum_baseline;
}

}  // namespace

void sum_in_rank_order(const float* const* vectors, int count, float* out, std::int64_t n, bool accumulate) {
  static const SumFunction kSum = choose_sum();
  kSum(vectors, count, out, n, accumulate);
}

}  // namespace sluice::comm
