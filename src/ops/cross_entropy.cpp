#include "ops/cross_entropy.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

double cross_entropy(const Context& ctx, float* logits, std::int64_t n, std::int64_t v, std::int64_t ld, const std::int32_t* targets,
                     float scale, bool gradient) {
  SLUICE_CHECK(n >= 0 && v >= 1 && ld >= v, "cross_entropy of [", n, ", ", v, "] with stride ", ld);
  SLUICE_CHECK(n == 0 || (logits != nullptr && targets != nullptr), "cross_entropy without logits or targets");
  for (std::int64_t row = 0; row < n; ++row) {
    SLUICE_CHECK(targets[row] == kIgnoredTarget || (targets[row] >= 0 && targets[row] < v), "cross_entropy's target ", targets[row],
                 " in row ", row, " is outside 0..", v - 1);
  }
  return wants_reference(ctx) ? reference::cross_entropy(logits, n, v, ld, targets, scale, gradient)
                              : cpu::cross_entropy(ctx, logits, n, v, ld, targets, scale, gradient);
}

}  // namespace sluice::ops
