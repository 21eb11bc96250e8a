#include <algorithm>

#include "base/rng.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void fill(float* x, std::int64_t n, float value) {
  std::fill(x, x + n, value);
}

void fill_normal(float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = std * normal_at(key, first_index + static_cast<std::uint64_t>(i));
}

}  // namespace sluice::ops::reference
