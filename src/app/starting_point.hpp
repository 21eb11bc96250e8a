#pragma once
// Where an attempt of a run starts: at step 0 or from a checkpoint, and whether it may.

#include <optional>
#include <string>
#include <vector>

#include "app/configuration.hpp"
#include "app/run_directory.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/manifest.hpp"

namespace sluice::comm {
class Communicator;
}

namespace sluice::app {

/// Lines about free keys that changed since the run began. Throws RequestError where another run stands in the directory, and where any run
/// does that --resume never keeps from being continued. Reads only.
std::vector<std::string> check_continues(const Configuration& configuration, const RunDirectory& directory, const Fingerprint& asked);

struct StartingPoint {
  std::string path;                              // of the checkpoint; empty: step 0
  std::optional<checkpoint::Manifest> manifest;  // of path
  bool is_named = false;                         // path is what --resume names, not the newest whole one of the run
  std::vector<checkpoint::Refused> refused;      // newer ones of the run that are damaged
  std::string note;                              // for people; may be empty
};
/// The checkpoint that a run with this fingerprint goes on from: of whole structure, its data are read later. `last_checkpoint`: the newest
/// one by status.json ("step-00000050"; empty: none). Collective, the same on all ranks; reads only. Throws on all ranks: FormatError's
/// code where checkpoints stand there and none is whole, or where one was saved and none is left; RequestError for a --resume PATH that
/// holds none, and for checkpoints of another run; as checkpoint::select_newest() and open_checkpoint().
StartingPoint find_starting_point(comm::Communicator& world, const Configuration& configuration, const RunDirectory& directory,
                                  const std::string& last_checkpoint, const Fingerprint& asked);

/// plan.json's content for a run whose plan.json is gone: the plan that the checkpoint was made with.
std::string plan_of_checkpoint(const checkpoint::Manifest& manifest);

}  // namespace sluice::app
