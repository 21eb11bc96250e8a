#include "ops/fill.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void fill(const Context& ctx, float* x, std::int64_t n, float value) {
  SLUICE_CHECK(n >= 0 && (n == 0 || x != nullptr), "fill of ", n, " elements");
  return wants_reference(ctx) ? reference::fill(x, n, value) : cpu::fill(ctx, x, n, value);
}

void fill_normal(const Context& ctx, float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index) {
  SLUICE_CHECK(n >= 0 && (n == 0 || x != nullptr), "fill_normal of ", n, " elements");
  SLUICE_CHECK(std >= 0, "a standard deviation of ", std);
  return wants_reference(ctx) ? reference::fill_normal(x, n, std, key, first_index) : cpu::fill_normal(ctx, x, n, std, key, first_index);
}

}  // namespace sluice::ops
