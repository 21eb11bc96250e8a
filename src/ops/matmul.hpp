#pragma once
// Matrix product, the only GEMM in the project. On cpu it is oneDNN's.

#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// C[M,N] = op(A)[M,K] op(B)[K,N] (+ C if accumulate) (+ bias[N] on every row if not null), all f32 row-major.
/// op is the transpose where the flag says so: A is then stored [K,M], B stored [N,K]. Leading dimensions in elements.
/// `gelu_out` (may be null, stride ld_c): gelu_tanh(C), with C itself also stored.
struct MatmulArgs {
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t ld_a = 0;
  bool transpose_a = false;
  const float* b = nullptr;
  std::int64_t ld_b = 0;
  bool transpose_b = false;
  float* c = nullptr;
  std::int64_t ld_c = 0;
  bool accumulate = false;
  const float* bias = nullptr;
  float* gelu_out = nullptr;
};
/// Order   runs on the calling thread and `ctx.threads - 1` more, returns when done.
/// Fails   LogicError on null pointers, non-positive sizes, too small leading dimensions, C overlapping A or B.
void matmul(const Context& ctx, const MatmulArgs& args);

/// db[n] = (accumulate ? db[n] : 0) + sum over rows of dy[M,N]; sums in f32 in an order that depends on M, N and threads only.
void column_sum(const Context& ctx, const float* dy, std::int64_t m, std::int64_t n, std::int64_t ld, float* db, bool accumulate);

}  // namespace sluice::ops
