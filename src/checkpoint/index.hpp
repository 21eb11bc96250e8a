#pragma once
// model.h5: whole tensors for h5py and other HDF5 readers, as virtual datasets over the shards beside it. A convenience: where a
// shard is missing HDF5 silently shows fill values, so our own reader never looks at it.

#include <string>

#include "checkpoint/manifest.hpp"

namespace sluice::checkpoint {

/// Creates `directory`/model.h5 with /params/<name>, /exp_avg/<name> and /exp_avg_sq/<name> and waits until the disk has it; sets the
/// manifest's index_bytes and index_checksum. A parameter of no dimensions appears with shape [1]. Throws EnvironmentError or IoError.
void write_index(const std::string& directory, Manifest& manifest);

/// What keeps model.h5 from being the file that was written, or empty.
std::string index_fault(const std::string& directory, const Manifest& manifest);

}  // namespace sluice::checkpoint
