#include <algorithm>

#include "base/check.hpp"
#include "model/pieces.hpp"
#include "model/segments.hpp"
#include "ops/gelu.hpp"
#include "ops/layer_norm.hpp"

namespace sluice::model {
namespace {

enum Param { kNormGain, kNormBias, kFc1Weight, kFc1Bias, kFc2Weight, kFc2Bias, kParams };

class MlpSegment final : public NamedSegment {
 public:
  MlpSegment(MlpOptions options, const ModuleFactory& factory)
      : NamedSegment(SegmentKind::kMlp, options.layer, std::move(options.params)),
        hidden_(options.hidden),
        eps_(options.norm_eps),
        residual_dropout_(options.residual_dropout),
        fc1_(factory.linear(LinearRole::kColumn, options.hidden, options.ffn)),
        fc2_(factory.linear(LinearRole::kRow, options.ffn, options.hidden)) {
    SLUICE_CHECK(fc1_->out() == fc2_->in(), name(), ": fc1 ", fc1_->out(), ", fc2 ", fc2_->in());
  }

  bool has_phase(Phase phase) const override { return phase == Phase::kForward || phase == Phase::kRecompute || phase == Phase::kBackward; }

  std::int64_t saved_bytes(const Shape& shape) const override {
    Pieces pieces;
    pieces.floats(shape.tokens() * fc1_->out());
    return pieces.total();
  }

  std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const override {
    if (!has_phase(phase)) return 0;
    return phase == Phase::kBackward ? BackwardScratch(*this, shape, threads).total : ForwardScratch(*this, phase, shape).total;
  }

  Work work(Phase phase, const Shape& shape) const override {
    const std::int64_t n = shape.tokens(), ffn = fc1_->out();
    const double activation = static_cast<double>(n) * static_cast<double>(hidden_);
    const double inner = static_cast<double>(n) * static_cast<double>(ffn);
    const Work recompute = norm_forward_work(n, hidden_) + linear_forward_work(n, hidden_, ffn);
    if (phase == Phase::kRecompute) return recompute;
    if (phase == Phase::kForward) {  // the GELU's output; the residual
      return recompute + traffic(inner) + linear_forward_work(n, ffn, hidden_) + traffic(3 * activation);
    }
    if (phase == Phase::kBackward) {
      const double dropout = residual_dropout_ > 0 ? 2 * activation : 0;
      return traffic(dropout + 5 * inner) +  // GELU again (read, written), its gradient (two read, one written)
             linear_backward_work(n, ffn, hidden_) + norm_forward_work(n, hidden_) + linear_backward_work(n, hidden_, ffn) +
             norm_backward_work(n, hidden_) + traffic(activation);  // the residual's gradient, added to
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
  // Forward norms x into y, which is free until the last product; the GELU's output is written over the norm's statistics.
  struct ForwardScratch {
    ForwardScratch(const MlpSegment& s, Phase phase, const Shape& shape) {
      const bool recompute = phase == Phase::kRecompute;
      Pieces norm;
      mean = norm.floats(shape.tokens());
      rstd = norm.floats(shape.tokens());
      normed = norm.floats(recompute ? shape.tokens() * s.hidden_ : 0);
      Pieces product;
      gelu = product.floats(recompute ? 0 : shape.tokens() * s.fc1_->out());
      total = std::max(norm.total(), product.total());
    }
    std::int64_t mean, rstd, normed, gelu, total;
  };

  // `wide` holds the GELU's output, then its gradient, then that of fc1's output; `narrow` the masked d, then the normed x, then
  // its gradient.
  struct BackwardScratch {
    BackwardScratch(const MlpSegment& s, const Shape& shape, int threads) {
      Pieces pieces;
      wide = pieces.floats(shape.tokens() * s.fc1_->out());
      narrow = pieces.floats(shape.tokens() * s.hidden_);
      mean = pieces.floats(shape.tokens());
      rstd = pieces.floats(shape.tokens());
      op = pieces.bytes(ops::layer_norm_workspace_bytes(threads, s.hidden_));
      total = pieces.total();
    }
    std::int64_t wide, narrow, mean, rstd, op, total;
  };

  ops::DropoutSite residual_site(const SegmentCall& call) const {
    return dropout_site(residual_dropout_, "mlp_residual", layer(), call.step);
  }

  void forward(Phase phase, const SegmentCall& call) const {
    const bool recompute = phase == Phase::kRecompute;
    SLUICE_CHECK(recompute || call.y != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const std::int64_t n = call.shape.tokens();
    const ForwardScratch scratch(*this, phase, call.shape);
    float* const pre = floats_at(call.saved, 0);
    float* const normed = recompute ? floats_at(call.workspace, scratch.normed) : call.y;
    float* const gelu = recompute ? nullptr : floats_at(call.workspace, scratch.gelu);

    ops::layer_norm_forward(ctx, call.x, call.params[kNormGain], call.params[kNormBias], eps_, n, hidden_, normed,
                            floats_at(call.workspace, scratch.mean), floats_at(call.workspace, scratch.rstd));
    fc1_->forward(ctx, n, normed, call.params[kFc1Weight], call.params[kFc1Bias], pre, gelu);
    if (recompute) return;
    fc2_->forward(ctx, n, gelu, call.params[kFc2Weight], call.params[kFc2Bias], call.y, nullptr);
    ops::dropout_add(ctx, residual_site(call), row_positions(call), hidden_, call.y, call.x, call.y);
  }

  void backward(const SegmentCall& call) const {
    SLUICE_CHECK(call.d != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const std::int64_t n = call.shape.tokens();
    const auto accumulate = [&](Param param) { return call.accumulate[param] != 0; };
    const BackwardScratch scratch(*this, call.shape, ctx.threads);
    const float* const pre = floats_at(call.saved, 0);
    float* const wide = floats_at(call.workspace, scratch.wide);
    float* const narrow = floats_at(call.workspace, scratch.narrow);
    float* const mean = floats_at(call.workspace, scratch.mean);
    float* const rstd = floats_at(call.workspace, scratch.rstd);

    const ops::DropoutSite residual = residual_site(call);
    const float* branch = call.d;  // d loss / d fc2's output
    if (residual.rate > 0) {
      ops::dropout_backward(ctx, residual, row_positions(call), hidden_, call.d, narrow);
      branch = narrow;
    }
    const std::int64_t inner = n * fc1_->out();
    ops::gelu_forward(ctx, pre, inner, wide);
    fc2_->backward_weight(ctx, n, branch, wide, call.grads[kFc2Weight], accumulate(kFc2Weight), call.grads[kFc2Bias], accumulate(kFc2Bias));
    fc2_->backward_input(ctx, n, branch, call.params[kFc2Weight], wide);
    ops::gelu_backward(ctx, pre, wide, inner, wide);
    ops::layer_norm_forward(ctx, call.x, call.params[kNormGain], call.params[kNormBias], eps_, n, hidden_, narrow, mean, rstd);
    fc1_->backward_weight(ctx, n, wide, narrow, call.grads[kFc1Weight], accumulate(kFc1Weight), call.grads[kFc1Bias], accumulate(kFc1Bias));
    fc1_->backward_input(ctx, n, wide, call.params[kFc1Weight], narrow);
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
                        .workspace = call.workspace + scratch.op});
  }

  std::int64_t hidden_;
  double eps_, residual_dropout_;
  std::unique_ptr<Linear> fc1_, fc2_;
};

}  // namespace

std::unique_ptr<Segment> make_mlp_segment(MlpOptions options, const ModuleFactory& factory) {
  SLUICE_CHECK(options.params.size() == kParams, "mlp takes ", kParams, " parameters, got ", options.params.size());
  return std::make_unique<MlpSegment>(std::move(options), factory);
}

}  // namespace sluice::model
