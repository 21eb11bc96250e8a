#include "formats/hf_names.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kTable = "wte.weight";

const std::string& path_of(const Safetensors& files, const TensorInfo& tensor) {
  return files.files()[static_cast<std::size_t>(tensor.file)].path();
}

/// Our name -> tensor, constants left out.
std::map<std::string_view, const TensorInfo*> by_parameter_name(const Safetensors& files) {
  std::map<std::string_view, const TensorInfo*> found;
  for (const TensorInfo& tensor : files.tensors()) {
    const std::string_view name = parameter_name(tensor.name);
    if (is_saved_constant(name)) continue;
    const auto [at, is_new] = found.emplace(name, &tensor);
    if (!is_new) {
      throw FormatError(path_of(files, tensor),
                        cat("found both \"", at->second->name, "\" and \"", tensor.name, "\", expected one of them"));
    }
  }
  return found;
}

}  // namespace

std::string_view parameter_name(std::string_view tensor) {
  return tensor.starts_with(kPrefix) ? tensor.substr(kPrefix.size()) : tensor;
}

bool is_saved_constant(std::string_view name) {
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

std::string tensor_name(std::string_view parameter) {
  return parameter == kHead ? std::string(parameter) : std::string(kPrefix) + std::string(parameter);
}

std::vector<const TensorInfo*> match_parameters(const Safetensors& files, std::span<const model::ParamSpec> params) {
  std::map<std::string_view, const TensorInfo*> left = by_parameter_name(files);
  const bool is_tied = std::none_of(params.begin(), params.end(), [](const model::ParamSpec& p) { return p.name == kHead; });
  if (is_tied) {
    if (const auto head = left.find(kHead); head != left.end()) {
      if (!left.contains(kTable)) left[kTable] = head->second;
      const TensorInfo& table = *left[kTable];
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
      throw FormatError(path, cat("tensor \"", tensor_name(param.name), "\" is missing; expected it with shape ", shape_text(param.shape)));
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
