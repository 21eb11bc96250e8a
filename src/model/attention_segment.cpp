#include <algorithm>
#include <optional>

#include "base/check.hpp"
#include "model/pieces.hpp"
#include "model/segments.hpp"
#include "ops/attention.hpp"
#include "ops/convert.hpp"
#include "ops/rope.hpp"

namespace sluice::model {
namespace {

class AttentionSegment final : public NamedSegment {
 public:
  AttentionSegment(AttentionOptions options, const ModuleFactory& factory) : AttentionSegment(std::move(options), factory, ParamList()) {}

  bool has_phase(Phase phase) const override { return phase == Phase::kForward || phase == Phase::kRecompute || phase == Phase::kBackward; }

  std::int64_t saved_bytes(const Shape& shape) const override { return Saved(*this, shape).total; }

  std::int64_t saved_exact_bytes(const Shape& shape) const override {
    const Saved saved(*this, shape);
    return saved.total - saved.lse;
  }

  std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const override {
    if (!has_phase(phase)) return 0;
    return phase == Phase::kBackward ? BackwardScratch(*this, shape, threads).total : ForwardScratch(*this, phase, shape, threads).total;
  }

  Work work(Phase phase, const Shape& shape) const override {
    if (!has_phase(phase)) return {};
    const std::int64_t n = shape.tokens();
    const double tokens = static_cast<double>(n), activation = tokens * static_cast<double>(hidden_);
    const double core = tokens * static_cast<double>(heads_ * head_dim_), lse = tokens * static_cast<double>(heads_);
    const double qkv = tokens * static_cast<double>(width()), turned = tokens * static_cast<double>(turned_width());
    const double pair_floats = core * keys_of_query(shape.sequence);
    const double turn = (is_turned() ? 2 * turned : 0) + (query_norm_ ? 2 * turned : 0);  // each pass reads and writes queries and keys
    Work recompute = norm_.forward_work(n);
    for (const Projection& each : qkv_) recompute = recompute + each.forward_work(n);
    recompute = recompute + traffic(turn) + Work{4 * pair_floats, 0} + traffic(qkv + core + lse);  // q k^T, p v; qkv in, out and lse out
    if (phase == Phase::kRecompute) return recompute;
    if (phase == Phase::kForward) return recompute + out_.forward_work(n) + traffic(3 * activation);  // the residual
    const double dropout = residual_dropout_ > 0 ? 2 * activation : 0;
    // With norms of queries and keys: turned anew, and their gradients (two read, one written).
    const double turn_back = (is_turned() ? 2 * turned : 0) + (query_norm_ ? turn + 3 * turned : 0);
    // Five products of the core: q k^T again, dp, dv, dq, dk. It reads qkv, out, lse, dout and writes dqkv.
    Work backward = out_.backward_work(n) + Work{10 * pair_floats, 0} + traffic(2 * qkv + 2 * core + lse + dropout + turn_back) +
                    norm_.forward_work(n) + norm_.backward_work(n) + traffic(activation);  // the residual's gradient, added to
    for (const Projection& each : qkv_) backward = backward + each.backward_work(n);
    return backward;
  }

  void run(Phase phase, const SegmentCall& call) const override {
    check_call(phase, call, phase == Phase::kBackward);
    SLUICE_CHECK(call.x != nullptr && call.saved != nullptr && call.workspace != nullptr, name(), " ", name_of(phase));
    if (phase == Phase::kBackward) {
      backward(call);
    } else {
      forward(phase, call);
    }
  }

 private:
  AttentionSegment(AttentionOptions options, const ModuleFactory& factory, ParamList params)
      : NamedSegment(SegmentKind::kAttention, options.layer),
        hidden_(options.hidden),
        heads_(factory.local_heads(options.heads)),
        kv_heads_(factory.local_heads(options.kv_heads)),
        head_dim_(options.head_dim),
        window_(options.window),
        attention_dropout_(options.attention_dropout),
        residual_dropout_(options.residual_dropout),
        inverse_frequencies_(std::move(options.inverse_frequencies)),
        norm_(options.norm, options.hidden, params),
        qkv_(make_qkv(options, factory, params)),
        query_norm_(make_head_norm(options.query_norm, heads_, head_dim_, params)),
        key_norm_(make_head_norm(options.key_norm, kv_heads_, head_dim_, params)),
        out_(options.out, LinearRole::kRow, factory, params) {
    set_params(params);
    std::int64_t columns = 0;
    for (const Projection& each : qkv_) columns += each.out();
    SLUICE_CHECK(columns == width(), name(), ": qkv ", columns, ", ", heads_, " + 2 x ", kv_heads_, " heads of ", head_dim_);
    SLUICE_CHECK(out_.in() == heads_ * head_dim_, name(), ": out ", out_.in(), ", ", heads_, " heads of ", head_dim_);
    SLUICE_CHECK(query_norm_.has_value() == key_norm_.has_value(), name());
    SLUICE_CHECK(!is_turned() || static_cast<std::int64_t>(inverse_frequencies_.size()) * 2 == head_dim_, name());
  }

  static std::vector<Projection> make_qkv(const AttentionOptions& options, const ModuleFactory& factory, ParamList& params) {
    std::vector<Projection> all;
    for (const LinearOptions& each : options.qkv) all.emplace_back(each, LinearRole::kColumn, factory, params);
    return all;
  }
  static std::optional<HeadNorm> make_head_norm(const NormOptions& options, std::int64_t heads, std::int64_t head_dim, ParamList& params) {
    if (options.gain < 0) return std::nullopt;
    return HeadNorm(options, heads, head_dim, params);
  }

  /// Floats of a token in qkv, and in the part of it that is turned.
  std::int64_t width() const { return turned_width() + kv_heads_ * head_dim_; }
  std::int64_t turned_width() const { return (heads_ + kv_heads_) * head_dim_; }
  bool is_turned() const { return !inverse_frequencies_.empty(); }

  struct Saved {
    Saved(const AttentionSegment& s, const Shape& shape) {
      Pieces pieces;
      qkv = pieces.floats(shape.tokens() * s.width());
      out = pieces.floats(shape.tokens() * s.out_.in());
      lse = pieces.floats(shape.tokens() * s.heads_);
      total = pieces.total();
    }
    std::int64_t qkv, out, lse, total;
  };

  /// Queries and keys normed and turned, at the stride of qkv, with the statistics of their norms. Nothing without such norms.
  struct Turned {
    Turned(const AttentionSegment& s, const Shape& shape, Pieces& pieces) {
      const std::int64_t n = shape.tokens();
      vectors = pieces.floats(s.query_norm_ ? n * s.width() : 0);
      query_rstd = s.query_norm_ ? s.query_norm_->statistics(pieces, n) : 0;
      key_rstd = s.key_norm_ ? s.key_norm_->statistics(pieces, n) : 0;
    }
    std::int64_t vectors, query_rstd, key_rstd;
  };

  // Forward norms x into y, which is free until the last product. The norm's pieces are dead when queries are turned.
  struct ForwardScratch {
    ForwardScratch(const AttentionSegment& s, Phase phase, const Shape& shape, int threads)
        : statistics(s.norm_.book(norm, shape.tokens())), turned(s, shape, attention) {
      normed = norm.floats(phase == Phase::kRecompute ? shape.tokens() * s.hidden_ : 0);
      core = attention.bytes(ops::attention_workspace_bytes(s.core_shape(shape), threads));
      total = std::max(norm.total(), attention.total());
    }
    Pieces norm, attention;
    Norm::Statistics statistics;
    Turned turned;
    std::int64_t normed, core, total;
  };

  // `wide` holds the masked d until dqkv is written over it; `narrow` dout, then the normed x, then its gradient; `op` what the
  // core and then the norms need.
  struct BackwardScratch {
    BackwardScratch(const AttentionSegment& s, const Shape& shape, int threads)
        : wide(pieces.floats(shape.tokens() * std::max(s.hidden_, s.width()))),
          narrow(pieces.floats(shape.tokens() * std::max(s.hidden_, s.out_.in()))),
          statistics(s.norm_.book(pieces, shape.tokens())),
          turned(s, shape, pieces) {
      std::int64_t most = std::max(ops::attention_workspace_bytes(s.core_shape(shape), threads), s.norm_.workspace_bytes(threads));
      if (s.query_norm_) most = std::max(most, s.query_norm_->workspace_bytes(threads));
      op = pieces.bytes(most);
      total = pieces.total();
    }
    Pieces pieces;
    std::int64_t wide, narrow;
    Norm::Statistics statistics;
    Turned turned;
    std::int64_t op, total;
  };

  ops::AttentionShape core_shape(const Shape& shape) const { return {shape.rows, shape.sequence, heads_, head_dim_, kv_heads_, window_}; }

  /// Of a row of one document on average: T (T + 1) / 2 pairs of query and key, less those outside the window. What borders of documents
  /// save is not known before the run.
  double keys_of_query(std::int64_t sequence) const {
    const double all = static_cast<double>(sequence + 1) / 2;
    if (window_ == 0 || window_ >= sequence) return all;
    const double outside = static_cast<double>(sequence - window_);
    return all - outside * (outside + 1) / 2 / static_cast<double>(sequence);
  }

  ops::DropoutSite attention_site(const SegmentCall& call) const {
    return dropout_site(attention_dropout_, "attention", layer(), call.step);
  }
  ops::DropoutSite residual_site(const SegmentCall& call) const {
    return dropout_site(residual_dropout_, "attention_residual", layer(), call.step);
  }

  /// Queries and keys in place, forth or back.
  void rotate(const SegmentCall& call, float* qkv, bool backward) const {
    if (!is_turned()) return;
    ops::rotate(*call.ops,
                {.rows = call.shape.rows,
                 .tokens = call.shape.sequence,
                 .heads = heads_ + kv_heads_,
                 .head_dim = head_dim_,
                 .ld = width(),
                 .first_position = row_positions(call).first_position,
                 .document_starts = call.document_starts},
                inverse_frequencies_.data(), backward, qkv);
  }

  /// From what the layers gave to what the attention takes: from qkv into the workspace.
  const float* norm_and_rotate(const SegmentCall& call, const float* qkv, const Turned& at) const {
    const std::int64_t n = call.shape.tokens(), keys = heads_ * head_dim_;
    float* const turned = floats_at(call.workspace, at.vectors);
    query_norm_->forward(call, n, width(), qkv, turned, floats_at(call.workspace, at.query_rstd));
    key_norm_->forward(call, n, width(), qkv + keys, turned + keys, floats_at(call.workspace, at.key_rstd));
    rotate(call, turned, false);
    return turned;
  }

  void forward(Phase phase, const SegmentCall& call) const {
    const bool recompute = phase == Phase::kRecompute;
    SLUICE_CHECK(recompute || call.y != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const std::int64_t n = call.shape.tokens();
    const Saved saved(*this, call.shape);
    const ForwardScratch scratch(*this, phase, call.shape, ctx.threads);
    float* const qkv = floats_at(call.saved, saved.qkv);
    float* const out = floats_at(call.saved, saved.out);
    float* const normed = recompute ? floats_at(call.workspace, scratch.normed) : call.y;

    norm_.forward(call, n, call.x, normed, scratch.statistics);
    float* column = qkv;
    for (const Projection& each : qkv_) {
      each.forward(call, normed, column, width(), nullptr);
      column += each.out();
    }
    if (!query_norm_) rotate(call, qkv, false);
    // Backward computes the scores again from what is stored; output and log-sum-exp must be of the same numbers.
    ops::round_to(ctx, call.storage, qkv, n * width());
    const float* const turned = query_norm_ ? norm_and_rotate(call, qkv, scratch.turned) : qkv;
    ops::attention_forward(ctx, core_shape(call.shape), turned, qkv + turned_width(), attention_site(call), row_positions(call), out,
                           floats_at(call.saved, saved.lse), call.workspace + scratch.core);
    if (recompute) return;
    out_.forward(call, out, call.y, hidden_, nullptr);
    ops::dropout_add(ctx, residual_site(call), row_positions(call), hidden_, call.y, call.x, call.y);
  }

  void backward(const SegmentCall& call) const {
    SLUICE_CHECK(call.d != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const std::int64_t n = call.shape.tokens(), keys = heads_ * head_dim_;
    const Saved saved(*this, call.shape);
    const BackwardScratch scratch(*this, call.shape, ctx.threads);
    float* const qkv = floats_at(call.saved, saved.qkv);
    const float* const out = floats_at(call.saved, saved.out);
    float* const wide = floats_at(call.workspace, scratch.wide);
    float* const narrow = floats_at(call.workspace, scratch.narrow);
    std::byte* const op = call.workspace + scratch.op;

    const ops::DropoutSite residual = residual_site(call);
    const float* branch = call.d;  // d loss / d the last product
    if (residual.rate > 0) {
      ops::dropout_backward(ctx, residual, row_positions(call), hidden_, call.d, wide);
      branch = wide;
    }
    out_.backward_weight(call, branch, hidden_, out);
    out_.backward_input(call, branch, hidden_, narrow, false);
    const float* const turned = query_norm_ ? norm_and_rotate(call, qkv, scratch.turned) : qkv;  // without norms they were saved so
    ops::attention_backward(ctx, core_shape(call.shape), turned, qkv + turned_width(), out, floats_at(call.saved, saved.lse), narrow,
                            attention_site(call), row_positions(call), wide, op);
    rotate(call, wide, true);
    if (query_norm_) {
      query_norm_->backward(call, n, width(), qkv, floats_at(call.workspace, scratch.turned.query_rstd), wide, op);
      key_norm_->backward(call, n, width(), qkv + keys, floats_at(call.workspace, scratch.turned.key_rstd), wide + keys, op);
    }
    norm_.forward(call, n, call.x, narrow, scratch.statistics);
    const float* column = wide;
    for (const Projection& each : qkv_) {
      each.backward_weight(call, column, width(), narrow);
      column += each.out();
    }
    column = wide;  // the normed x is read no more: its gradient goes over it
    for (const Projection& each : qkv_) {
      each.backward_input(call, column, width(), narrow, column != wide);
      column += each.out();
    }
    norm_.backward(call, n, call.x, narrow, call.d, true, false, scratch.statistics, op);
  }

  std::int64_t hidden_, heads_, kv_heads_, head_dim_, window_;
  double attention_dropout_, residual_dropout_;
  std::vector<float> inverse_frequencies_;
  Norm norm_;
  std::vector<Projection> qkv_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  Projection out_;
};

}  // namespace

std::unique_ptr<Segment> make_attention_segment(AttentionOptions options, const ModuleFactory& factory) {
  return std::make_unique<AttentionSegment>(std::move(options), factory);
}

}  // namespace sluice::model
