#include "base/check.hpp"
#include "model/segments.hpp"
#include "ops/embedding.hpp"

namespace sluice::model {
namespace {

enum Param { kTable, kPositions };  // places in a call's parameters

class EmbeddingSegment final : public NamedSegment {
 public:
  explicit EmbeddingSegment(const EmbeddingOptions& options) : NamedSegment(SegmentKind::kEmbedding, -1), options_(options) {
    ParamList params;
    params.add(options.table);
    has_positions_ = params.add(options.positions) >= 0;
    set_params(params);
  }

  bool has_phase(Phase phase) const override { return phase == Phase::kForward || phase == Phase::kBackward; }
  std::int64_t saved_bytes(const Shape&) const override { return 0; }
  std::int64_t workspace_bytes(Phase, const Shape&, int) const override { return 0; }
  Intake intake(Phase phase, std::size_t index) const override {
    if (phase == Phase::kBackward) return Intake::kUnused;
    return index == kTable ? Intake::kStored : Intake::kWidened;  // a few rows of many
  }

  Work work(Phase phase, const Shape& shape) const override {
    const double activation = static_cast<double>(shape.tokens()) * static_cast<double>(options_.hidden);
    const double positions = has_positions_ ? static_cast<double>(shape.sequence) * static_cast<double>(options_.hidden) : 0;
    const double dropout = options_.dropout > 0 ? 2 * activation : 0;
    if (phase == Phase::kForward) return traffic(2 * activation + positions + dropout);  // table rows, y; positions
    // d and the touched rows of the token table read and written; positions once. Clearing a table comes on top where the
    // step's first gradient overwrites it.
    if (phase == Phase::kBackward) return traffic(3 * activation + 2 * positions + dropout);
    return {};
  }

  void run(Phase phase, const SegmentCall& call) const override {
    check_call(phase, call, phase == Phase::kBackward);
    SLUICE_CHECK(call.inputs != nullptr, name());
    SLUICE_CHECK(call.shape.sequence <= options_.context, name(), ": ", call.shape.sequence, " tokens a row, the model has ",
                 options_.context, " positions");
    const ops::DropoutSite site = dropout_site(options_.dropout, "embedding", layer(), call.step);
    const ops::EmbeddedTokens tokens{call.inputs, call.shape.rows, call.shape.sequence, options_.first_position_row, call.document_starts};
    const std::int64_t hidden = options_.hidden, vocab = options_.vocab;
    if (phase == Phase::kForward) {
      SLUICE_CHECK(call.y != nullptr, name());
      const float* const positions = has_positions_ ? call.params[kPositions] : nullptr;
      if (call.storage == DType::kF32) {
        ops::embedding_forward(*call.ops, tokens, call.params[kTable], vocab, positions, hidden, call.y);
      } else {
        ops::embedding_forward(*call.ops, tokens, call.stored_params[kTable], call.storage, vocab, positions, hidden, call.y);
      }
      if (site.rate > 0) ops::dropout_add(*call.ops, site, row_positions(call), hidden, call.y, nullptr, call.y);
      return;
    }
    SLUICE_CHECK(call.d != nullptr, name());
    if (site.rate > 0) ops::dropout_backward(*call.ops, site, row_positions(call), hidden, call.d, call.d);
    ops::embedding_backward(*call.ops, tokens, call.d, vocab, options_.padding, options_.position_rows, hidden, call.grads[kTable],
                            call.accumulate[kTable] != 0, has_positions_ ? call.grads[kPositions] : nullptr,
                            has_positions_ && call.accumulate[kPositions] != 0);
  }

 private:
  EmbeddingOptions options_;
  bool has_positions_ = false;
};

}  // namespace

std::unique_ptr<Segment> make_embedding_segment(const EmbeddingOptions& options) {
  return std::make_unique<EmbeddingSegment>(options);
}

}  // namespace sluice::model
