#pragma once
#include "model/model.hpp"
#include "model/modules.hpp"

namespace sluice::model {

/// The model of `spec`, whose family (model/family.hpp) says what it is made of: parameters in first-use order with transformers' names and
/// shapes, initialised as transformers does; embedding, attention and MLP of each layer, head. Throws RequestError for an unknown family.
Model build_model(const spec::ModelSpec& spec, const ModuleFactory& factory);

}  // namespace sluice::model
