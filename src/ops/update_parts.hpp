#pragma once
// What the optimizer ops have in common. Not for callers outside ops/.

#include <algorithm>

#include "base/check.hpp"
#include "ops/bodies.hpp"
#include "ops/parallel.hpp"

namespace sluice::ops {

/// What every rule asks of its arguments; `is_complete`: none of its arrays is missing.
template <typename Args>
void check_update(const char* name, const Args& args, bool is_complete) {
  SLUICE_CHECK(args.n >= 0, name, " of ", args.n, " elements");
  SLUICE_CHECK(args.n == 0 || (args.param != nullptr && args.grad != nullptr && is_complete), name, " without one of its arrays");
  SLUICE_CHECK(args.copy == nullptr || args.copy_dtype == DType::kBF16 || args.copy_dtype == DType::kF16, name, "'s copy in ",
               name_of(args.copy_dtype));
}

namespace cpu {

/// kernel(args, factors, begin, end) over all elements on the context's threads, each element moving `element_bytes`.
template <typename Args, typename Factors, typename Kernel>
void run_update(const Context& ctx, const Args& args, const Factors& factors, std::int64_t element_bytes, Kernel kernel) {
  parallel_shares(threads_for_bytes(ctx.threads, element_bytes * args.n), args.n, kNormBlock,
                  [&](std::int64_t begin, std::int64_t end, int) { kernel(args, factors, begin, end); });
}

}  // namespace cpu
}  // namespace sluice::ops
