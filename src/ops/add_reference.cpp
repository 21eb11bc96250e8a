#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void add(const float* x, std::int64_t n, float* sum) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = sum[i] + x[i];
}

}  // namespace sluice::ops::reference
