#include <algorithm>

#include "base/rng.hpp"
#include "ops/bodies.hpp"
#include "ops/parallel.hpp"

namespace sluice::ops::cpu {

void fill(const Context& ctx, float* x, std::int64_t n, float value) {
  parallel_shares(threads_for_bytes(ctx.threads, 4 * n), n, 16,
                  [=](std::int64_t begin, std::int64_t end, int) { std::fill(x + begin, x + end, value); });
}

// The numbers must be those of normal_at on every machine, so only pairs and threads make it fast.
void fill_normal(const Context& ctx, float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index) {
  parallel_shares(n < 4096 ? 1 : ctx.threads, n, 16, [=](std::int64_t begin, std::int64_t end, int) {
    std::int64_t i = begin;
    const auto index = [=](std::int64_t at) { return first_index + static_cast<std::uint64_t>(at); };
    if (i < end && index(i) % 2 != 0) {
      x[i] = std * normal_at(key, index(i));
      ++i;
    }
    for (; i + 2 <= end; i += 2) {
      const std::array<float, 2> pair = normal_pair_at(key, index(i) / 2);
      x[i] = std * pair[0];
      x[i + 1] = std * pair[1];
    }
    if (i < end) x[i] = std * normal_at(key, index(i));
  });
}

}  // namespace sluice::ops::cpu
