#include "app/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/configuration_keys.hpp"
#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "checkpoint/catalog.hpp"
#include "data/sampler.hpp"
#include "formats/config_json.hpp"
#include "ops/context.hpp"
#include "spec/preset.hpp"

namespace sluice::app {

namespace fs = std::filesystem;

namespace {

/// The checkpoint that a path names, or the newest whole one of its run; empty where there is none.
std::string find_newest_whole(const std::string& path) {
  const checkpoint::Location location = checkpoint::locate_checkpoints(path);
  if (location.path) return *location.path;
  std::string newest;
  for (const checkpoint::Entry& entry : checkpoint::list_checkpoints(location.directory)) {
    if (entry.state == checkpoint::State::kComplete) newest = entry.path;
  }
  return newest;
}

/// Where `kind` ("models", "machines") lies, of the source tree or the installation that this program belongs to.
std::vector<std::string> shipped_folders(const std::string& kind) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> folders;
  // build/bin/sluice of a source tree, or PREFIX/bin/sluice.
  const fs::path above = program.parent_path().parent_path();
  for (const fs::path& folder : {above.parent_path() / "configs" / kind, above / "share" / "sluice" / kind}) {
    if (fs::is_directory(folder, error)) folders.push_back(folder.string());
  }
  return folders;
}

}  // namespace

std::vector<std::string> model_folders() {
  return shipped_folders("models");
}

spec::MachineSpec resolve_machine(const std::string& file_or_name) {
  std::string file = file_or_name;
  std::error_code error;
  const bool is_path = file.find('/') != std::string::npos || file.ends_with(".json") || fs::exists(file, error);
  if (!is_path) {
    const std::vector<std::string> folders = shipped_folders("machines");
    std::vector<std::string> known = spec::preset_names(folders);
    std::stable_sort(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
      return edit_distance(file_or_name, a) < edit_distance(file_or_name, b);
    });
    if (std::find(known.begin(), known.end(), file_or_name) == known.end()) {
      throw RequestError(cat("--machine: no file and no machine that is known is called \"", file_or_name,
                             "\"; give a machine file (sluice profile --json prints one) or one of ", joined(known)));
    }
    for (const std::string& folder : folders) {
      file = cat(folder, "/", file_or_name, ".json");
      if (fs::exists(file, error)) break;
    }
  }
  const std::string text = named_input("--machine", "give a machine file (sluice profile --json prints one) or a name of configs/machines",
                                       [&] { return read_text(file); });
  return spec::machine_spec_from_json(text, file);
}

spec::ModelSpec resolve_model(const Configuration& configuration) {
  if (configuration.model_path.empty()) return spec::load_preset(configuration.preset, model_folders());
  if (fs::exists(fs::path(configuration.model_path) / "config.json")) return formats::load_config(configuration.model_path);
  const auto refuse = [&](const char* what) {
    throw RequestError(cat(configuration.model_key, ": ", configuration.model_path, ": ", what,
                           "; give a Hugging Face directory, a run directory or a preset's name"));
  };
  if (!fs::is_directory(configuration.model_path)) refuse("no such directory");
  const std::string path = find_newest_whole(configuration.model_path);
  if (path.empty()) refuse("no config.json and no whole checkpoint");
  return spec::model_spec_from_json(checkpoint::read_manifest(path).documents.model, path);
}

std::string newest_whole(const std::string& path) {
  std::string newest = find_newest_whole(path);
  if (newest.empty()) throw RequestError(cat(path, ": holds no whole checkpoint; see sluice checkpoint list ", path));
  return newest;
}

std::int64_t steps_of(const Configuration& configuration, const data::TrainingSampler& sampler) {
  std::int64_t steps = configuration.steps.value_or(0);
  if (configuration.epochs) {
    steps = static_cast<std::int64_t>(std::ceil(*configuration.epochs * static_cast<double>(sampler.samples_per_epoch()) /
                                                static_cast<double>(configuration.training.batch.global_batch)));
  }
  if (steps <= 0) throw RequestError(cat("the run would have ", steps, " steps; give --steps or --epochs greater than 0"));
  return steps;
}

int threads_per_rank(std::int64_t asked, int ranks_on_node, int node_cores, const device::CpuFacts& facts) {
  const int most = ops::most_threads();
  if (asked > most) {
    throw EnvironmentError(cat("OMP_THREAD_LIMIT lets a rank have ", most, most == 1 ? " thread" : " threads", ", --threads ", asked,
                               " is asked; unset it, or give --threads ", most));
  }
  if (asked > 0) return static_cast<int>(asked);
  const bool bound_apart = facts.cores * ranks_on_node <= node_cores;
  return std::clamp(bound_apart ? facts.cores : node_cores / std::max(1, ranks_on_node), 1, most);
}

int online_cores() {
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace sluice::app
