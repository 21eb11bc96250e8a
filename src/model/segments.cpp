#include "model/segments.hpp"

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/rng.hpp"

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
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Intake taken = intake(phase, i);
    const bool as_stored = taken == Intake::kStored && call.storage != DType::kF32;
    SLUICE_CHECK(taken == Intake::kUnused ||
                     (as_stored ? i < call.stored_params.size() && call.stored_params[i] != nullptr : call.params[i] != nullptr),
                 name(), ": parameter ", i, " is missing");
  }
  if (!grads) return;
  SLUICE_CHECK(call.grads.size() == params_.size(), name(), ": ", call.grads.size(), " gradients, expected ", params_.size());
  SLUICE_CHECK(call.accumulate.size() == params_.size(), name(), ": ", call.accumulate.size(), " flags, expected ", params_.size());
}

ops::DropoutSite dropout_site(double rate, std::string_view site, std::int64_t layer, const StepView& step) {
  if (!step.training || rate == 0) return {};
  const std::uint64_t stream = Hash().add(site).add(static_cast<std::uint64_t>(layer)).add(static_cast<std::uint64_t>(step.step)).value();
  return {static_cast<float>(rate), rng_key(step.seed, RngPurpose::kDropout, stream)};
}

ops::RowPositions row_positions(const SegmentCall& call) {
  return {.sample_ids = call.sample_ids,
          .rows = call.shape.rows,
          .tokens = call.shape.sequence,
          .first_position = 0,
          .document_starts = call.document_starts};
}

Work operator+(const Work& a, const Work& b) {
  return {a.flops + b.flops, a.memory_bytes + b.memory_bytes};
}

Work traffic(double floats) {
  return {0, floats * static_cast<double>(sizeof(float))};
}

Work product_work(std::int64_t m, std::int64_t n, std::int64_t k) {
  const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
  return Work{2 * dm * dn * dk, 0} + traffic(dm * dk + dk * dn + dm * dn);
}

}  // namespace sluice::model
