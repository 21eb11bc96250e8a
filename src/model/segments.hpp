#pragma once
// The segments that models are built of. Indices of parameters in the options are into Model::params; a segment's own order of them is that
// of first use.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.hpp"
#include "model/modules.hpp"
#include "model/parts.hpp"

namespace sluice::model {

/// y = dropout(table[ids] + positions), positions [row first_position_row + position of their table] only where there is such a table.
/// padding (-1: none): the token whose row has no gradient from here. Saves nothing.
struct EmbeddingOptions {
  std::int64_t vocab, context, hidden;
  double dropout;
  std::int64_t padding;
  int table;      // [vocab, C]
  int positions;  // [position_rows, C]; -1: none
  std::int64_t position_rows, first_position_row;
};
std::unique_ptr<Segment> make_embedding_segment(const EmbeddingOptions& options);

/// y = x + dropout(out(attention(turn(qkv(norm(x)))))), where qkv is one linear layer or three that write side by side (queries, then keys,
/// then values), and `turn` norms each head's query and key (where query_norm is given) and turns them by their positions (where
/// inverse_frequencies are).
/// Saves qkv, the attention's output and, at the end, the logsumexp: qkv as the attention takes it, but with norms of queries and keys as
/// the layers gave it, since a norm's gradient needs its input; turning is done again in backward then. The normed x is computed again in
/// backward from x: one pass over [tokens, C] (8 C bytes a token beside 24 C^2 flops) for a quarter less saved memory; its statistics come
/// with it.
struct AttentionOptions {
  std::int64_t layer = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;  // as ops::AttentionShape
  double attention_dropout = 0, residual_dropout = 0;
  std::vector<float> inverse_frequencies;  // [head_dim / 2], model/rotary.hpp; empty: not turned
  NormOptions norm;
  std::vector<LinearOptions> qkv;
  NormOptions query_norm, key_norm;
  LinearOptions out;
};
std::unique_ptr<Segment> make_attention_segment(AttentionOptions options, const ModuleFactory& factory);

/// y = x + dropout(down(activation(up(norm(x))))), with a gate for silu(gate) * up. Saves the outputs of up and gate; the normed x and the
/// activation are computed again in backward: passes without a product, for less than half of the memory that saving them takes.
struct MlpOptions {
  std::int64_t layer = 0, hidden = 0, ffn = 0;
  Activation activation = Activation::kGelu;
  double residual_dropout = 0;
  NormOptions norm;
  LinearOptions gate, up, down;
};
std::unique_ptr<Segment> make_mlp_segment(const MlpOptions& options, const ModuleFactory& factory);

/// Cross-entropy of norm(x) W^T in row tiles, so that [tokens, vocab] never exists. W [vocab, C] (the token table where the head is tied).
/// Gradients come with the loss (kForwardBackward).
struct HeadOptions {
  std::int64_t vocab = 0, hidden = 0;
  NormOptions norm;
  int weight = -1;
};
std::unique_ptr<Segment> make_head_segment(const HeadOptions& options);

/// Rows of one tile of the head: logits of at most 32 MiB, but at least 64 rows, since narrower products are slow and each
/// tile passes once over the gradient of W; a multiple of 32 unless that is all `tokens`.
std::int64_t head_tile_rows(std::int64_t tokens, std::int64_t vocab);

/// What all segments share: who they are and whether a call gives them what they need.
class NamedSegment : public Segment {
 public:
  NamedSegment(SegmentKind kind, std::int64_t layer) : kind_(kind), layer_(layer) {}
  SegmentKind kind() const final { return kind_; }
  std::int64_t layer() const final { return layer_; }
  std::string name() const final;
  std::span<const int> params() const final { return params_; }

 protected:
  /// Once, when the segment has made its parts.
  void set_params(ParamList& params) { params_ = params.take(); }
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

/// The rows of a call as dropout and attention see them.
ops::RowPositions row_positions(const SegmentCall& call);

/// Work of pieces that segments share; f32, elementwise flops not counted (memory bounds those passes).
Work operator+(const Work& a, const Work& b);
/// [m, k] [k, n]: 2 m n k flops, each operand read and the product written once.
Work product_work(std::int64_t m, std::int64_t n, std::int64_t k);
/// Reads and writes of `floats` f32.
Work traffic(double floats);

}  // namespace sluice::model
