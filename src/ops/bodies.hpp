#pragma once
// The leaf bodies behind the ops: `reference` is plain and sums in fp64, `cpu` is fast and wants AVX2 at least. Arguments as in the
// op's public header, already checked. Not for callers outside ops/.

#include <algorithm>

#include "ops/adamw.hpp"
#include "ops/add.hpp"
#include "ops/attention.hpp"
#include "ops/context.hpp"
#include "ops/convert.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/dropout.hpp"
#include "ops/embedding.hpp"
#include "ops/fill.hpp"
#include "ops/gelu.hpp"
#include "ops/grad_norm.hpp"
#include "ops/layer_norm.hpp"
#include "ops/lion.hpp"
#include "ops/matmul.hpp"
#include "ops/relu.hpp"
#include "ops/rms_norm.hpp"
#include "ops/rope.hpp"
#include "ops/sgd.hpp"
#include "ops/silu_gate.hpp"

namespace sluice::ops {

/// Whether the plain body is to run: asked for, or the processor has none of the instruction sets that the fast ones know.
inline bool wants_reference(const Context& ctx) {
  return ctx.backend == Backend::kReference || ctx.isa == device::Isa::kBaseline;
}

/// What the optimizers need per element, rounded to f32 once, so that every body does the same arithmetic.
struct AdamwFactors {
  float decay;           // 1 - lr weight_decay; 1 where that is in the gradient
  float gradient_decay;  // weight_decay; 0 where it is decoupled
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float step_size;        // lr / (1 - beta1^t)
  float root_correction;  // sqrt(1 - beta2^t)
  float eps;
};
AdamwFactors adamw_factors(const AdamwArgs& args);
struct LionFactors {
  float decay;  // 1 - lr weight_decay
  float learning_rate;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
};
LionFactors lion_factors(const LionArgs& args);
struct SgdFactors {
  float gradient_decay;  // weight_decay
  float momentum;        // of the buffer as it was: 0 in the first update
  float gradient_part;   // of the gradient that enters the buffer: 1 - dampening, 1 in the first update
  float look_ahead;      // momentum with Nesterov's rule
  float learning_rate;
};
SgdFactors sgd_factors(const SgdArgs& args);

/// A word is kept iff (word >> 8) >= this, which is uniform_from(word) >= rate in integers.
std::int32_t dropout_threshold(float rate);
inline float dropout_scale(float rate) {
  return 1.0f / (1.0f - rate);
}

/// The first key that query q of row `row` sees.
inline std::int64_t first_key(const AttentionShape& shape, const RowPositions& positions, std::int64_t row, std::int64_t q) {
  const std::int64_t document = positions.document_starts != nullptr ? positions.document_starts[row * shape.tokens + q] : 0;
  return shape.window > 0 ? std::max(document, q - shape.window + 1) : document;
}

namespace reference {
void add(const float* x, std::int64_t n, float* sum);
void adamw(const AdamwArgs& args, const AdamwFactors& factors);
/// The two attention bodies allocate a row of scores and one head's gradients in f64.
void attention_forward(const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site, const RowPositions& positions,
                       float* out, float* lse);
void attention_backward(const AttentionShape& shape, const float* qk, const float* v, const float* out, const float* lse, const float* dout,
                        const DropoutSite& site, const RowPositions& positions, float* dqkv);
double cross_entropy(float* logits, std::int64_t n, std::int64_t v, std::int64_t ld, const std::int32_t* targets, float scale,
                     bool gradient);
void narrow(const float* x, std::int64_t n, DType dtype, std::uint16_t* y);
void widen(const std::uint16_t* x, std::int64_t n, DType dtype, float* y);
void round_to(DType dtype, float* x, std::int64_t n);
void dropout_add(const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* x, const float* residual, float* y);
void dropout_backward(const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* dy, float* dx);
void embedding_forward(const EmbeddedTokens& tokens, const float* tokens_table, const float* positions_table, std::int64_t c, float* y);
void embedding_forward(const EmbeddedTokens& tokens, const std::uint16_t* tokens_table, DType dtype, const float* positions_table,
                       std::int64_t c, float* y);
void embedding_backward(const EmbeddedTokens& tokens, const float* dy, std::int64_t vocab, std::int64_t padding, std::int64_t context,
                        std::int64_t c, float* dtokens_table, bool accumulate_tokens, float* dpositions_table, bool accumulate_positions);
void fill(float* x, std::int64_t n, float value);
void fill_normal(float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index);
void gelu_forward(const float* x, std::int64_t n, float* y);
void gelu_backward(const float* x, const float* dy, std::int64_t n, float* dx);
void add_squared_norm(const float* x, std::int64_t n, NormAccumulator& accumulator);
void layer_norm_forward(const float* x, const float* gain, const float* bias, double eps, std::int64_t n, std::int64_t c, float* y,
                        float* mean, float* rstd);
void layer_norm_backward(const float* x, const float* gain, const float* mean, const float* rstd, const float* dy, std::int64_t n,
                         std::int64_t c, float* dx, bool dx_accumulate, float* dgain, float* dbias, bool accumulate, void* workspace);
void lion(const LionArgs& args, const LionFactors& factors);
void matmul(const MatmulArgs& args);
void relu_forward(const float* x, std::int64_t n, float* y);
void relu_backward(const float* x, const float* dy, std::int64_t n, float* dx);
void rms_norm_forward(const RmsNormShape& shape, const float* x, const float* gain, double eps, float* y, float* rstd);
void rms_norm_backward(const RmsNormShape& shape, const float* x, const float* gain, const float* rstd, const float* dy, float* dx,
                       bool dx_accumulate, float* dgain, bool accumulate, void* workspace);
void rotate(const RopeShape& shape, const float* inverse_frequencies, bool backward, float* x);
void sgd(const SgdArgs& args, const SgdFactors& factors);
void silu_gate_forward(const float* gate, const float* up, std::int64_t n, float* y);
void silu_gate_backward(const float* gate, const float* up, const float* dy, std::int64_t n, float* dgate, float* dup);
void column_sum(const float* dy, std::int64_t m, std::int64_t n, std::int64_t ld, float* db, bool accumulate);
}  // namespace reference

namespace cpu {
void add(const Context& ctx, const float* x, std::int64_t n, float* sum);
void adamw(const Context& ctx, const AdamwArgs& args, const AdamwFactors& factors);
void attention_forward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site,
                       const RowPositions& positions, float* out, float* lse, void* workspace);
void attention_backward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const float* out,
                        const float* lse, const float* dout, const DropoutSite& site, const RowPositions& positions, float* dqkv,
                        void* workspace);
std::int64_t attention_workspace_bytes(const AttentionShape& shape, int threads);
double cross_entropy(const Context& ctx, float* logits, std::int64_t n, std::int64_t v, std::int64_t ld, const std::int32_t* targets,
                     float scale, bool gradient);
void narrow(const Context& ctx, const float* x, std::int64_t n, DType dtype, std::uint16_t* y);
void widen(const Context& ctx, const std::uint16_t* x, std::int64_t n, DType dtype, float* y);
void round_to(const Context& ctx, DType dtype, float* x, std::int64_t n);
void dropout_add(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* x,
                 const float* residual, float* y);
void dropout_backward(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* dy,
                      float* dx);
void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const float* tokens_table, const float* positions_table,
                       std::int64_t c, float* y);
void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const std::uint16_t* tokens_table, DType dtype,
                       const float* positions_table, std::int64_t c, float* y);
void embedding_backward(const Context& ctx, const EmbeddedTokens& tokens, const float* dy, std::int64_t vocab, std::int64_t padding,
                        std::int64_t context, std::int64_t c, float* dtokens_table, bool accumulate_tokens, float* dpositions_table,
                        bool accumulate_positions);
void fill(const Context& ctx, float* x, std::int64_t n, float value);
void fill_normal(const Context& ctx, float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index);
void gelu_forward(const Context& ctx, const float* x, std::int64_t n, float* y);
void gelu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx);
void add_squared_norm(const Context& ctx, const float* x, std::int64_t n, NormAccumulator& accumulator);
void layer_norm_forward(const Context& ctx, const float* x, const float* gain, const float* bias, double eps, std::int64_t n,
                        std::int64_t c, float* y, float* mean, float* rstd);
void layer_norm_backward(const Context& ctx, const float* x, const float* gain, const float* mean, const float* rstd, const float* dy,
                         std::int64_t n, std::int64_t c, float* dx, bool dx_accumulate, float* dgain, float* dbias, bool accumulate,
                         void* workspace);
void lion(const Context& ctx, const LionArgs& args, const LionFactors& factors);
void relu_forward(const Context& ctx, const float* x, std::int64_t n, float* y);
void relu_backward(const Context& ctx, const float* x, const float* dy, std::int64_t n, float* dx);
void rms_norm_forward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, double eps, float* y, float* rstd);
void rms_norm_backward(const Context& ctx, const RmsNormShape& shape, const float* x, const float* gain, const float* rstd, const float* dy,
                       float* dx, bool dx_accumulate, float* dgain, bool accumulate, void* workspace);
void rotate(const Context& ctx, const RopeShape& shape, const float* inverse_frequencies, bool backward, float* x);
void sgd(const Context& ctx, const SgdArgs& args, const SgdFactors& factors);
void silu_gate_forward(const Context& ctx, const float* gate, const float* up, std::int64_t n, float* y);
void silu_gate_backward(const Context& ctx, const float* gate, const float* up, const float* dy, std::int64_t n, float* dgate, float* dup);
/// Any instruction set: oneDNN chooses its own.
void matmul(const Context& ctx, const MatmulArgs& args);
void column_sum(const Context& ctx, const float* dy, std::int64_t m, std::int64_t n, std::int64_t ld, float* db, bool accumulate);
}  // namespace cpu

}  // namespace sluice::ops
