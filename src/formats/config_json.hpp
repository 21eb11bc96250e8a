#pragma once
// config.json of a Hugging Face directory.

#include <string>

#include "base/dtype.hpp"
#include "spec/model_spec.hpp"

namespace sluice::formats {

/// The ModelSpec that a config.json describes, of any family that model/family.hpp knows. Every key must be one we know: those that
/// change arithmetic in a way we don't compute (another activation, biases where the family has none, dynamic or yarn rope scaling,
/// windows in some layers only, OPT's norms after the blocks, quantization, ...) are refused with a RequestError naming key and
/// value; those that don't touch training (generation, other tasks, ...) are ignored; others are refused as unknown. Sizes must
/// be written; what transformers gives a default (dropouts, eps, token ids, tied head, ...) takes it when absent. Rotary positions
/// are read from "rope_theta" and "rope_scaling" (transformers 4) or "rope_parameters" (5). Mistyped values and broken JSON:
/// FormatError. `name` becomes the spec's name.
/// Source: transformers 5.24, configuration_*.py of each family and modeling_rope_utils.py.
spec::ModelSpec model_spec_from_config(const std::string& text, const std::string& source, const std::string& name);

/// The same of DIRECTORY/config.json; the directory's last part is the name. Also throws IoError.
spec::ModelSpec load_config(const std::string& directory);

/// config.json from which transformers 4 and 5 build this model; model_spec_from_config reads it back equal but for the name.
/// `dtype`: of the weights beside it. Throws RequestError for an unknown family.
std::string config_from_model_spec(const spec::ModelSpec& model, DType dtype);

}  // namespace sluice::formats
