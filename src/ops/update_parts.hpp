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

/// kernel(args, factors, begin, end) over all elements on the context's threads, each moving `element_bytes`, and the rounded copy
/// where there is one.
template <typename Args, typename Factors, typename Kernel>
void run_update(const Context& ctx, const Args& args, const Factors& factors, std::int64_t element_bytes, Kernel kernel) {
  parallel_shares(threads_for_bytes(ctx.threads, element_bytes * args.n), args.n, kNormBlock,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    if (args.copy == nullptr) return kernel(args, factors, begin, end);
                    // In pieces that are still in the first cache when they are rounded.
                    constexpr std::int64_t kPiece = 4 * kNormBlock;
                    for (std::int64_t at = begin; at < end; at += kPiece) {
                      const std::int64_t next = std::min(end, at + kPiece);
                      kernel(args, factors, at, next);
                      narrow({ctx.backend, ctx.isa, 1}, args.param + at, next - at, args.copy_dtype, args.copy + at);
                    }
                  });
}

}  // namespace cpu
}  // namespace sluice::ops
