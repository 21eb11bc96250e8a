#include <algorithm>
#include <optional>

#include "base/check.hpp"
#include "model/pieces.hpp"
#include "model/segments.hpp"
#include "ops/gelu.hpp"
#include "ops/relu.hpp"
#include "ops/silu_gate.hpp"

namespace sluice::model {
namespace {

class MlpSegment final : public NamedSegment {
 public:
  MlpSegment(const MlpOptions& options, const ModuleFactory& factory) : MlpSegment(options, factory, ParamList()) {}

  bool has_phase(Phase phase) const override { return phase == Phase::kForward || phase == Phase::kRecompute || phase == Phase::kBackward; }

  std::int64_t saved_bytes(const Shape& shape) const override { return Saved(*this, shape).total; }

  std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const override {
    if (!has_phase(phase)) return 0;
    return phase == Phase::kBackward ? BackwardScratch(*this, shape, threads).total : ForwardScratch(*this, phase, shape).total;
  }

  Work work(Phase phase, const Shape& shape) const override {
    if (!has_phase(phase)) return {};
    const std::int64_t n = shape.tokens();
    const double activation = static_cast<double>(n) * static_cast<double>(hidden_);
    const double inner = static_cast<double>(n) * static_cast<double>(up_.out());
    Work recompute = norm_.forward_work(n) + up_.forward_work(n);
    if (gate_) recompute = recompute + gate_->forward_work(n);
    if (phase == Phase::kRecompute) return recompute;
    const double inputs = gate_ ? 2 : 1;  // of the activation
    if (phase == Phase::kForward) {       // the activation's inputs and output (GELU comes with the product); the residual
      const double read = activation_ == Activation::kGelu ? 0 : inputs;
      return recompute + traffic((read + 1) * inner) + down_.forward_work(n) + traffic(3 * activation);
    }
    const double dropout = residual_dropout_ > 0 ? 2 * activation : 0;
    // The activation again (inputs read, output written), its gradient (inputs and dy read, theirs written).
    Work backward = traffic(dropout + (inputs + 1 + inputs + 1 + inputs) * inner) + down_.backward_work(n) + norm_.forward_work(n) +
                    up_.backward_work(n) + norm_.backward_work(n) + traffic(activation);  // the residual's gradient, added to
    if (gate_) backward = backward + gate_->backward_work(n);
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
  MlpSegment(const MlpOptions& options, const ModuleFactory& factory, ParamList params)
      : NamedSegment(SegmentKind::kMlp, options.layer),
        hidden_(options.hidden),
        activation_(options.activation),
        residual_dropout_(options.residual_dropout),
        norm_(options.norm, options.hidden, params),
        gate_(make_gate(options, factory, params)),
        up_(options.up, LinearRole::kColumn, factory, params),
        down_(options.down, LinearRole::kRow, factory, params) {
    set_params(params);
    SLUICE_CHECK(up_.out() == down_.in() && (!gate_ || gate_->out() == up_.out()), name(), ": up ", up_.out(), ", down ", down_.in());
    SLUICE_CHECK(gate_.has_value() == (activation_ == Activation::kSiluGate), name());
  }

  static std::optional<Projection> make_gate(const MlpOptions& options, const ModuleFactory& factory, ParamList& params) {
    if (options.gate.weight < 0) return std::nullopt;
    return Projection(options.gate, LinearRole::kColumn, factory, params);
  }

  struct Saved {
    Saved(const MlpSegment& s, const Shape& shape) {
      Pieces pieces;
      up = pieces.floats(shape.tokens() * s.up_.out());
      gate = pieces.floats(s.gate_ ? shape.tokens() * s.up_.out() : 0);
      total = pieces.total();
    }
    std::int64_t up, gate, total;
  };

  // Forward norms x into y, which is free until the last product. The norm's pieces are dead when the activation is written.
  struct ForwardScratch {
    ForwardScratch(const MlpSegment& s, Phase phase, const Shape& shape) : statistics(s.norm_.book(norm, shape.tokens())) {
      const bool recompute = phase == Phase::kRecompute;
      normed = norm.floats(recompute ? shape.tokens() * s.hidden_ : 0);
      Pieces product;
      activated = product.floats(recompute ? 0 : shape.tokens() * s.up_.out());
      total = std::max(norm.total(), product.total());
    }
    Pieces norm;
    Norm::Statistics statistics;
    std::int64_t normed, activated, total;
  };

  // `wide` holds the activation's output, then its gradient, then that of up's output; `gate` that of gate's output; `narrow` the
  // masked d, then the normed x, then its gradient.
  struct BackwardScratch {
    BackwardScratch(const MlpSegment& s, const Shape& shape, int threads)
        : wide(pieces.floats(shape.tokens() * s.up_.out())),
          gate(pieces.floats(s.gate_ ? shape.tokens() * s.up_.out() : 0)),
          narrow(pieces.floats(shape.tokens() * s.hidden_)),
          statistics(s.norm_.book(pieces, shape.tokens())) {
      op = pieces.bytes(s.norm_.workspace_bytes(threads));
      total = pieces.total();
    }
    Pieces pieces;
    std::int64_t wide, gate, narrow;
    Norm::Statistics statistics;
    std::int64_t op, total;
  };

  ops::DropoutSite residual_site(const SegmentCall& call) const {
    return dropout_site(residual_dropout_, "mlp_residual", layer(), call.step);
  }

  void activate(const SegmentCall& call, const float* up, const float* gate, float* y) const {
    const std::int64_t inner = call.shape.tokens() * up_.out();
    switch (activation_) {
      case Activation::kGelu:
        return ops::gelu_forward(*call.ops, up, inner, y);
      case Activation::kRelu:
        return ops::relu_forward(*call.ops, up, inner, y);
      case Activation::kSiluGate:
        return ops::silu_gate_forward(*call.ops, gate, up, inner, y);
    }
  }

  /// d: of the activation's output on entry, of up's on return.
  void activate_backward(const SegmentCall& call, const float* up, const float* gate, float* d, float* dgate) const {
    const std::int64_t inner = call.shape.tokens() * up_.out();
    switch (activation_) {
      case Activation::kGelu:
        return ops::gelu_backward(*call.ops, up, d, inner, d);
      case Activation::kRelu:
        return ops::relu_backward(*call.ops, up, d, inner, d);
      case Activation::kSiluGate:
        return ops::silu_gate_backward(*call.ops, gate, up, d, inner, dgate, d);
    }
  }

  void forward(Phase phase, const SegmentCall& call) const {
    const bool recompute = phase == Phase::kRecompute;
    SLUICE_CHECK(recompute || call.y != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const Saved saved(*this, call.shape);
    const ForwardScratch scratch(*this, phase, call.shape);
    float* const up = floats_at(call.saved, saved.up);
    float* const gate = floats_at(call.saved, saved.gate);
    float* const normed = recompute ? floats_at(call.workspace, scratch.normed) : call.y;
    float* const activated = floats_at(call.workspace, scratch.activated);
    const bool fuses = activation_ == Activation::kGelu && !recompute;

    norm_.forward(call, call.shape.tokens(), call.x, normed, scratch.statistics);
    if (gate_) gate_->forward(call, normed, gate, gate_->out(), nullptr);
    up_.forward(call, normed, up, up_.out(), fuses ? activated : nullptr);
    if (recompute) return;
    if (!fuses) activate(call, up, gate, activated);
    down_.forward(call, activated, call.y, hidden_, nullptr);
    ops::dropout_add(ctx, residual_site(call), row_positions(call), hidden_, call.y, call.x, call.y);
  }

  void backward(const SegmentCall& call) const {
    SLUICE_CHECK(call.d != nullptr, name());
    const ops::Context& ctx = *call.ops;
    const std::int64_t n = call.shape.tokens();
    const Saved saved(*this, call.shape);
    const BackwardScratch scratch(*this, call.shape, ctx.threads);
    const float* const up = floats_at(call.saved, saved.up);
    const float* const gate = floats_at(call.saved, saved.gate);
    float* const wide = floats_at(call.workspace, scratch.wide);
    float* const dgate = floats_at(call.workspace, scratch.gate);
    float* const narrow = floats_at(call.workspace, scratch.narrow);

    const ops::DropoutSite residual = residual_site(call);
    const float* branch = call.d;  // d loss / d the last product
    if (residual.rate > 0) {
      ops::dropout_backward(ctx, residual, row_positions(call), hidden_, call.d, narrow);
      branch = narrow;
    }
    activate(call, up, gate, wide);
    down_.backward_weight(call, branch, hidden_, wide);
    down_.backward_input(call, branch, hidden_, wide, false);
    activate_backward(call, up, gate, wide, dgate);
    norm_.forward(call, n, call.x, narrow, scratch.statistics);
    up_.backward_weight(call, wide, up_.out(), narrow);
    if (gate_) gate_->backward_weight(call, dgate, gate_->out(), narrow);
    up_.backward_input(call, wide, up_.out(), narrow, false);
    if (gate_) gate_->backward_input(call, dgate, gate_->out(), narrow, true);
    norm_.backward(call, n, call.x, narrow, call.d, true, false, scratch.statistics, call.workspace + scratch.op);
  }

  std::int64_t hidden_;
  Activation activation_;
  double residual_dropout_;
  Norm norm_;
  std::optional<Projection> gate_;
  Projection up_, down_;
};

}  // namespace

std::unique_ptr<Segment> make_mlp_segment(const MlpOptions& options, const ModuleFactory& factory) {
  return std::make_unique<MlpSegment>(options, factory);
}

}  // namespace sluice::model
