#pragma once
#include <string>

#include "train/engine.hpp"

namespace sluice::app {

/// Fills this rank's working parameters from a Hugging Face directory's safetensors, reading only the ranges it holds. Local.
/// Throws FormatError naming a tensor that is missing or has another shape.
void load_weights(train::Engine& engine, const std::string& directory);

}  // namespace sluice::app
