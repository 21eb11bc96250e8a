#include "base/check.hpp"
#include "model/segments.hpp"
#include "ops/embedding.hpp"

namespace sluice::model {
namespace {

class EmbeddingSegment final : public NamedSegment {
 public:
  explicit EmbeddingSegment(EmbeddingOptions options)
      : NamedSegment(SegmentKind::kEmbedding, -1, std::move(options.params)),
        vocab_(options.vocab),
        context_(options.context),
        hidden_(options.hidden),
        dropout_(options.dropout) {}

  bool has_phase(Phase phase) const override { return phase == Phase::kForward || phase == Phase::kBackward; }
  std::int64_t saved_bytes(const Shape&) const override { return 0; }
  std::int64_t workspace_bytes(Phase, const Shape&, int) const override { return 0; }

  Work work(Phase phase, const Shape& shape) const override {
    const double activation = static_cast<double>(shape.tokens()) * static_cast<double>(hidden_);
    const double positions = static_cast<double>(shape.sequence) * static_cast<double>(hidden_);
    const double dropout = dropout_ > 0 ? 2 * activation : 0;
    if (phase == Phase::kForward) return traffic(2 * activation + positions + dropout);  // table rows, y; positions
    // d and the touched rows of the token table read and written; positions once. Clearing a table comes on top where the
    // step's first gradient overwrites it.
    if (phase == Phase::kBackward) return traffic(3 * activation + 2 * positions + dropout);
    return {};
  }

  void run(Phase phase, const SegmentCall& call) const override {
    check_call(phase, call, phase == Phase::kBackward);
    SLUICE_CHECK(call.inputs != nullptr, name());
    SLUICE_CHECK(call.shape.sequence <= context_, name(), ": ", call.shape.sequence, " tokens a row, the model has ", context_,
                 " positions");
    const ops::DropoutSite site = dropout_site(dropout_, "embedding", layer(), call.step);
    if (phase == Phase::kForward) {
      SLUICE_CHECK(call.y != nullptr, name());
      ops::embedding_forward(*call.ops, call.inputs, call.shape.rows, call.shape.sequence, 0, call.params[0], vocab_, call.params[1],
                             hidden_, call.y);
      if (site.rate > 0) ops::dropout_add(*call.ops, site, row_positions(call), hidden_, call.y, nullptr, call.y);
      return;
    }
    SLUICE_CHECK(call.d != nullptr, name());
    if (site.rate > 0) ops::dropout_backward(*call.ops, site, row_positions(call), hidden_, call.d, call.d);
    ops::embedding_backward(*call.ops, call.inputs, call.shape.rows, call.shape.sequence, 0, call.d, vocab_, context_, hidden_,
                            call.grads[0], call.accumulate[0] != 0, call.grads[1], call.accumulate[1] != 0);
  }

 private:
  std::int64_t vocab_, context_, hidden_;
  double dropout_;
};

}  // namespace

std::unique_ptr<Segment> make_embedding_segment(EmbeddingOptions options) {
  SLUICE_CHECK(options.params.size() == 2, "embedding takes 2 parameters, got ", options.params.size());
  return std::make_unique<EmbeddingSegment>(std::move(options));
}

}  // namespace sluice::model
