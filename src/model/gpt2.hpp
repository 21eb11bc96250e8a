#pragma once
// GPT-2 (Radford et al. 2019): pre-norm blocks, learned positions, tanh GELU, tied head.

#include "model/model.hpp"
#include "model/modules.hpp"

namespace sluice::model {

/// Parameters in first-use order with transformers' names; residual projections initialised with init_std / sqrt(2 * layers),
/// as transformers does. Throws RequestError for an unknown family.
Model build_model(const spec::ModelSpec& spec, const ModuleFactory& factory);

}  // namespace sluice::model
