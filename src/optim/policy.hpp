#pragma once
// Which parameters form which optimizer group, when an update needs the norm of all gradients, and what clipping does.

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "model/model.hpp"
#include "spec/training_spec.hpp"

namespace sluice::optim {

/// Parameters of one group share chunks and hyperparameters. A frozen group has no gradients and no optimizer state.
struct Group {
  double weight_decay = 0;
  bool is_trained = true;
};

/// The classes that chunks are formed of.
struct Grouping {
  std::vector<Group> groups;
  std::vector<int> group_of;    // per parameter of the model
  DType storage = DType::kF32;  // of all working parameters
  int moments = 2;              // state planes of a trained parameter, see moments_of()

  bool trains(int param) const { return groups[static_cast<std::size_t>(group_of[static_cast<std::size_t>(param)])].is_trained; }
};

/// Group 0 decays, group 1 doesn't (absent ones are left out): every parameter decays under DecayOn::kAll, matrices only under
/// kMatrices. One group without decay when weight_decay is 0. What none of `training.trainable` finds in its name, ours or
/// transformers' with the family's prefix, forms a frozen group at the end. Throws RequestError for an expression that finds
/// nothing, with some names, or that is no regular expression.
Grouping group_parameters(const model::Model& model, const spec::TrainingSpec& training);

/// Of a model that is only asked, not trained: all parameters form one frozen group.
Grouping freeze_parameters(const model::Model& model, spec::Precision precision);

/// Planes of state that the optimizer keeps beside the parameters: Adam and AdamW two moments, Lion one, SGD its momentum buffer where it
/// has momentum, else none. They are the first ones of chunks::Plane's moments.
int moments_of(const spec::OptimizerSpec& optimizer);

/// Whether a step whose loss or gradients aren't finite changes nothing: always in fp16, in bf16 where it is asked for.
bool skips_overflow(const spec::TrainingSpec& training);

/// Whether no update may begin before the norm of all gradients is known: with clipping, and where an overflow skips the step.
bool needs_norm(const spec::TrainingSpec& training);

/// The factor that a gradient of global norm `norm` is multiplied by: min(1, max_norm / (norm + 1e-6)) as
/// torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0. In f32, since it multiplies f32.
float clip_factor(double norm, double max_norm);

}  // namespace sluice::optim
