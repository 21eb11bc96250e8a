#include "spec/preset.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"
#include "spec/json_text.hpp"

namespace sluice::spec {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::vector<std::string> preset_names(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() == ".json") names.push_back(entry->path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

ModelSpec load_preset(const std::string& name, const std::vector<std::string>& directories) {
  const std::vector<std::string> known = preset_names(directories);
  if (!std::binary_search(known.begin(), known.end(), name)) {
    const std::string near = nearest_word(name, known);
    throw RequestError(cat("model preset \"", name, "\" is unknown; ",
                           near.empty() ? std::string() : cat("the nearest is \"", near, "\"; "),
                           known.empty() ? cat("no presets found in ", joined(directories)) : cat("known: ", joined(known))));
  }
  for (const std::string& directory : directories) {
    const std::string path = (std::filesystem::path(directory) / (name + ".json")).string();
    if (!std::filesystem::exists(path)) continue;
    std::ifstream file(path, std::ios::binary);
    if (!file) throw IoError("opening", path, errno);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (file.bad()) throw IoError("reading", path, errno);
    ModelSpec model = model_spec_from_json(text, path);
    if (model.name != name)
      throw FormatError(path, cat("key \"name\": found \"", model.name, "\", expected the file's name, \"", name, "\""));
    validate(model);
    return model;
  }
  throw RequestError(cat("model preset \"", name, "\" vanished while it was being read"));
}

}  // namespace sluice::spec
