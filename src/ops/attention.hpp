#pragma once
// Causal self-attention that never stores T x T.
// Source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4 (online softmax; backward recomputes P from the logsumexp).

#include <cstdint>

#include "ops/context.hpp"
#include "ops/dropout.hpp"

namespace sluice::ops {

/// Shapes  qk: [rows * tokens, (heads + kv_heads) * head_dim], q then k, heads side by side; v: [rows * tokens, kv_heads * head_dim];
///         tokens of both are width() floats apart, as in one buffer with q, k and v side by side, which both may point into;
///         out: [rows * tokens, heads * head_dim]; lse (logsumexp of scaled scores): [rows, heads, tokens]. All f32.
/// groups  Head h attends with the keys and values of head h / (heads / kv_heads) (Ainslie et al. 2023, "GQA").
/// scale   1 / sqrt(head_dim).
/// Causal: token t sees the tokens up to itself that are of its document (RowPositions::document_starts) and, with a window, the last
///         `window` of them (Beltagy et al. 2020, "Longformer"; Jiang et al. 2023, "Mistral 7B"). What lies before is passed over in tiles.
/// dropout On the probabilities after the softmax: keep-mask of (sample, head h, query q, key k): word k % 4 of
///         philox({k / 4, q, sample low 32 bits, h << 16 | sample bits 32-47}, site.key), as in dropout.hpp.
struct AttentionShape {
  std::int64_t rows = 0, tokens = 0, heads = 0, head_dim = 0;
  std::int64_t kv_heads = heads;  // a divisor of heads
  std::int64_t window = 0;        // tokens that a token sees, itself included; 0: all up to itself
  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};
void attention_forward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site,
                       const RowPositions& positions, float* out, float* lse, void* workspace);
/// dqkv [rows * tokens, width()] (dq, dk and dv side by side) is overwritten; must not overlap qk or v. Bits depend on the shape and the
/// documents only, not on threads.
void attention_backward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const float* out,
                        const float* lse, const float* dout, const DropoutSite& site, const RowPositions& positions, float* dqkv,
                        void* workspace);
/// Bytes that either call needs: for each thread a few tiles, and one head's keys, values and their gradients (16 B x tokens x
/// head_dim, rounded up to 16).
std::int64_t attention_workspace_bytes(const AttentionShape& shape, int threads);

}  // namespace sluice::ops
