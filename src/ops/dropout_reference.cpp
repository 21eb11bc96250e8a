#include "base/rng.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void dropout_add(const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* x, const float* residual, float* y) {
  const float scale = dropout_scale(site.rate);
  for (std::int64_t b = 0; b < positions.rows; ++b) {
    const std::uint64_t sample = site.rate > 0 ? static_cast<std::uint64_t>(positions.sample_ids[b]) : 0;
    for (std::int64_t t = 0; t < positions.tokens; ++t) {
      const std::int64_t row = (b * positions.tokens + t) * c;
      for (std::int64_t j = 0; j < c; ++j) {
        float value = x[row + j];
        if (site.rate > 0) {
          const Philox4 words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(positions.first_position + t),
                                        static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32 & 0xFFFF)},
                                       site.key);
          value = uniform_from(words[static_cast<std::size_t>(j % 4)]) >= site.rate ? value * scale : 0.0f;
        }
        y[row + j] = residual != nullptr ? residual[row + j] + value : value;
      }
    }
  }
}

void dropout_backward(const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* dy, float* dx) {
  dropout_add(site, positions, c, dy, nullptr, dx);
}

}  // namespace sluice::ops::reference
