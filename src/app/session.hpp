#pragma once
// What the verbs share: where our own files are, which model a request means.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/configuration.hpp"
#include "app/environment.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "spec/machine_spec.hpp"
#include "spec/model_spec.hpp"

namespace sluice::data {
class TrainingSampler;
}

namespace sluice::app {

/// Folders with presets, of the source tree or the installation that this program belongs to.
std::vector<std::string> model_folders();

/// What `read` returns. Where a file can't be read, the error begins with what named it, as "--data", and ends with the remedy.
template <typename Read>
auto named_input(const std::string& origin, const std::string& remedy, Read read) {
  try {
    return read();
  } catch (const IoError& error) {
    throw EnvironmentError(cat(origin, ": ", error.what(), "; ", remedy));
  }
}

/// The machine of a file, or that of configs/machines with this name. Throws RequestError for an unknown name, with those that are known,
/// the nearest first; EnvironmentError, FormatError.
spec::MachineSpec resolve_machine(const std::string& file_or_name);

/// The model of a request: a preset, a Hugging Face directory, or a run directory's or checkpoint's own. Throws RequestError,
/// FormatError, IoError.
spec::ModelSpec resolve_model(const Configuration& configuration);

/// The checkpoint that a path means: itself, or the newest whole one of its run. Throws RequestError where there is none.
std::string newest_whole(const std::string& path);

/// The run's last step: what is asked in steps or epochs of `sampler`. Throws RequestError where that is none.
std::int64_t steps_of(const Configuration& configuration, const data::TrainingSampler& sampler);

/// Threads per rank: what was asked, else this rank's cores where the launcher bound each rank to its own, else the node's cores
/// over its ranks; at least 1. `node_cores`: that the node's ranks may use together.
int threads_per_rank(std::int64_t asked, int ranks_on_node, int node_cores, const device::CpuFacts& facts);

/// Cores that this node has, whoever may use them.
int online_cores();

}  // namespace sluice::app
