#include "schedule/staging.hpp"

#include "base/units.hpp"
#include "schedule/place.hpp"

namespace sluice::schedule {
namespace {

using model::Phase;

constexpr std::int64_t kFloat = sizeof(float);
constexpr double kConversionBytes = 6;  // an element: 2 on the narrow side, 4 on the wide one

}  // namespace

std::int64_t stored_activation_bytes(const model::Model& model, const model::Shape& shape, DType storage) {
  return model.activation_bytes(shape) / kFloat * size_of(storage);
}

std::int64_t stored_saved_bytes(const model::Segment& segment, const model::Shape& shape, DType storage) {
  const std::int64_t bytes = segment.saved_bytes(shape);
  if (storage == DType::kF32) return bytes;
  const std::int64_t exact = segment.saved_exact_bytes(shape);
  return round_up((bytes - exact) / kFloat * size_of(storage), kBufferAlignment) + exact;
}

Staging make_staging(const model::Model& model, const model::Segment& segment, Phase phase, const model::Shape& shape, DType storage,
                     bool stores_saved) {
  Staging staging;
  if (storage == DType::kF32) return staging;
  const auto params = segment.params();
  staging.params.assign(params.size(), -1);
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t offset = staging.bytes;
    staging.bytes += round_up(bytes, kBufferAlignment);
    return offset;
  };
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (segment.intake(phase, i) != model::Intake::kWidened) continue;
    const std::int64_t elements = model.params[static_cast<std::size_t>(params[i])].elements();
    staging.params[i] = take(elements * kFloat);
    staging.traffic_bytes += kConversionBytes * static_cast<double>(elements);
  }
  if (const std::int64_t bytes = segment.widening_bytes(phase); bytes > 0) staging.widening = take(bytes);
  const bool embeds = segment.kind() == model::SegmentKind::kEmbedding, is_head = segment.kind() == model::SegmentKind::kHead;
  const bool backward = phase == Phase::kBackward || phase == Phase::kForwardBackward;
  staging.activation_elements = model.activation_bytes(shape) / kFloat;
  const auto activation = [&](double conversions) {
    staging.traffic_bytes += conversions * kConversionBytes * static_cast<double>(staging.activation_elements);
    return take(staging.activation_elements * kFloat);
  };
  if (!embeds) staging.x = activation(1);
  if (phase == Phase::kForward && !is_head) staging.y = activation(1);
  // The head only writes d, the embedding only reads it.
  if (backward) staging.d = activation(is_head || embeds ? 1 : 2);
  if (const std::int64_t saved = segment.saved_bytes(shape); saved > 0 && phase != Phase::kLogits) {
    staging.saved = take(saved);
    staging.saved_exact_bytes = segment.saved_exact_bytes(shape);
    staging.saved_elements = (saved - staging.saved_exact_bytes) / kFloat;
    staging.saved_exact_offset = stored_saved_bytes(segment, shape, storage) - staging.saved_exact_bytes;
    if (phase != Phase::kForward || stores_saved)
      staging.traffic_bytes +=
          kConversionBytes * static_cast<double>(staging.saved_elements) + 2.0 * static_cast<double>(staging.saved_exact_bytes);
  }
  return staging;
}

}  // namespace sluice::schedule
