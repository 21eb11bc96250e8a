#include <algorithm>

#include "base/check.hpp"
#include "model/pieces.hpp"
#include "model/segments.hpp"
#include "ops/convert.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/matmul.hpp"

namespace sluice::model {
namespace {

class HeadSegment final : public NamedSegment {
 public:
  explicit HeadSegment(const HeadOptions& options) : HeadSegment(options, ParamList()) {}

  bool has_phase(Phase phase) const override {
    return phase == Phase::kForward || phase == Phase::kForwardBackward || phase == Phase::kLogits;
  }
  std::int64_t saved_bytes(const Shape&) const override { return 0; }

  std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const override {
    return has_phase(phase) ? Scratch(*this, phase, shape, threads).total : 0;
  }

  Intake intake(Phase, std::size_t index) const override { return index == weight_ ? Intake::kStored : Intake::kWidened; }
  std::int64_t widening_bytes(Phase phase) const override {
    return has_phase(phase) ? panel_rows() * hidden_ * static_cast<std::int64_t>(sizeof(float)) : 0;
  }

  Work work(Phase phase, const Shape& shape) const override {
    if (phase == Phase::kLogits) return norm_.forward_work(shape.rows) + product_work(shape.rows, vocab_, hidden_);
    if (!has_phase(phase)) return {};
    const std::int64_t n = shape.tokens();
    Work sum;
    for (std::int64_t first = 0, tile = head_tile_rows(n, vocab_); first < n; first += tile) {
      sum = sum + tile_work(phase, std::min(tile, n - first), first > 0);
    }
    return sum;
  }

  void run(Phase phase, const SegmentCall& call) const override {
    check_call(phase, call, phase == Phase::kForwardBackward);
    SLUICE_CHECK(call.x != nullptr && call.workspace != nullptr, name(), " ", name_of(phase));
    if (phase == Phase::kLogits) {
      logits(call);
    } else {
      loss(phase, call);
    }
  }

 private:
  HeadSegment(const HeadOptions& options, ParamList params)
      : NamedSegment(SegmentKind::kHead, -1),
        vocab_(options.vocab),
        hidden_(options.hidden),
        norm_(options.norm, options.hidden, params),
        weight_(static_cast<std::size_t>(params.add(options.weight))) {
    set_params(params);
  }

  struct Scratch {
    Scratch(const HeadSegment& s, Phase phase, const Shape& shape, int threads)
        : tile(phase == Phase::kLogits ? shape.rows : head_tile_rows(shape.tokens(), s.vocab_)),
          normed(pieces.floats(tile * s.hidden_)),
          statistics(s.norm_.book(pieces, tile)) {
      logits = pieces.floats(phase == Phase::kLogits ? 0 : tile * s.vocab_);
      norm = pieces.bytes(phase == Phase::kForwardBackward ? s.norm_.workspace_bytes(threads) : 0);
      total = pieces.total();
    }
    Pieces pieces;
    std::int64_t tile;
    std::int64_t normed;  // and then its gradient
    Norm::Statistics statistics;
    std::int64_t logits, norm, total;
  };

  // Each tile reads W, and adds to its gradient, anew.
  Work tile_work(Phase phase, std::int64_t rows, bool adds) const {
    const double logits = static_cast<double>(rows) * static_cast<double>(vocab_);
    const Work forward = norm_.forward_work(rows) + product_work(rows, vocab_, hidden_) + traffic(logits);
    if (phase == Phase::kForward) return forward;
    const double dweight = adds ? static_cast<double>(vocab_) * static_cast<double>(hidden_) : 0;
    return forward + traffic(logits + dweight) + product_work(vocab_, hidden_, rows) + product_work(rows, hidden_, vocab_) +
           norm_.backward_work(rows);
  }

  void loss(Phase phase, const SegmentCall& call) const {
    const bool gradient = phase == Phase::kForwardBackward;
    SLUICE_CHECK(call.targets != nullptr && call.loss_sum != nullptr, name(), " ", name_of(phase));
    SLUICE_CHECK(!gradient || call.d != nullptr, name());
    const Scratch scratch(*this, phase, call.shape, call.ops->threads);
    const std::int64_t n = call.shape.tokens();
    double sum = 0;
    for (std::int64_t first = 0; first < n; first += scratch.tile) {
      const std::int64_t rows = std::min(scratch.tile, n - first);
      sum += tile_loss(call, scratch, first, rows, gradient);
      if (gradient) tile_backward(call, scratch, first, rows);
    }
    *call.loss_sum = sum;
  }

  double tile_loss(const SegmentCall& call, const Scratch& scratch, std::int64_t first, std::int64_t rows, bool gradient) const {
    const ops::Context& ctx = *call.ops;
    float* const normed = floats_at(call.workspace, scratch.normed);
    float* const logits = floats_at(call.workspace, scratch.logits);
    norm_.forward(call, rows, call.x + first * hidden_, normed, scratch.statistics);
    project(call, rows, normed, logits);
    return ops::cross_entropy(ctx, logits, rows, vocab_, vocab_, call.targets + first, call.step.loss_scale, gradient);
  }

  /// Rows of W that are widened at a time where W is stored in 16 bits: what a core's second cache holds, wide enough for a product.
  std::int64_t panel_rows() const {
    constexpr std::int64_t kPanelBytes = 1 * kMiB, kMinimum = 64, kMultiple = 32;
    const std::int64_t fitting = kPanelBytes / (hidden_ * static_cast<std::int64_t>(sizeof(float)));
    return std::min(round_up(vocab_, kMultiple), std::max(kMinimum, fitting / kMultiple * kMultiple));
  }

  /// Calls use(first row, rows, f32 of these rows [rows, C]) for all of W: at once where it is f32, else widened panel by panel.
  template <typename Use>
  void for_each_panel(const SegmentCall& call, const Use& use) const {
    if (call.storage == DType::kF32) return use(std::int64_t{0}, vocab_, call.params[weight_]);
    SLUICE_CHECK(call.widening != nullptr, name());
    float* const panel = floats_at(call.widening, 0);
    for (std::int64_t first = 0, most = panel_rows(); first < vocab_; first += most) {
      const std::int64_t rows = std::min(most, vocab_ - first);
      ops::widen(*call.ops, call.stored_params[weight_] + first * hidden_, rows * hidden_, call.storage, panel);
      use(first, rows, panel);
    }
  }

  // logits [rows, V] = normed [rows, C] W^T
  void project(const SegmentCall& call, std::int64_t rows, const float* normed, float* logits) const {
    for_each_panel(call, [&](std::int64_t first, std::int64_t panel_rows, const float* panel) {
      ops::matmul(*call.ops, {.m = rows,
                              .n = panel_rows,
                              .k = hidden_,
                              .a = normed,
                              .ld_a = hidden_,
                              .transpose_a = false,
                              .b = panel,
                              .ld_b = hidden_,
                              .transpose_b = true,
                              .c = logits + first,
                              .ld_c = vocab_});
    });
  }

  void tile_backward(const SegmentCall& call, const Scratch& scratch, std::int64_t first, std::int64_t rows) const {
    const ops::Context& ctx = *call.ops;
    float* const normed = floats_at(call.workspace, scratch.normed);
    const float* const dlogits = floats_at(call.workspace, scratch.logits);
    const bool adds = first > 0;
    if (call.grads[weight_] != nullptr) {
      ops::matmul(ctx, {.m = vocab_,  // dW [V, C] += dlogits^T normed
                        .n = hidden_,
                        .k = rows,
                        .a = dlogits,
                        .ld_a = vocab_,
                        .transpose_a = true,
                        .b = normed,
                        .ld_b = hidden_,
                        .transpose_b = false,
                        .c = call.grads[weight_],
                        .ld_c = hidden_,
                        .accumulate = adds || call.accumulate[weight_] != 0});
    }
    for_each_panel(call, [&](std::int64_t first_row, std::int64_t panel_rows, const float* panel) {
      ops::matmul(ctx, {.m = rows,  // d normed [rows, C] = dlogits W, over the normed x, which nobody needs any more
                        .n = hidden_,
                        .k = panel_rows,
                        .a = dlogits + first_row,
                        .ld_a = vocab_,
                        .transpose_a = false,
                        .b = panel,
                        .ld_b = hidden_,
                        .transpose_b = false,
                        .c = normed,
                        .ld_c = hidden_,
                        .accumulate = first_row > 0});
    });
    norm_.backward(call, rows, call.x + first * hidden_, normed, call.d + first * hidden_, false, adds, scratch.statistics,
                   call.workspace + scratch.norm);
  }

  void logits(const SegmentCall& call) const {
    SLUICE_CHECK(call.logits != nullptr, name());
    SLUICE_CHECK(call.position >= 0 && call.position < call.shape.sequence, name(), ": position ", call.position, " of ",
                 call.shape.sequence);
    const Scratch scratch(*this, Phase::kLogits, call.shape, call.ops->threads);
    float* const normed = floats_at(call.workspace, scratch.normed);
    for (std::int64_t row = 0; row < call.shape.rows; ++row) {  // the rows of one position, side by side
      const float* const x = call.x + (row * call.shape.sequence + call.position) * hidden_;
      std::copy(x, x + hidden_, normed + row * hidden_);
    }
    norm_.forward(call, call.shape.rows, normed, normed, scratch.statistics);
    project(call, call.shape.rows, normed, call.logits);
  }

  std::int64_t vocab_, hidden_;
  Norm norm_;
  std::size_t weight_;  // place in a call's parameters
};

}  // namespace

std::int64_t head_tile_rows(std::int64_t tokens, std::int64_t vocab) {
  constexpr std::int64_t kLogitBytes = 32 * kMiB;
  constexpr std::int64_t kMinimum = 64, kMultiple = 32;
  const std::int64_t fitting = kLogitBytes / (vocab * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t most = std::max(kMinimum, fitting / kMultiple * kMultiple);
  if (tokens <= most) return tokens;
  // As many tiles as the largest would make, but evenly filled: no narrow last product.
  const std::int64_t tiles = divide_up(tokens, most);
  return std::min(most, round_up(divide_up(tokens, tiles), kMultiple));
}

std::unique_ptr<Segment> make_head_segment(const HeadOptions& options) {
  return std::make_unique<HeadSegment>(options);
}

}  // namespace sluice::model
