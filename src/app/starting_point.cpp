#include "app/starting_point.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/session.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/communicator.hpp"

namespace sluice::app {

namespace fs = std::filesystem;

std::vector<std::string> check_continues(const Configuration& configuration, const RunDirectory& directory, const Fingerprint& asked) {
  if (!directory.has_run()) return {};
  if (configuration.resume == ResumeMode::kNever) {
    throw RequestError(
        cat(directory.path(),
            ": a run stands here already and --resume never forbids to continue it; give another --output or remove the folder"));
  }
  return directory.check_same_run(asked);
}

StartingPoint find_starting_point(comm::Communicator& world, const Configuration& configuration, const RunDirectory& directory,
                                  const std::string& last_checkpoint, const Fingerprint& asked) {
  StartingPoint start;
  const std::optional<checkpoint::Selection> newest = checkpoint::select_newest(world, directory.checkpoints());
  comm::all_or_none(world, [&] {
    if (world.rank() != 0 || newest || last_checkpoint.empty()) return;
    throw FormatError(directory.checkpoints(),
                      cat("holds no checkpoint, though ", directory.status_file(), " says that ", last_checkpoint,
                          " was saved; bring it back (is its disk mounted?), or remove ", directory.path(), " for a new start"));
  });
  if (configuration.resume == ResumeMode::kPath) {
    std::string path;
    comm::all_or_none(world, [&] {
      if (world.rank() == 0) path = newest_whole(configuration.resume_path);
    });
    path = world.broadcast(path, 0);
    // Given once more, the same command goes on with what it has made; only a checkpoint of the run's own is a wish to go back.
    const bool goes_back = newest && fs::weakly_canonical(path).parent_path() == fs::weakly_canonical(newest->path).parent_path();
    if (!newest || goes_back) {
      start.path = path;
      start.manifest = checkpoint::open_checkpoint(world, path);
      start.is_named = true;
      return start;
    }
    start.note = cat("--resume ", configuration.resume_path, " is where this run began; it goes on from its own checkpoints");
  }
  if (!newest) return start;
  start.path = newest->path;
  start.manifest = newest->manifest;
  start.refused = newest->refused;
  // run.json may be gone, and then nothing else tells that this is another run.
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    const std::string there = identity_in(newest->manifest.documents.fingerprint, newest->path);
    if (there.empty() || there == identity_of(asked)) return;
    throw RequestError(cat(newest->path, ": was made by another run (its fingerprint is ", there, ", here it is ", identity_of(asked),
                           "); give the model, data, seed, batch and optimizer that it was made with (sluice checkpoint show ",
                           newest->path, "), or another --output"));
  });
  return start;
}

std::string plan_of_checkpoint(const checkpoint::Manifest& manifest) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["plan"] = Json::parse(manifest.documents.plan);
  json["segments_between_agrees"] = 1;  // how long one takes isn't known here, so that a stop waits for no more than one
  json["prediction"] = {{"seconds", 0}};
  json["graph_hash"] = "";
  json["signature"] = Json::parse(manifest.documents.signature);
  return json.dump(2) + "\n";
}

}  // namespace sluice::app
