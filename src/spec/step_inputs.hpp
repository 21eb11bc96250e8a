#pragma once
// What varies from step to step. The graph never branches on it; bodies read it.

#include <cstdint>
#include <limits>

namespace sluice::spec {

/// The update that a step's `update` tasks apply: of this step with at_end and in_backward, of the step before with
/// next_forward (`apply` false in the first step).
struct UpdateInputs {
  bool apply = false;
  double learning_rate = 0;
  std::int64_t count = 0;  // Adam's t of this update, from 1
};

struct StepInputs {
  std::int64_t step = 0;   // 1-based number of the step being run
  std::uint64_t seed = 0;  // of dropout
  UpdateInputs update;
  bool training = true;   // dropout on
  double loss_scale = 1;  // of gradients on their way; updates and the reported norm are free of it
};

}  // namespace sluice::spec
