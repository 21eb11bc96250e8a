#pragma once
#include <string>

#include "spec/model_spec.hpp"
#include "train/engine.hpp"

namespace sluice::app {

/// Where the weights of a model are that is given as a path: the Hugging Face directory itself, or the newest whole checkpoint of a run.
/// Throws RequestError where there is none.
std::string source_of_weights(const std::string& path);

/// Looks whether load_weights() will find what it needs, by the headers alone: what is missing is told before hours of preparation. Local.
/// Throws as load_weights() does, but for damage in the numbers.
void check_weights(const std::string& source, const spec::ModelSpec& model);

/// Fills this rank's parameters from a Hugging Face directory's safetensors or from a checkpoint, reading only the ranges it holds, and its
/// moments with zeros. Local. Throws FormatError naming a tensor that is missing or has another shape, or what is damaged of a checkpoint;
/// RequestError for a directory with a pickle alone.
void load_weights(train::Engine& engine, const std::string& source);

}  // namespace sluice::app
