#pragma once
// The checkpoints of a run as people and the loader see them: listing, showing, verifying, and removing what is no longer
// wanted. Nothing here communicates.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace sluice::checkpoint {

enum class State : std::uint8_t {
  kComplete,    // manifest, sizes and structure are right; the bulk is checked by a deep verification or when it is read
  kDamaged,     // committed, but not what was committed
  kIncomplete,  // a save or a deletion that was cut off; never a checkpoint
  kUnreadable,  // the system refuses to read it (permission, time-out of a file server): nothing is known about its bytes
};
std::string_view name_of(State state);

struct Entry {
  std::int64_t step = 0;
  std::string path;
  State state = State::kComplete;
  std::string reason;  // why it isn't complete
  std::int64_t bytes = 0;
  std::int64_t ranks = 0;
  std::int64_t created = 0;  // seconds since 1970
};

/// Everything in a checkpoints directory that is or was a checkpoint, by increasing step. No such directory: none. Throws IoError when
/// the directory itself can't be listed.
std::vector<Entry> list_checkpoints(const std::string& directory);

/// The steps of the committed ones, whole or not, increasing. Throws as list_checkpoints().
std::vector<std::int64_t> committed_steps(const std::string& directory);
/// One directory: manifest, sizes and structure of all shards. Its state is a result, never an exception.
Entry inspect_checkpoint(const std::string& path);

/// The manifest in a checkpoint's directory. Throws FormatError (missing, damaged, of another step than the directory's name).
Manifest read_manifest(const std::string& path);

struct Verification {
  std::string path;
  std::int64_t step = -1;  // -1: unknown
  bool deep = false;
  std::vector<std::string> faults;  // empty: whole
  std::vector<std::string> notes;   // what doesn't harm the checkpoint: model.h5 altered, files that don't belong
  std::int64_t bytes_read = 0;
  double seconds = 0;
  bool whole() const { return faults.empty(); }
};

/// Checks manifest, sizes and structure of every shard, with `deep` every byte of every shard and model.h5. Faults are results; throws
/// only IoError where the system refuses to read.
Verification verify_checkpoint(const std::string& path, bool deep);

/// Where a path given by a user leads: a run directory, its checkpoints directory or one checkpoint.
struct Location {
  std::string directory;            // of the checkpoints
  std::optional<std::string> path;  // of one checkpoint
};
/// Throws RequestError when there is no such directory.
Location locate_checkpoints(const std::string& path);

/// Called at named points, for tests that cut a save off there.
using Hook = std::function<void(const char* point)>;

struct Removal {
  std::vector<std::string> removed;   // paths
  std::vector<std::string> warnings;  // failures are never more than that; damaged ones that went
};
/// Removes saves and deletions that were cut off. Only the owner of the run lock may, between saves.
Removal sweep_leftovers(const std::string& directory);
/// Keeps the `keep` whole checkpoints with the highest steps and those of `kept_steps` in any case; removes what is older. Damaged ones, by
/// their structure or because their step is one of `damaged_steps` (their bulk isn't read here), don't count. They stay for people to look
/// at until `keep` newer whole ones stand; that they go then is a warning. keep <= 0: keeps all.
Removal retain_newest(const std::string& directory, int keep, const std::vector<std::int64_t>& kept_steps,
                      const std::vector<std::int64_t>& damaged_steps, const Hook& hook);
/// Removes a checkpoint so that a crash on the way leaves no name that a reader would take: renames, removes the manifest, then the rest.
void remove_checkpoint(const std::string& path, const Hook& hook);

/// For people: a table, a few lines, a verdict.
std::string describe(const std::vector<Entry>& entries);
std::string describe(const Manifest& manifest);
std::string describe(const Verification& verification);
/// The same as JSON, for `--json`. The manifest's is a summary; the documents stand in it whole.
std::string to_json(const std::vector<Entry>& entries);
std::string summary_json(const Manifest& manifest);
std::string to_json(const Verification& verification);

/// "1.10.8": of the HDF5 library in use.
std::string hdf5_library_version();

}  // namespace sluice::checkpoint
