#pragma once
// Loading: the newest whole checkpoint, on any number of ranks and any layout of pieces.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/shard.hpp"
#include "checkpoint/state.hpp"
#include "comm/communicator.hpp"

namespace sluice::checkpoint {

struct Refused {
  std::int64_t step = 0;
  std::string path;
  std::string reason;
};

struct Selection {
  std::string path;
  Manifest manifest;
  std::vector<Refused> refused;  // newer ones that were not whole: to be told loudly
};

/// The newest whole checkpoint with a step below `below` in a run's checkpoints directory; none when there is no committed one at all.
/// Collective; the same on all ranks. Looks at manifests, sizes and structure: damaged bulk shows only in load_checkpoint().
/// Throws on all ranks: FormatError's code when some are there and none is whole (a run never starts over by itself), IoError's where a
/// newer one can't be read for want of permission or the like.
std::optional<Selection> select_newest(comm::Communicator& world, const std::string& directory,
                                       std::int64_t below = std::numeric_limits<std::int64_t>::max());

/// The manifest of one checkpoint on every rank. Collective; throws on all ranks as read_manifest().
Manifest open_checkpoint(comm::Communicator& world, const std::string& path);

/// Reads pieces of a checkpoint in any number of calls; shards stay open between them. Local.
class PieceReader {
 public:
  /// `manifest` is that of `path` and outlives the reader, `params` what it is expected to hold. Throws RequestError where it holds another
  /// model. Readers of different ranks begin at different shards, so that they don't all ask one file server for the same file.
  PieceReader(std::string path, const Manifest& manifest, const std::vector<ParamInfo>& params, int rank);

  /// Fills `pieces` (any regions), reading and checking only the blocks that it needs. Blocks until done. Throws FormatError for damage,
  /// RequestError for moments that the checkpoint doesn't hold, IoError. The pieces' content is then undefined.
  void read(const std::vector<Piece>& pieces);

 private:
  struct Source {      // a piece that a shard has
    std::size_t turn;  // of the shard in this rank's order
    std::size_t plane, piece;
  };
  ShardReader& shard(std::size_t turn);

  std::string path_;
  const Manifest& manifest_;
  const std::vector<ParamInfo>& params_;
  std::size_t first_shard_;
  std::map<std::pair<int, int>, std::vector<Source>> sources_;              // of (plane, parameter)
  std::vector<std::pair<std::size_t, std::unique_ptr<ShardReader>>> open_;  // by turn; the latest used last
};

/// Loads the checkpoint at `path`: `fill` reads what this rank wants from the reader, in one call or several. Several ranks may want the
/// same element. Collective; `fill` is local. Throws on all ranks the error of the lowest failing one, with its code: kFormat for damage,
/// kRequest for another model or moments that the checkpoint doesn't hold, kEnvironment. What was filled is then undefined.
Manifest load_checkpoint(comm::Communicator& world, const std::string& path, const std::vector<ParamInfo>& params,
                         const std::function<void(PieceReader&)>& fill);
/// The same for pieces that all stand in memory.
Manifest load_checkpoint(comm::Communicator& world, const std::string& path, const std::vector<ParamInfo>& params,
                         const std::vector<Piece>& pieces);

/// select_newest() and load_checkpoint(); where loading finds damage, the next older one, for which `fill` is called again. None when there
/// is no committed one.
std::optional<Selection> load_newest(comm::Communicator& world, const std::string& directory, const std::vector<ParamInfo>& params,
                                     const std::function<void(PieceReader&)>& fill);

/// One line for the user about checkpoints that were passed over, or empty.
std::string describe_refused(const std::vector<Refused>& refused);

}  // namespace sluice::checkpoint
