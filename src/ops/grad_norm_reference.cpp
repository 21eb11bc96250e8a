#include <algorithm>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void add_squared_norm(const float* x, std::int64_t n, NormAccumulator& accumulator) {
  for (std::int64_t begin = 0; begin < n; begin += kNormBlock) {
    const std::int64_t count = std::min(kNormBlock, n - begin);
    double lanes[8] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      const double v = x[begin + i];
      lanes[i % 8] += v * v;  // exact: 48 bits at most
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    accumulator.add(sum);
  }
}

}  // namespace sluice::ops::reference
