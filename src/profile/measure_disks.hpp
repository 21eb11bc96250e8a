#pragma once
// Measuring the disks to swap to: all ranks of a node at once on all paths, as a run uses them.

#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "spec/machine_spec.hpp"

namespace sluice::profile {

/// The disks to swap to.
struct DiskRequest {
  std::vector<std::string> paths;  // striped; empty: no disk is measured
  std::string job;                 // of memory::SwapIdentity, the same on all ranks
  bool allow_network = false;
  std::int64_t most_bytes = std::int64_t{512} << 20;  // to be written once on each path, by all ranks of a node together
};

struct DiskMeasurement {
  spec::DiskSpeed speed;              // of the slowest node
  std::vector<std::string> lines;     // for people: what the disks can do
  std::vector<std::string> warnings;  // likewise: why they don't serve as well as they could
};

/// The same on all ranks. Writes files of its own, smaller ones where space is short, which are gone afterwards. Collective; takes some
/// seconds and the time to write the files once. Throws on all ranks as memory::SwapSpace::open and IoTicket::wait do.
DiskMeasurement measure_disks(comm::Communicator& world, const DiskRequest& request);

/// What the figures hold for: the paths and the disks they lie on, of this rank.
std::string disk_key(const DiskRequest& request);

}  // namespace sluice::profile
