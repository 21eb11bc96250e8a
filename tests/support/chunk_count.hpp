#pragma once
// How many chunks a plan's homes are for.

#include <cstdint>
#include <string>

#include "chunks/layout.hpp"
#include "formats/config_json.hpp"
#include "model/build.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"

namespace sluice::testing {

/// Chunks of a model directory's parameters, all of them decayed as by a written optimizer block, in plans with chunks of that capacity.
inline std::int64_t chunk_count(const std::string& model, std::int64_t capacity) {
  const model::Model built = model::build_model(formats::load_config(model), *parallel::make_unsharded_modules());
  spec::TrainingSpec training;
  training.optimizer.decay_on = spec::DecayOn::kAll;
  return static_cast<std::int64_t>(chunks::ChunkLayout(built.params, optim::group_parameters(built, training), capacity).chunks().size());
}

}  // namespace sluice::testing
