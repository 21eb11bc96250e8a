#include <cmath>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void rotate(const RopeShape& shape, const float* inverse_frequencies, bool backward, float* x) {
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t n = 0; n < shape.rows * shape.tokens; ++n) {
    const float position = static_cast<float>(shape.position(n));
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = position * inverse_frequencies[i];
      const double c = std::cos(static_cast<double>(angle)), s = (backward ? -1 : 1) * std::sin(static_cast<double>(angle));
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        float* pair = x + n * shape.ld + head * shape.head_dim + i;
        const double a = pair[0], b = pair[half];
        pair[0] = static_cast<float>(a * c - b * s);
        pair[half] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

}  // namespace sluice::ops::reference
