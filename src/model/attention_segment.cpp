#include <algorithm>

#include "base/check.hpp"
#include "model/pieces.hpp"
#include "model/segments.hpp"
#include "ops/attention.hpp"
#include "ops/layer_norm.hpp"

namespace sluice::model {
namespace {

enum Param { kNormGain, kNormBias, kQkvWeight, kQkvBias, kProjWeight, kProjBias, kParams };

class AttentionSegment final : public NamedSegment {
 public:
  AttentionSegment(AttentionOptions options, const ModuleFactory& factory)
      : NamedSegment(SegmentKind::kAttention, options.layer, std::move(options.params)),
        hidden_(options.hidden),
        heads_(factory.local_heads(options.heads)),
        head_dim_(options.hidden / options.heads),
        eps_(options.norm_eps),
        attention_dropout_(options.attention_dropout),
        residual_dropout_(options.residual_dropout),
        qkv_(factory.linear(LinearRole::kColumn, options.hidden, 3 * options.hidden)),
        proj_(factory.linear(LinearRole::kRow, options.hidden, options.hidden)) {
    SLUICE_CHECK(qkv_->out() == 3 * heads_ * head_dim_, name(), ": qkv ", qkv_->out(), ", ", heads_, " heads of ", head_dim_);
    SLUICE_CHECK(proj_->in() == heads_ * head_dim_, name(), ": proj ", proj_->in(), ", ", heads_, " heads of ", head_dim_);
  }

  bool has_phase(Phase phase) const override { return phase == Phase::kForward || phase == Phase::kRecompute || phase == Phase::kBackward; }

  std::int64_t saved_bytes(const Shape& shape) const override { return Saved(*this, shape).total; }

  std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const override {
    if (!has_phase(phase)) return 0;
    return phase == Phase::kBackward ? BackwardScratch(*this, shape, threads).total : ForwardScratch(*this, phase, shape, threads).total;
  }

  Work work(Phase phase, const Shape& shape) const override {
    const std::int64_t n = shape.tokens();
    const double activation = static_cast<double>(n) * static_cast<double>(hidden_);
    const double core = static_cast<double>(n) * static_cast<double>(heads_ * head_dim_);
    const double lse = static_cast<double>(n) * static_cast<double>(heads_);
    // Causal: T (T + 1) / 2 pairs of query and key in each row and head.
    const double pair_floats = core * static_cast<double>(shape.sequence + 1) / 2;
    const Work recompute = norm_forward_work(n, hidden_) + linear_forward_work(n, hidden_, qkv_->out()) + Work{4 * pair_floats, 0} +
                           traffic(4 * core + lse);  // q k^T, p v; qkv in, out and lse out
    if (phase == Phase::kRecompute) return recompute;
    if (phase == Phase::kForward) return recompute + linear_forward_work(n, proj_->in(), hidden_) + traffic(3 * activation);  // residual
    if (phase == Phase::kBackward) {
      const double dropout = residual_dropout_ > 0 ? 2 * activation : 0;
      // Five products of the core: q k^T again, dp, dv, dq, dk. It reads qkv, out, lse, dout and writes dqkv.
      return linear_backward_work(n, proj_->in(), hidden_) + Work{10 * pair_floats, 0} + traffic(8 * core + lse + dropout) +
             norm_forward_work(n, hidden_) + linear_backward_work(n, hidden_, qkv_->out()) + norm_backward_work(n, hidden_) +
             traffic(activation);  // the residual's gradient, added to
    }
    return {};
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
  struct Saved {
    Saved(const AttentionSegment& s, const Shape& shape) {
      Pieces pieces;
      qkv = pieces.floats(shape.tokens() * s.qkv_->out());
      out = pieces.floats(shape.tokens() * s.proj_->in());
      lse = pieces.floats(shape.tokens() * s.heads_);
      total = pieces.total();
    }
    std::int64_t qkv, out, lse, total;
  };

  // Forward norms x into y, which is free until the last product. The norm's pieces are dead when the attention core starts.
  struct ForwardScratch {
    ForwardScratch(const AttentionSegment& s, Phase phase, const Shape& shape, int threads) {
      Pieces norm;
      mean = norm.floats(shape.tokens());
      rstd = norm.floats(shape.tokens());
      normed = norm.floats(phase == Phase::kRecompute ? shape.tokens() * s.hidden_ : 0);
      Pieces attention;
      core = attention.bytes(ops::attention_workspace_bytes(s.core_shape(shape), threads));
      total = std::max(norm.total(), attention.total());
    }
    std::int64_t mean, rstd, normed, core, total;
  };

  // `wide` holds the masked d until dqkv is written over it; `narrow` dout, then the normed x, then its gradient; `op` what the
  // core and then the norm need.
  struct BackwardScratch {
    BackwardScratch(const AttentionSegment& s, const Shape& shape, int threads) {
      Pieces pieces;
      wide = pieces.floats(shape.tokens() * std::max(s.hidden_, s.qkv_->out()));
      narrow = pieces.floats(shape.tokens() * std::max(s.hidden_, s.proj_->in()));
      mean = pieces.floats(shape.tokens());
      rstd = pieces.floats(shape.tokens());
      op = pieces.bytes(
          std::max(ops::attention_workspace_bytes(s.core_shape(shape), threads), ops::layer_norm_workspace_bytes(threads, s.hidden_)));
      total = pieces.total();
    }
    std::int64_t wide, narrow, mean, rstd, op, total;
  };

  ops::AttentionShape core_shape(const Shape& shape) const { return {shape.rows, shape.sequence, heads_, head_dim_}; }

  ops::DropoutSite attention_site(const SegmentCall& call) const {
    return dropout_site(attention_dropout_, "attention", layer(), call.step);
  }
  ops::DropoutSite residual_site(const SegmentCall& call) const {
    return dropout_site(residual_dropout_, "attention_residual", layer(), call.step);
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

    ops::layer_norm_forward(ctx, call.x, call.params[kNormGain], call.params[kNormBias], eps_, n, hidden_, normed,
                            floats_at(call.workspace, scratch.mean), floats_at(call.workspace, scratch.rstd));
    qkv_->forward(ctx, n, normed, call.params[kQkvWeight], call.params[kQkvBias], qkv, nullptr);
    ops::attention_forward(ctx, core_shape(call.shape), qkv, attention_site(call), row_positions(call), out,
                           floats_at(call.saved, saved.lse), call.workspace + scratch.core);
    if (recompute) return;
    proj_->forward(ctx, n, out, call.params[kProjWeight], call.params[kProjBias], call.y, nullptr);
    ops::dropout_add(ctx, residual_site(call), row_positions(call), hidden_, call.y, call.x, call.y);
  }

  void backward(const SegmentCall& call) const {
    SLUICE_CHECK(call.d != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const std::int64_t n = call.shape.tokens();
    const auto accumulate = [&](Param param) { return call.accumulate[param] != 0; };
    const Saved saved(*this, call.shape);
    const BackwardScratch scratch(*this, call.shape, ctx.threads);
    const float* const qkv = floats_at(call.saved, saved.qkv);
    const float* const out = floats_at(call.saved, saved.out);
    float* const wide = floats_at(call.workspace, scratch.wide);
    float* const narrow = floats_at(call.workspace, scratch.narrow);
    float* const mean = floats_at(call.workspace, scratch.mean);
    float* const rstd = floats_at(call.workspace, scratch.rstd);
    std::byte* const op = call.workspace + scratch.op;

    const ops::DropoutSite residual = residual_site(call);
    const float* branch = call.d;  // d loss / d proj's output
    if (residual.rate > 0) {
      ops::dropout_backward(ctx, residual, row_positions(call), hidden_, call.d, wide);
      branch = wide;
    }
    proj_->backward_weight(ctx, n, branch, out, call.grads[kProjWeight], accumulate(kProjWeight), call.grads[kProjBias],
                           accumulate(kProjBias));
    proj_->backward_input(ctx, n, branch, call.params[kProjWeight], narrow);
    ops::attention_backward(ctx, core_shape(call.shape), qkv, out, floats_at(call.saved, saved.lse), narrow, attention_site(call),
                            row_positions(call), wide, op);
    ops::layer_norm_forward(ctx, call.x, call.params[kNormGain], call.params[kNormBias], eps_, n, hidden_, narrow, mean, rstd);
    qkv_->backward_weight(ctx, n, wide, narrow, call.grads[kQkvWeight], accumulate(kQkvWeight), call.grads[kQkvBias], accumulate(kQkvBias));
    qkv_->backward_input(ctx, n, wide, call.params[kQkvWeight], narrow);
    norm_backward(ctx, {.x = call.x,
                        .gain = call.params[kNormGain],
                        .mean = mean,
                        .rstd = rstd,
                        .dy = narrow,
                        .n = n,
                        .c = hidden_,
                        .dx = call.d,
                        .dx_accumulate = true,
                        .dgain = call.grads[kNormGain],
                        .dbias = call.grads[kNormBias],
                        .accumulate_gain = accumulate(kNormGain),
                        .accumulate_bias = accumulate(kNormBias),
                        .workspace = op});
  }

  std::int64_t hidden_, heads_, head_dim_;
  double eps_, attention_dropout_, residual_dropout_;
  std::unique_ptr<Linear> qkv_, proj_;
};

}  // namespace

std::unique_ptr<Segment> make_attention_segment(AttentionOptions options, const ModuleFactory& factory) {
  SLUICE_CHECK(options.params.size() == kParams, "attention takes ", kParams, " parameters, got ", options.params.size());
  return std::make_unique<AttentionSegment>(std::move(options), factory);
}

}  // namespace sluice::model
