#pragma once
// Plans of a tiny model over what may become of saved tensors, and over both orders of micro-batches.

#include <string>
#include <vector>

#include "support/graph_inputs.hpp"

namespace sluice::testing {

/// Each policy in turn among the segments of a model, `first` on.
inline std::vector<spec::Activation> mixed_activations(std::int64_t layers, int first) {
  std::vector<spec::Activation> activations;
  for (int s = 0; s < 2 * layers + 2; ++s) activations.push_back(static_cast<spec::Activation>((s + first) % spec::kActivationCount));
  return activations;
}

/// Calls visit(inputs, description) for ZeRO 0 to 3 and, where it is allowed, both orders, with every update mode; policies, storage,
/// tied and untied heads, frozen parameters, accumulation, chunk size, prefetch and agrees varied along.
template <typename Visit>
void for_each_activation_case(int ranks, Visit visit) {
  spec::ModelSpec model = tiny_model_without_dropout();
  int n = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto order : {spec::MicroBatchOrder::kDepthFirst, spec::MicroBatchOrder::kLayerByLayer}) {
      if (order == spec::MicroBatchOrder::kLayerByLayer && stage < 2) continue;
      for (const auto mode : {spec::UpdateMode::kAtEnd, spec::UpdateMode::kNextForward, spec::UpdateMode::kInBackward}) {
        for (const bool whole : {false, true}) {
          spec::TrainingSpec training;
          training.precision = n % 3 == 1 ? spec::Precision::kBf16 : spec::Precision::kFp32;
          training.batch.sequence_length = 16;
          training.optimizer.weight_decay = 0.1;
          training.optimizer.gradient_clipping = mode == spec::UpdateMode::kInBackward ? 0 : 1;
          if (n % 7 == 5) training.trainable = {"h\\.[12]\\."};
          model.tied_head = n % 4 < 2;
          spec::Plan plan;
          plan.zero_stage = stage;
          plan.mesh.data = ranks;
          plan.update_mode = mode;
          plan.order = order;
          plan.micro_batch = 2;
          plan.accumulation = 1 + (n + 1) % 4;
          plan.chunk_elements = n % 2 == 0 ? 5120 : 20480;
          plan.prefetch_segments = n / 2 % 3;
          plan.threads = 1;
          plan.activations = mixed_activations(model.layers, n);
          // One policy for all has neighbours that are in flight at the same time.
          if (whole) plan.activations.assign(plan.activations.size(), n % 4 < 2 ? spec::Activation::kDisk : spec::Activation::kHost);
          const int between = n % 5 == 3 ? 2 : 0;
          const GraphInputs inputs(model, training, plan, between);
          visit(inputs, "zero_stage " + std::to_string(stage) + ", " + std::string(name_of(order)) + ", " + std::string(name_of(mode)) +
                            ", activations " + (whole ? "all " + std::string(name_of(plan.activations.front())) : "mixed") +
                            ", accumulation " + std::to_string(plan.accumulation) + ", prefetch " + std::to_string(plan.prefetch_segments) +
                            ", agrees every " + std::to_string(between));
          ++n;
        }
      }
    }
  }
}

}  // namespace sluice::testing
