#pragma once
// Presets: models by name, one ModelSpec file each (configs/models/NAME.json).

#include <string>
#include <vector>

#include "spec/model_spec.hpp"

namespace sluice::spec {

/// Names of the presets in these directories (the stems of their *.json files), sorted, each once. A directory that does not
/// exist holds none.
std::vector<std::string> preset_names(const std::vector<std::string>& directories);

/// The preset NAME.json of the first directory that has it, validated. Throws RequestError for an unknown name, with the nearest
/// and all known ones; FormatError for a file that is no ModelSpec or whose `name` is not its stem; IoError if it can't be read.
ModelSpec load_preset(const std::string& name, const std::vector<std::string>& directories);

}  // namespace sluice::spec
