#include "formats/hf_names.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "model/family.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

constexpr std::string_view kHead = "lm_head.weight";

const std::string& path_of(const Safetensors& files, const TensorInfo& tensor) {
  return files.files()[static_cast<std::size_t>(tensor.file)].path();
}

/// Our name -> tensor, constants left out.
std::map<std::string_view, const TensorInfo*> by_parameter_name(const Safetensors& files, const spec::ModelSpec& model) {
  std::map<std::string_view, const TensorInfo*> found;
  for (const TensorInfo& tensor : files.tensors()) {
    const std::string_view name = parameter_name(model, tensor.name);
    if (is_saved_constant(name)) continue;
    const auto [at, is_new] = found.emplace(name, &tensor);
    if (!is_new) {
      throw FormatError(path_of(files, tensor),
                        cat("found both \"", at->second->name, "\" and \"", tensor.name, "\", expected one of them"));
    }
  }
  return found;
}

/// Whether a name is `layer`, a number and `rest`.
bool is_of_layer(std::string_view name, std::string_view layer, std::string_view rest) {
  if (!name.starts_with(layer) || !name.ends_with(rest) || name.size() <= layer.size() + rest.size()) return false;
  name.remove_prefix(layer.size());
  name.remove_suffix(rest.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string_view parameter_name(const spec::ModelSpec& model, std::string_view tensor) {
  // "model.decoder." in part: a bare OPT model saves "decoder.".
  for (std::string_view prefix = model::family_of(model).prefix; !prefix.empty(); prefix.remove_prefix(prefix.find('.') + 1)) {
    if (tensor.starts_with(prefix)) return tensor.substr(prefix.size());
  }
  return tensor;
}

bool is_saved_constant(std::string_view name) {
  return name == "rotary_emb.inv_freq" || is_of_layer(name, "h.", ".attn.bias") || is_of_layer(name, "h.", ".attn.masked_bias") ||
         is_of_layer(name, "layers.", ".self_attn.rotary_emb.inv_freq");
}

std::string tensor_name(const spec::ModelSpec& model, std::string_view parameter) {
  return parameter == kHead ? std::string(parameter) : cat(model::family_of(model).prefix, parameter);
}

std::vector<const TensorInfo*> match_parameters(const Safetensors& files, const model::Model& model) {
  const std::vector<model::ParamSpec>& params = model.params;
  const std::string table_name = cat(model::family_of(model.spec).token_table, ".weight");
  std::map<std::string_view, const TensorInfo*> left = by_parameter_name(files, model.spec);
  const bool is_tied = std::none_of(params.begin(), params.end(), [](const model::ParamSpec& p) { return p.name == kHead; });
  if (is_tied) {
    if (const auto head = left.find(kHead); head != left.end()) {
      if (!left.contains(table_name)) left[table_name] = head->second;
      const TensorInfo& table = *left[table_name];
      if (head->second->shape != table.shape) {
        throw FormatError(path_of(files, *head->second),
                          cat("tensor \"", kHead, "\": found shape ", shape_text(head->second->shape), ", expected ",
                              shape_text(table.shape), " of \"", table.name, "\", to which it is tied"));
      }
      left.erase(kHead);
    }
  }
  std::vector<const TensorInfo*> matched;
  std::vector<std::string> names;
  for (const model::ParamSpec& param : params) {
    names.push_back(param.name);
    const auto at = left.find(param.name);
    if (at == left.end()) {
      const std::string& path = files.files().front().path();
      throw FormatError(
          path, cat("tensor \"", tensor_name(model.spec, param.name), "\" is missing; expected it with shape ", shape_text(param.shape)));
    }
    const TensorInfo& tensor = *at->second;
    if (tensor.shape != param.shape) {
      throw FormatError(path_of(files, tensor), cat("tensor \"", tensor.name, "\": found shape ", shape_text(tensor.shape), ", expected ",
                                                    shape_text(param.shape), " of the model"));
    }
    matched.push_back(&tensor);
    left.erase(at);
  }
  if (!left.empty()) {
    const TensorInfo& extra = *left.begin()->second;
    const std::string near = spec::nearest_word(left.begin()->first, names);
    throw FormatError(path_of(files, extra), cat("tensor \"", extra.name, "\" belongs to no parameter of the model",
                                                 near.empty() ? std::string() : cat("; the nearest is \"", near, "\"")));
  }
  return matched;
}

}  // namespace sluice::formats
