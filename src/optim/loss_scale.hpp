#pragma once
// The scale of fp16's gradients: as large as it can be without an overflow, found by trying.

#include <cstdint>

#include "spec/training_spec.hpp"

namespace sluice::optim {

/// What an overflow leads to.
enum class OverflowOutcome : std::uint8_t { kNone, kFixed, kHysteresis, kHalved, kAtMinimum };

/// DeepSpeed's rule. A step whose gradients overflow is skipped, and then
///   hysteresis left (more than 1): one less, the scale stays;
///   else the scale halves, but not below min_scale; at min_scale already: kAtMinimum, and nothing changes.
/// A clean step after a whole number (1, 2, ...) of windows of clean steps doubles the scale and restores the hysteresis; with
/// consecutive_hysteresis every clean step restores it. A fixed scale never changes.
/// Source: DeepSpeed 0.19.8, runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale.
class LossScaler {
 public:
  explicit LossScaler(const spec::LossScaleSpec& spec);
  double scale() const noexcept { return state_.scale; }
  const spec::LossScaleState& state() const noexcept { return state_; }
  void restore(const spec::LossScaleState& state);
  /// After each step, skipped or not.
  OverflowOutcome update(bool overflow);

 private:
  spec::LossScaleSpec spec_;
  spec::LossScaleState state_;
};

}  // namespace sluice::optim
