#pragma once
// Which parameters form which optimizer group, and what clipping does.

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.hpp"
#include "spec/training_spec.hpp"

namespace sluice::optim {

/// Parameters of one group share chunks and hyperparameters.
struct Group {
  double weight_decay = 0;
};

struct Grouping {
  std::vector<Group> groups;
  std::vector<int> group_of;  // per parameter of the model
};

/// Group 0 decays, group 1 doesn't (absent ones are left out): every parameter decays under DecayOn::kAll, matrices only under
/// kMatrices. One group without decay when weight_decay is 0.
Grouping group_parameters(std::span<const model::ParamSpec> params, const spec::OptimizerSpec& optimizer);

/// The factor that a gradient of global norm `norm` is multiplied by: min(1, max_norm / (norm + 1e-6)) as
/// torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0. In f32, since it multiplies f32.
float clip_factor(double norm, double max_norm);

}  // namespace sluice::optim
