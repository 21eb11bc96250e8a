#pragma once
// config.json of a Hugging Face GPT-2 directory.

#include <string>

#include "spec/model_spec.hpp"

namespace sluice::formats {

/// The ModelSpec that a GPT-2 config.json describes. Every key must be one we know: those that change arithmetic in a way we
/// don't compute (scale_attn_by_inverse_layer_idx, another activation, ...) are refused with a RequestError naming key and
/// value; those that don't touch training (token ids, generation, ...) are ignored; others are refused as unknown. Sizes must
/// be written; what transformers gives a default (dropout 0.1, layer_norm_epsilon 1e-5, initializer_range 0.02, n_inner
/// 4 * n_embd, tied head) takes it when absent. Mistyped values and broken JSON: FormatError. `name` becomes the spec's name.
/// Source: transformers, GPT2Config.
spec::ModelSpec model_spec_from_config(const std::string& text, const std::string& source, const std::string& name);

/// The same of DIRECTORY/config.json; the directory's last part is the name. Also throws IoError.
spec::ModelSpec load_config(const std::string& directory);

/// config.json from which transformers builds this model; model_spec_from_config reads it back equal but for the name.
/// Throws RequestError for a family other than "gpt2".
std::string config_from_model_spec(const spec::ModelSpec& model);

}  // namespace sluice::formats
