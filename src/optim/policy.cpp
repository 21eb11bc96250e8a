#include "optim/policy.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"

namespace sluice::optim {

Grouping group_parameters(std::span<const model::ParamSpec> params, const spec::OptimizerSpec& optimizer) {
  const bool any_decay = optimizer.weight_decay != 0;
  const auto decays = [&](const model::ParamSpec& param) {
    return any_decay && (optimizer.decay_on == spec::DecayOn::kAll || param.matrix);
  };
  Grouping grouping;
  std::array<int, 2> index_of = {-1, -1};  // of the decaying group, of the other
  if (std::ranges::any_of(params, decays)) {
    index_of[0] = static_cast<int>(grouping.groups.size());
    grouping.groups.push_back({optimizer.weight_decay});
  }
  if (!std::ranges::all_of(params, decays)) {
    index_of[1] = static_cast<int>(grouping.groups.size());
    grouping.groups.push_back({0.0});
  }
  grouping.group_of.reserve(params.size());
  for (const model::ParamSpec& param : params) grouping.group_of.push_back(index_of[decays(param) ? 0 : 1]);
  return grouping;
}

float clip_factor(double norm, double max_norm) {
  SLUICE_CHECK(max_norm >= 0, "max norm ", max_norm);
  if (max_norm == 0) return 1.0f;
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1.0f : static_cast<float>(factor);  // a NaN norm stays NaN, never a factor of 1
}

}  // namespace sluice::optim
