#include "model/segments.hpp"

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/rng.hpp"
#include "ops/fill.hpp"
#include "ops/layer_norm.hpp"

namespace sluice::model {

std::string NamedSegment::name() const {
  if (layer_ < 0) return std::string(name_of(kind_));
  return cat("layer ", layer_, " ", name_of(kind_));
}

void NamedSegment::check_call(Phase phase, const SegmentCall& call, bool grads) const {
  SLUICE_CHECK(has_phase(phase), name(), " has no phase ", name_of(phase));
  SLUICE_CHECK(call.ops != nullptr, name());
  SLUICE_CHECK(call.shape.rows > 0 && call.shape.sequence > 0, name(), ": ", call.shape.rows, " rows of ", call.shape.sequence);
  SLUICE_CHECK(call.params.size() == params_.size(), name(), ": ", call.params.size(), " parameters, expected ", params_.size());
  for (const float* param : call.params) SLUICE_CHECK(param != nullptr, name());
  if (!grads) return;
  SLUICE_CHECK(call.grads.size() == params_.size(), name(), ": ", call.grads.size(), " gradients, expected ", params_.size());
  SLUICE_CHECK(call.accumulate.size() == params_.size(), name(), ": ", call.accumulate.size(), " flags, expected ", params_.size());
  for (const float* grad : call.grads) SLUICE_CHECK(grad != nullptr, name());
}

ops::DropoutSite dropout_site(double rate, std::string_view site, std::int64_t layer, const StepView& step) {
  if (!step.training || rate == 0) return {};
  const std::uint64_t stream = Hash().add(site).add(static_cast<std::uint64_t>(layer)).add(static_cast<std::uint64_t>(step.step)).value();
  return {static_cast<float>(rate), rng_key(step.seed, RngPurpose::kDropout, stream)};
}

ops::RowPositions row_positions(const SegmentCall& call) {
  return {.sample_ids = call.sample_ids, .rows = call.shape.rows, .tokens = call.shape.sequence, .first_position = 0};
}

void norm_backward(const ops::Context& ctx, const NormBackward& args) {
  bool accumulate = args.accumulate_gain;
  if (args.accumulate_gain != args.accumulate_bias) {  // the op knows one flag: clear what is to be overwritten, then add to both
    ops::fill(ctx, args.accumulate_gain ? args.dbias : args.dgain, args.c, 0.0f);
    accumulate = true;
  }
  ops::layer_norm_backward(ctx, args.x, args.gain, args.mean, args.rstd, args.dy, args.n, args.c, args.dx, args.dx_accumulate, args.dgain,
                           args.dbias, accumulate, args.workspace);
}

Work operator+(const Work& a, const Work& b) {
  return {a.flops + b.flops, a.memory_bytes + b.memory_bytes};
}

Work traffic(double floats) {
  return {0, floats * static_cast<double>(sizeof(float))};
}

Work norm_forward_work(std::int64_t n, std::int64_t c) {
  const double rows = static_cast<double>(n), width = static_cast<double>(c);
  return traffic(2 * rows * width + 2 * width + 2 * rows);  // x, y; gain, bias; mean, rstd
}

Work norm_backward_work(std::int64_t n, std::int64_t c) {
  const double rows = static_cast<double>(n), width = static_cast<double>(c);
  return traffic(3 * rows * width + 3 * width + 2 * rows);  // x, dy, dx; gain, dgain, dbias; mean, rstd
}

Work product_work(std::int64_t m, std::int64_t n, std::int64_t k) {
  const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
  return Work{2 * dm * dn * dk, 0} + traffic(dm * dk + dk * dn + dm * dn);
}

Work linear_forward_work(std::int64_t n, std::int64_t in, std::int64_t out) {
  return product_work(n, out, in) + traffic(static_cast<double>(out));
}

Work linear_backward_work(std::int64_t n, std::int64_t in, std::int64_t out) {
  const double dy = static_cast<double>(n) * static_cast<double>(out);
  return product_work(n, in, out) + product_work(in, out, n) + traffic(dy + static_cast<double>(out));  // dx, dW; dy again and db
}

}  // namespace sluice::model
