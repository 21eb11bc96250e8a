#pragma once
// Plans of a tiny model over the homes of its chunks.

#include <algorithm>
#include <string>
#include <vector>

#include "support/graph_inputs.hpp"

namespace sluice::testing {

/// The homes of a trained chunk that a ZeRO stage and an update mode allow, as far as anything leaves the device.
inline std::vector<spec::ChunkHomes> homes_of_stage(int stage, spec::UpdateMode mode) {
  using enum spec::Tier;
  std::vector<spec::ChunkHomes> homes;
  for (const spec::Tier working : {kDevice, kHost, kDisk}) {
    for (const spec::Tier gradient : {kDevice, kHost, kDisk}) {
      for (const spec::Tier states : {kHost, kDisk}) {
        const bool is_allowed = (working == kDevice || stage == 3) && (gradient == kDevice || stage >= 2) &&
                                (gradient != kDisk || mode != spec::UpdateMode::kInBackward);
        if (is_allowed && working <= states && gradient <= states) homes.push_back({working, gradient, states});
      }
    }
  }
  return homes;
}

inline std::string words_of(const spec::ChunkHomes& homes) {
  return "working " + std::string(name_of(homes.working)) + ", gradient " + std::string(name_of(homes.gradient)) + ", states " +
         std::string(name_of(homes.states));
}

/// The plan with the same homes for every chunk, or with `homes` and the device in turn.
inline spec::Plan with_homes(const spec::ModelSpec& model, const spec::TrainingSpec& training, spec::Plan plan,
                             const std::vector<spec::ChunkHomes>& homes) {
  plan.homes.clear();
  const std::size_t chunks = GraphInputs(model, training, plan).layout().chunks().size();
  for (std::size_t c = 0; c < chunks; ++c) plan.homes.push_back(homes[c % homes.size()]);
  return plan;
}

/// Calls visit(inputs, description) for every ZeRO stage with all homes that it allows, alone and mixed, and every update mode; storage,
/// frozen parameters, order, accumulation, chunk size, and how far gathers and states are fetched ahead are varied along.
template <typename Visit>
void for_each_home_case(int ranks, Visit visit) {
  spec::ModelSpec model = tiny_model_without_dropout();
  int n = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto mode : {spec::UpdateMode::kAtEnd, spec::UpdateMode::kNextForward, spec::UpdateMode::kInBackward}) {
      std::vector<std::vector<spec::ChunkHomes>> choices;
      for (const spec::ChunkHomes& homes : homes_of_stage(stage, mode)) choices.push_back({homes});
      choices.push_back(homes_of_stage(stage, mode));
      choices.back().emplace_back();  // some stay
      for (const std::vector<spec::ChunkHomes>& homes : choices) {
        spec::TrainingSpec training;
        training.precision = n % 3 == 0 ? spec::Precision::kFp32 : spec::Precision::kBf16;
        if (n % 9 == 2 && mode != spec::UpdateMode::kInBackward) training.precision = spec::Precision::kFp16;
        training.batch.sequence_length = 16;
        training.optimizer.weight_decay = 0.1;
        training.optimizer.gradient_clipping = mode == spec::UpdateMode::kInBackward ? 0 : 1;
        if (n % 5 == 3) training.optimizer.kind = n % 2 == 0 ? spec::OptimizerKind::kLion : spec::OptimizerKind::kSgd;  // one moment, none
        if (n % 7 == 5) training.trainable = {"h\\.[12]\\."};
        model.tied_head = n % 4 < 2;
        spec::Plan plan;
        plan.zero_stage = stage;
        plan.mesh.data = ranks;
        plan.update_mode = mode;
        plan.micro_batch = 2;
        plan.accumulation = n % 2 == 0 ? 1 : 4;
        plan.chunk_elements = n / 2 % 2 == 0 ? 5120 : 20480;
        plan.prefetch_segments = n % 3;
        plan.state_prefetch = n / 3 % 3;
        plan.threads = 1;
        if (stage >= 2 && n % 4 == 1) plan.order = spec::MicroBatchOrder::kLayerByLayer;
        if (n % 5 == 0) plan.rcache_elements = std::int64_t{1} << 30;
        plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2),
                                n % 6 == 4 ? spec::Activation::kRecompute : spec::Activation::kKeep);
        const int between = n % 5 == 3 ? 2 : 0;
        const GraphInputs inputs(model, training, with_homes(model, training, plan, homes), between);
        visit(inputs, "zero_stage " + std::to_string(stage) + ", " + std::string(name_of(plan.order)) + ", " + std::string(name_of(mode)) +
                          ", " + (homes.size() > 1 ? "mixed homes" : words_of(homes.front())) + ", accumulation " +
                          std::to_string(plan.accumulation) + ", prefetch " + std::to_string(plan.prefetch_segments) + ", of states " +
                          std::to_string(plan.state_prefetch) + (inputs.layout().has_master() ? ", 16 bits" : ", fp32"));
        ++n;
      }
    }
  }
}

}  // namespace sluice::testing
