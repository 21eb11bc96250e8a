#include "model/family.hpp"

#include "base/check.hpp"

namespace sluice::model {

std::span<const Family> families() {
  static const std::vector<Family> kFamilies = [] {
    std::vector<Family> all{gpt2_family(), opt_family()};
    for (Family& family : llama_families()) all.push_back(std::move(family));
    return all;
  }();
  return kFamilies;
}

std::string family_names() {
  std::string names;
  for (const Family& family : families()) names += cat(names.empty() ? "" : ", ", family.name);
  return names;
}

const Family* find_family(std::string_view name) {
  for (const Family& family : families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

const Family& family_of(const spec::ModelSpec& spec) {
  const Family* const family = find_family(spec.family);
  if (family == nullptr)
    throw RequestError(cat("model ", spec.name, ": family \"", spec.family, "\" is unknown, expected one of ", family_names()));
  return *family;
}

}  // namespace sluice::model
