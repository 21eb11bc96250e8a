#include "model/model.hpp"

#include "base/check.hpp"

namespace sluice::model {

std::int64_t ParamSpec::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::string_view name_of(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kEmbedding:
      return "embedding";
    case SegmentKind::kAttention:
      return "attention";
    case SegmentKind::kMlp:
      return "mlp";
    case SegmentKind::kHead:
      return "head";
  }
  SLUICE_CHECK(false, "segment kind ", static_cast<int>(kind));
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kRecompute:
      return "recompute";
    case Phase::kBackward:
      return "backward";
    case Phase::kForwardBackward:
      return "forward_backward";
    case Phase::kLogits:
      return "logits";
  }
  SLUICE_CHECK(false, "phase ", static_cast<int>(phase));
}

std::int64_t Model::parameter_count() const {
  std::int64_t n = 0;
  for (const ParamSpec& param : params) n += param.elements();
  return n;
}

std::int64_t Model::activation_bytes(const Shape& shape) const {
  return shape.tokens() * spec.hidden * static_cast<std::int64_t>(sizeof(float));
}

double model_flops(const spec::ModelSpec& spec, std::int64_t tokens, std::int64_t sequence) {
  const double c = static_cast<double>(spec.hidden);
  const double f = static_cast<double>(spec.ffn);
  const double layers = static_cast<double>(spec.layers);
  const double block = 4 * c * c + 2 * c * f + 4 * c + f + c + 4 * c;  // products, their biases, two norms
  const double tables = static_cast<double>(spec.vocab) * c * (spec.tied_head ? 1 : 2);
  const double n = tables + layers * block + 2 * c;
  return static_cast<double>(tokens) * (6 * n + 12 * layers * c * static_cast<double>(sequence));
}

}  // namespace sluice::model
