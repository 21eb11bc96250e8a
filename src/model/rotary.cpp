#include "model/rotary.hpp"

#include <cmath>
#include <numbers>

namespace sluice::model {
namespace {

float llama3(const spec::RopeSpec& rope, float frequency) {
  const auto context = static_cast<double>(rope.original_context);
  const double low = rope.low_frequency_factor, high = rope.high_frequency_factor;
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = (1.0f / frequency) * static_cast<float>(2 * std::numbers::pi);
  const auto longest = static_cast<float>(context / low), shortest = static_cast<float>(context / high);
  if (wavelength > longest) return frequency / factor;
  if (wavelength < shortest) return frequency;
  const float smooth = ((1.0f / wavelength) * static_cast<float>(context) - static_cast<float>(low)) / static_cast<float>(high - low);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> inverse_frequencies(const spec::RopeSpec& rope, std::int64_t head_dim) {
  std::vector<float> frequencies;
  if (rope.theta == 0) return frequencies;
  const auto base = static_cast<float>(rope.theta);
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    switch (rope.scaling) {
      case spec::RopeScaling::kNone:
        frequencies.push_back(frequency);
        break;
      case spec::RopeScaling::kLinear:
        frequencies.push_back(frequency / static_cast<float>(rope.factor));
        break;
      case spec::RopeScaling::kLlama3:
        frequencies.push_back(llama3(rope, frequency));
        break;
    }
  }
  return frequencies;
}

}  // namespace sluice::model
