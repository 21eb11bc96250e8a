#include "optim/loss_scale.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace sluice::optim {

LossScaler::LossScaler(const spec::LossScaleSpec& spec) : spec_(spec) {
  SLUICE_CHECK(std::isfinite(spec.fixed) && spec.fixed >= 0, "a loss scale of ", spec.fixed);
  SLUICE_CHECK(spec.window > 0 && spec.hysteresis > 0 && spec.min_scale > 0, "a loss scale with window ", spec.window, ", hysteresis ",
               spec.hysteresis, ", minimum ", spec.min_scale);
  state_.scale = spec.fixed > 0 ? spec.fixed : std::ldexp(1.0, spec.initial_power);
  state_.hysteresis = spec.hysteresis;
}

void LossScaler::restore(const spec::LossScaleState& state) {
  SLUICE_CHECK(std::isfinite(state.scale) && state.scale > 0 && state.hysteresis > 0 && state.clean_steps >= 0, "a loss scale of ",
               state.scale, " with hysteresis ", state.hysteresis, " after ", state.clean_steps, " clean steps");
  state_ = state;
}

OverflowOutcome LossScaler::update(bool overflow) {
  if (spec_.fixed > 0) return overflow ? OverflowOutcome::kFixed : OverflowOutcome::kNone;
  if (overflow) {
    if (spec_.hysteresis > 1 && state_.hysteresis > 1) {
      --state_.hysteresis;
      state_.clean_steps = 0;
      return OverflowOutcome::kHysteresis;
    }
    if (state_.scale == spec_.min_scale) return OverflowOutcome::kAtMinimum;
    state_.scale = std::max(state_.scale / 2, spec_.min_scale);
    state_.clean_steps = 0;
    return OverflowOutcome::kHalved;
  }
  const bool window_ends = state_.clean_steps > 0 && state_.clean_steps % spec_.window == 0;
  if (spec_.consecutive_hysteresis || window_ends) state_.hysteresis = spec_.hysteresis;
  if (window_ends) state_.scale *= 2;
  ++state_.clean_steps;
  return OverflowOutcome::kNone;
}

}  // namespace sluice::optim
