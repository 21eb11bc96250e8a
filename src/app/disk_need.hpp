#pragma once
// What a run will take of the disk, told before step 1.

#include <cstdint>
#include <string>

#include "app/configuration.hpp"
#include "model/model.hpp"

namespace sluice::app {

struct DiskNeed {
  std::int64_t checkpoint_bytes = 0;  // of one: parameters and moments, f32, without HDF5's own few KiB
  std::int64_t checkpoints = 0;       // that stand at a time, the one being written included
  std::int64_t export_bytes = 0;      // of RUN/model's weights; 0: none
  std::int64_t total() const { return checkpoint_bytes * checkpoints + export_bytes; }
};

/// `steps` of the run; 0: not known yet. Pure.
DiskNeed disk_need(const Configuration& configuration, const model::Model& model, std::int64_t steps);

/// What of the need is still to be written, the checkpoints that stand already left out.
std::int64_t remaining_need(const Configuration& configuration, const model::Model& model, std::int64_t steps);

/// Bytes that this user may write where `path` is or will be made; -1 where nothing above it exists.
std::int64_t free_disk_bytes(const std::string& path);

/// "disk: 6.03 GiB at most: 4 checkpoints of 1.50 GiB (one of them being written), 513 MiB of exported weights; 80 GiB are free at
/// runs/demo".
std::string describe(const DiskNeed& need, const std::string& path, std::int64_t free_bytes);

}  // namespace sluice::app
