#include <algorithm>
#include <cmath>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

double cross_entropy(float* logits, std::int64_t n, std::int64_t v, std::int64_t ld, const std::int32_t* targets, float scale,
                     bool gradient) {
  double total = 0;
  for (std::int64_t row = 0; row < n; ++row) {
    float* x = logits + row * ld;
    if (targets[row] == kIgnoredTarget) {
      if (gradient) std::fill(x, x + v, 0.0f);
      continue;
    }
    const double largest = *std::max_element(x, x + v);
    double sum = 0;
    for (std::int64_t j = 0; j < v; ++j) sum += std::exp(x[j] - largest);
    total += std::log(sum) + largest - x[targets[row]];
    if (!gradient) continue;
    for (std::int64_t j = 0; j < v; ++j) {
      const double probability = std::exp(x[j] - largest) / sum;
      x[j] = static_cast<float>((probability - (j == targets[row] ? 1.0 : 0.0)) * scale);
    }
  }
  return total;
}

}  // namespace sluice::ops::reference
