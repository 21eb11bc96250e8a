#pragma once
// Loading: the newest whole checkpoint, on any number of ranks and any layout of pieces.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
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

/// Fills `pieces` (any regions; several ranks may want the same element) from the checkpoint at `path`. Collective. Each rank reads only
/// the blocks that it needs and checks each; what `params` names must be what the checkpoint holds. Blocks until done. Throws on all ranks
/// the error of the lowest failing one, with its code: kFormat for damage, kRequest for another model or moments that the checkpoint
/// doesn't hold, kEnvironment. The pieces' content is then undefined.
Manifest load_checkpoint(comm::Communicator& world, const std::string& path, const std::vector<ParamInfo>& params,
                         const std::vector<Piece>& pieces);

/// select_newest() and load_checkpoint(); where loading finds damage, the next older one. None when there is no committed one.
std::optional<Selection> load_newest(comm::Communicator& world, const std::string& directory, const std::vector<ParamInfo>& params,
                                     const std::vector<Piece>& pieces);

/// One line for the user about checkpoints that were passed over, or empty.
std::string describe_refused(const std::vector<Refused>& refused);

}  // namespace sluice::checkpoint
