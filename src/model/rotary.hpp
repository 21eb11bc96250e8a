#pragma once
// The frequencies of rotary positions.

#include <cstdint>
#include <vector>

#include "spec/model_spec.hpp"

namespace sluice::model {

/// [head_dim / 2] angles that a position adds: f_i = theta^(-2 i / head_dim), then stretched as `rope.scaling` says:
///   linear  f_i / factor (Chen et al. 2023, "Position Interpolation")
///   llama3  by the wavelength w = 2 pi / f_i: f_i below original_context / high_frequency_factor, f_i / factor above original_context /
///           low_frequency_factor, between them (1 - s) f_i / factor + s f_i with s = (original_context / w - low) / (high - low)
///           (Llama 3.1's reference code, apply_scaling)
/// In f32, operation by operation as transformers (modeling_rope_utils.py), since at long positions the last bit of a frequency
/// turns a vector visibly; the power, of which libraries round the last bit differently, is the correctly rounded one.
/// Empty where the model has no rotary positions.
std::vector<float> inverse_frequencies(const spec::RopeSpec& rope, std::int64_t head_dim);

}  // namespace sluice::model
