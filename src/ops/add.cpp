#include "ops/add.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void add(const Context& ctx, const float* x, std::int64_t n, float* sum) {
  SLUICE_CHECK(n >= 0 && (n == 0 || (x != nullptr && sum != nullptr)), "add of ", n, " elements");
  return wants_reference(ctx) ? reference::add(x, n, sum) : cpu::add(ctx, x, n, sum);
}

}  // namespace sluice::ops
