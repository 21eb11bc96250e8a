#include "model/model.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/rng.hpp"
#include "model/family.hpp"
#include "ops/fill.hpp"

namespace sluice::model {

std::int64_t ParamSpec::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

void initialise(const ops::Context& ops, const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count,
                float* values) {
  if (param.init == Init::kZeros) return ops::fill(ops, values, count, 0.0f);
  if (param.init == Init::kOnes) return ops::fill(ops, values, count, 1.0f);
  const auto key = rng_key(seed, RngPurpose::kInit, Hash().add(param.name).value());
  ops::fill_normal(ops, values, count, static_cast<float>(param.init_std), key, static_cast<std::uint64_t>(first));
  if (param.zero_row < 0) return;
  const std::int64_t width = param.elements() / param.shape.front();
  const std::int64_t begin = std::max(first, param.zero_row * width), end = std::min(first + count, (param.zero_row + 1) * width);
  if (begin < end) ops::fill(ops, values + (begin - first), end - begin, 0.0f);
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
  const Family& family = family_of(spec);
  const auto c = static_cast<double>(spec.hidden), f = static_cast<double>(spec.ffn), layers = static_cast<double>(spec.layers);
  const auto d = static_cast<double>(spec.head_width());
  const double queries = static_cast<double>(spec.heads) * d, qkv = queries + 2 * static_cast<double>(spec.key_value_heads()) * d;
  const double norm = family.norm == NormKind::kLayer ? 2 * c : c;
  const double inner = family.activation == Activation::kSiluGate ? 2 * f : f;  // width of what goes into the activation
  const double products = c * qkv + queries * c + c * inner + f * c;
  const double biases = (family.qkv_bias ? qkv : 0) + (family.out_bias ? c : 0) + (family.mlp_bias ? inner + c : 0);
  const double block = products + biases + 2 * norm + (family.has_query_key_norm ? 2 * d : 0);
  const std::int64_t seen = spec.sliding_window > 0 ? std::min(sequence, spec.sliding_window) : sequence;
  const double tables = static_cast<double>(spec.vocab) * c * (spec.tied_head ? 1 : 2);
  const double n = tables + layers * block + norm;
  return static_cast<double>(tokens) * (6 * n + 12 * layers * queries * static_cast<double>(seen));
}

}  // namespace sluice::model
