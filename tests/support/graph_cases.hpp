#pragma once
// Plans of a tiny model over every degree of freedom that changes a graph.

#include <string>

#include "support/activation_cases.hpp"
#include "support/graph_inputs.hpp"
#include "support/home_cases.hpp"

namespace sluice::testing {

/// Calls visit(inputs, description) for ZeRO 0 to 3, every update mode, recompute and keep, fp32 and 16-bit storage, with
/// accumulation, chunk size, prefetch, agrees within a micro-batch and room in the rCache varied along; then for every plan of
/// for_each_home_case and for_each_activation_case.
template <typename Visit>
void for_each_graph_case(int ranks, Visit visit) {
  const spec::ModelSpec model = tiny_model_without_dropout();
  int n = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto mode : {spec::UpdateMode::kAtEnd, spec::UpdateMode::kNextForward, spec::UpdateMode::kInBackward}) {
      for (const int choice : {0, 1, 2, 3}) {
        const bool recompute = choice % 2 == 1;
        spec::TrainingSpec training;
        // An overflow is looked for before any update, so in_backward has no fp16.
        const auto narrow = n % 2 == 0 && mode != spec::UpdateMode::kInBackward ? spec::Precision::kFp16 : spec::Precision::kBf16;
        training.precision = choice < 2 ? spec::Precision::kFp32 : narrow;
        training.batch.sequence_length = 16;
        training.optimizer.weight_decay = 0.1;
        training.optimizer.gradient_clipping = mode == spec::UpdateMode::kInBackward ? 0 : 1;
        spec::Plan plan;
        plan.zero_stage = stage;
        plan.mesh.data = ranks;
        plan.update_mode = mode;
        plan.micro_batch = 2;
        plan.accumulation = 1 + n % 3;
        plan.chunk_elements = n % 2 == 0 ? 20480 : 5120;
        plan.prefetch_segments = n / 2 % 3;
        plan.threads = 1;
        plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2),
                                recompute ? spec::Activation::kRecompute : spec::Activation::kKeep);
        const int between = n % 4 == 3 ? 2 : 0;
        if (n % 5 == 0) plan.rcache_elements = std::int64_t{1} << 30;
        const GraphInputs inputs(model, training, plan, between);
        visit(inputs, "zero_stage " + std::to_string(stage) + ", " + std::string(name_of(mode)) + (recompute ? ", recompute" : ", keep") +
                          ", accumulation " + std::to_string(plan.accumulation) + ", prefetch " + std::to_string(plan.prefetch_segments) +
                          ", agrees every " + std::to_string(between));
        ++n;
      }
    }
  }
  for_each_home_case(ranks, visit);
  for_each_activation_case(ranks, visit);
}

}  // namespace sluice::testing
