#include "ops/dropout.hpp"

#include <cmath>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

void check_dropout(const DropoutSite& site, const RowPositions& positions, std::int64_t c) {
  SLUICE_CHECK(site.rate >= 0 && site.rate < 1, "a dropout rate of ", site.rate, " is outside [0, 1)");
  SLUICE_CHECK(positions.rows >= 0 && positions.tokens >= 0 && c >= 1, "dropout over ", positions.rows, " rows of ", positions.tokens,
               " tokens, width ", c);
  if (site.rate > 0 && positions.rows > 0) SLUICE_CHECK(positions.sample_ids != nullptr, "dropout without sample ids");
  SLUICE_CHECK(positions.first_position >= 0 && positions.first_position + positions.tokens <= std::int64_t{1} << 32, "positions from ",
               positions.first_position, " don't fit the counter");
}

}  // namespace

// uniform_from(word) = (word >> 8) 2^-24 >= rate, and both sides times 2^24 are exact.
std::int32_t dropout_threshold(float rate) {
  return static_cast<std::int32_t>(std::ceil(static_cast<double>(rate) * 0x1.0p24));
}

void dropout_add(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* x,
                 const float* residual, float* y) {
  check_dropout(site, positions, c);
  SLUICE_CHECK((x != nullptr && y != nullptr) || positions.rows * positions.tokens == 0, "dropout_add without x or y");
  return wants_reference(ctx) ? reference::dropout_add(site, positions, c, x, residual, y)
                              : cpu::dropout_add(ctx, site, positions, c, x, residual, y);
}

void dropout_backward(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* dy,
                      float* dx) {
  check_dropout(site, positions, c);
  SLUICE_CHECK((dy != nullptr && dx != nullptr) || positions.rows * positions.tokens == 0, "dropout_backward without dy or dx");
  return wants_reference(ctx) ? reference::dropout_backward(site, positions, c, dy, dx)
                              : cpu::dropout_backward(ctx, site, positions, c, dy, dx);
}

}  // namespace sluice::ops
