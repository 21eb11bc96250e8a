#include <algorithm>

#include "base/check.hpp"
#include "model/pieces.hpp"
#include "model/segments.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/layer_norm.hpp"
#include "ops/matmul.hpp"

namespace sluice::model {
namespace {

enum Param { kNormGain, kNormBias, kWeight, kParams };

class HeadSegment final : public NamedSegment {
 public:
  explicit HeadSegment(HeadOptions options)
      : NamedSegment(SegmentKind::kHead, -1, std::move(options.params)),
        vocab_(options.vocab),
        hidden_(options.hidden),
        eps_(options.norm_eps) {}

  bool has_phase(Phase phase) const override {
    return phase == Phase::kForward || phase == Phase::kForwardBackward || phase == Phase::kLogits;
  }
  std::int64_t saved_bytes(const Shape&) const override { return 0; }

  std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const override {
    return has_phase(phase) ? Scratch(*this, phase, shape, threads).total : 0;
  }

  Work work(Phase phase, const Shape& shape) const override {
    if (phase == Phase::kLogits) return norm_forward_work(shape.rows, hidden_) + product_work(shape.rows, vocab_, hidden_);
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
  struct Scratch {
    Scratch(const HeadSegment& s, Phase phase, const Shape& shape, int threads) {
      tile = phase == Phase::kLogits ? shape.rows : head_tile_rows(shape.tokens(), s.vocab_);
      Pieces pieces;
      normed = pieces.floats(tile * s.hidden_);  // and then its gradient
      mean = pieces.floats(tile);
      rstd = pieces.floats(tile);
      logits = pieces.floats(phase == Phase::kLogits ? 0 : tile * s.vocab_);
      norm = pieces.bytes(phase == Phase::kForwardBackward ? ops::layer_norm_workspace_bytes(threads, s.hidden_) : 0);
      total = pieces.total();
    }
    std::int64_t tile, normed, mean, rstd, logits, norm, total;
  };

  // Each tile reads W, and adds to its gradient, anew.
  Work tile_work(Phase phase, std::int64_t rows, bool adds) const {
    const double logits = static_cast<double>(rows) * static_cast<double>(vocab_);
    const Work forward = norm_forward_work(rows, hidden_) + product_work(rows, vocab_, hidden_) + traffic(logits);
    if (phase == Phase::kForward) return forward;
    const double dweight = adds ? static_cast<double>(vocab_) * static_cast<double>(hidden_) : 0;
    return forward + traffic(logits + dweight) + product_work(vocab_, hidden_, rows) + product_work(rows, hidden_, vocab_) +
           norm_backward_work(rows, hidden_);
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
    ops::layer_norm_forward(ctx, call.x + first * hidden_, call.params[kNormGain], call.params[kNormBias], eps_, rows, hidden_, normed,
                            floats_at(call.workspace, scratch.mean), floats_at(call.workspace, scratch.rstd));
    project(call, rows, normed, logits);
    return ops::cross_entropy(ctx, logits, rows, vocab_, vocab_, call.targets + first, call.step.loss_scale, gradient);
  }

  // logits [rows, V] = normed [rows, C] W^T
  void project(const SegmentCall& call, std::int64_t rows, const float* normed, float* logits) const {
    ops::matmul(*call.ops, {.m = rows,
                            .n = vocab_,
                            .k = hidden_,
                            .a = normed,
                            .ld_a = hidden_,
                            .transpose_a = false,
                            .b = call.params[kWeight],
                            .ld_b = hidden_,
                            .transpose_b = true,
                            .c = logits,
                            .ld_c = vocab_});
  }

  void tile_backward(const SegmentCall& call, const Scratch& scratch, std::int64_t first, std::int64_t rows) const {
    const ops::Context& ctx = *call.ops;
    float* const normed = floats_at(call.workspace, scratch.normed);
    const float* const dlogits = floats_at(call.workspace, scratch.logits);
    const auto accumulate = [&](Param param) { return first > 0 || call.accumulate[param] != 0; };
    ops::matmul(ctx, {.m = vocab_,  // dW [V, C] += dlogits^T normed
                      .n = hidden_,
                      .k = rows,
                      .a = dlogits,
                      .ld_a = vocab_,
                      .transpose_a = true,
                      .b = normed,
                      .ld_b = hidden_,
                      .transpose_b = false,
                      .c = call.grads[kWeight],
                      .ld_c = hidden_,
                      .accumulate = accumulate(kWeight)});
    ops::matmul(ctx, {.m = rows,  // d normed [rows, C] = dlogits W, over the normed x, which nobody needs any more
                      .n = hidden_,
                      .k = vocab_,
                      .a = dlogits,
                      .ld_a = vocab_,
                      .transpose_a = false,
                      .b = call.params[kWeight],
                      .ld_b = hidden_,
                      .transpose_b = false,
                      .c = normed,
                      .ld_c = hidden_});
    norm_backward(ctx, {.x = call.x + first * hidden_,
                        .gain = call.params[kNormGain],
                        .mean = floats_at(call.workspace, scratch.mean),
                        .rstd = floats_at(call.workspace, scratch.rstd),
                        .dy = normed,
                        .n = rows,
                        .c = hidden_,
                        .dx = call.d + first * hidden_,
                        .dx_accumulate = false,
                        .dgain = call.grads[kNormGain],
                        .dbias = call.grads[kNormBias],
                        .accumulate_gain = accumulate(kNormGain),
                        .accumulate_bias = accumulate(kNormBias),
                        .workspace = call.workspace + scratch.norm});
  }

  void logits(const SegmentCall& call) const {
    SLUICE_CHECK(call.logits != nullptr, name());
    SLUICE_CHECK(call.position >= 0 && call.position < call.shape.sequence, name(), ": position ", call.position, " of ",
                 call.shape.sequence);
    const Scratch scratch(*this, Phase::kLogits, call.shape, call.ops->threads);
    float* const normed = floats_at(call.workspace, scratch.normed);
    for (std::int64_t row = 0; row < call.shape.rows; ++row) {
      const float* const x = call.x + (row * call.shape.sequence + call.position) * hidden_;
      ops::layer_norm_forward(*call.ops, x, call.params[kNormGain], call.params[kNormBias], eps_, 1, hidden_, normed + row * hidden_,
                              floats_at(call.workspace, scratch.mean) + row, floats_at(call.workspace, scratch.rstd) + row);
    }
    project(call, call.shape.rows, normed, call.logits);
  }

  std::int64_t vocab_, hidden_;
  double eps_;
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

std::unique_ptr<Segment> make_head_segment(HeadOptions options) {
  SLUICE_CHECK(options.params.size() == kParams, "head takes ", kParams, " parameters, got ", options.params.size());
  return std::make_unique<HeadSegment>(std::move(options));
}

}  // namespace sluice::model
