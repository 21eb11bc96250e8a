#pragma once
// The segments that models are built of. Indices in `params` are into Model::params.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.hpp"
#include "model/modules.hpp"

namespace sluice::model {

/// y = dropout(wte[ids] + wpe). params: wte [vocab, C], wpe [context, C]. Saves nothing.
struct EmbeddingOptions {
  std::int64_t vocab, context, hidden;
  double dropout;
  std::vector<int> params;
};
std::unique_ptr<Segment> make_embedding_segment(EmbeddingOptions options);

/// y = x + dropout(proj(attention(qkv(norm(x))))). params: norm gain and bias, qkv weight and bias, proj weight and bias.
/// Saves qkv, the attention's output and logsumexp. The normed x is computed again in backward from x: one pass over
/// [tokens, C] (8 C bytes a token beside 24 C^2 flops) for a quarter less saved memory; mean and rstd come with it.
struct AttentionOptions {
  std::int64_t layer, hidden, heads;
  double norm_eps, attention_dropout, residual_dropout;
  std::vector<int> params;
};
std::unique_ptr<Segment> make_attention_segment(AttentionOptions options, const ModuleFactory& factory);

/// y = x + dropout(fc2(gelu_tanh(fc1(norm(x))))). params: norm gain and bias, fc1 weight and bias, fc2 weight and bias.
/// Saves fc1's output only; the normed x and the GELU are computed again in backward: two passes without a product, for
/// less than half of the memory that saving them takes.
struct MlpOptions {
  std::int64_t layer, hidden, ffn;
  double norm_eps, residual_dropout;
  std::vector<int> params;
};
std::unique_ptr<Segment> make_mlp_segment(MlpOptions options, const ModuleFactory& factory);

/// Cross-entropy of norm(x) W^T in row tiles, so that [tokens, vocab] never exists. params: norm gain and bias, W [vocab, C]
/// (the token table where the head is tied). Gradients come with the loss (kForwardBackward).
struct HeadOptions {
  std::int64_t vocab, hidden;
  double norm_eps;
  std::vector<int> params;
};
std::unique_ptr<Segment> make_head_segment(HeadOptions options);

/// Rows of one tile of the head: logits of at most 32 MiB, but at least 64 rows, since narrower products are slow and each
/// tile passes once over the gradient of W; a multiple of 32 unless that is all `tokens`.
std::int64_t head_tile_rows(std::int64_t tokens, std::int64_t vocab);

/// What all segments share: who they are and whether a call gives them what they need.
class NamedSegment : public Segment {
 public:
  NamedSegment(SegmentKind kind, std::int64_t layer, std::vector<int> params) : kind_(kind), layer_(layer), params_(std::move(params)) {}
  SegmentKind kind() const final { return kind_; }
  std::int64_t layer() const final { return layer_; }
  std::string name() const final;
  std::span<const int> params() const final { return params_; }

 protected:
  /// Throws LogicError unless the phase exists here and the call has a context, a shape, all parameters and, where `grads`,
  /// all gradients with their flags.
  void check_call(Phase phase, const SegmentCall& call, bool grads) const;

 private:
  SegmentKind kind_;
  std::int64_t layer_;
  std::vector<int> params_;
};

/// The mask's stream of one place in one step: a function of seed, site, layer and step alone. Rate 0 outside training.
ops::DropoutSite dropout_site(double rate, std::string_view site, std::int64_t layer, const StepView& step);

/// The rows of a call as dropout sees them.
ops::RowPositions row_positions(const SegmentCall& call);

/// ops::layer_norm_backward with one accumulate flag for the gain and one for the bias.
struct NormBackward {
  const float *x, *gain, *mean, *rstd, *dy;
  std::int64_t n, c;
  float* dx;
  bool dx_accumulate;
  float *dgain, *dbias;
  bool accumulate_gain, accumulate_bias;
  void* workspace;
};
void norm_backward(const ops::Context& ctx, const NormBackward& args);

/// Work of pieces that segments share; f32, elementwise flops not counted (memory bounds those passes).
Work operator+(const Work& a, const Work& b);
Work norm_forward_work(std::int64_t n, std::int64_t c);
Work norm_backward_work(std::int64_t n, std::int64_t c);
/// [n, in] [in, out] with a bias if `bias`: 2 n in out flops, each operand read and the product written once.
Work product_work(std::int64_t m, std::int64_t n, std::int64_t k);
Work linear_forward_work(std::int64_t n, std::int64_t in, std::int64_t out);
Work linear_backward_work(std::int64_t n, std::int64_t in, std::int64_t out);
/// Reads and writes of `floats` f32.
Work traffic(double floats);

}  // namespace sluice::model
