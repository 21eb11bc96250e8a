#include <algorithm>

#include "base/rng.hpp"
#include "ops/bodies.hpp"
#include "ops/parallel.hpp"

namespace sluice::ops::cpu {

void fill(const Context& ctx, float* x, std::int64_t n, float value) {
  parallel_shares(threads_for_bytes(ctx.threads, 4 * n), n, 16,
                  [=](std::int64_t begin, std::int64_t end, int) { std::fill(x + begin, x + end, value); });
}

// The numbers must be those of normal_at on every machine, so only the threads make it fast.
void fill_normal(const Context& ctx, float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index) {
  parallel_shares(n < 4096 ? 1 : ctx.threads, n, 16, [=](std::int64_t begin, std::int64_t end, int) {
    reference::fill_normal(x + begin, end - begin, std, key, first_index + static_cast<std::uint64_t>(begin));
  });
}

}  // namespace sluice::ops::cpu
