#pragma once
// transformers' names of tensors and ours.

#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.hpp"
#include "model/model.hpp"

namespace sluice::formats {

/// Our name of a tensor of a transformers checkpoint of this model: without the prefix ("transformer.", "model.", "model.decoder."),
/// which a language model writes, or what is left of it where the bare model was saved. "lm_head.weight" is the same in all.
std::string_view parameter_name(const spec::ModelSpec& model, std::string_view tensor);

/// Whether our name is one of the constants that older versions of transformers saved along (h.N.attn.bias, the causal mask, and
/// h.N.attn.masked_bias; layers.N.self_attn.rotary_emb.inv_freq and rotary_emb.inv_freq), which are no parameters.
bool is_saved_constant(std::string_view name);

/// The name under which the language model in transformers looks for our parameter.
std::string tensor_name(const spec::ModelSpec& model, std::string_view parameter);

/// For each parameter of the model its tensor in the files, with or without the prefix; constants and, with a tied head
/// (no parameter "lm_head.weight"), "lm_head.weight" are passed over. With a tied head a checkpoint that kept "lm_head.weight"
/// alone gives it for the token table. Throws FormatError naming the tensor that is missing, has another shape or stands there
/// under both names, or that belongs to no parameter. The pointers live as long as `files`.
std::vector<const TensorInfo*> match_parameters(const Safetensors& files, const model::Model& model);

}  // namespace sluice::formats
