#pragma once
// How much of this node's memory and disks a plan may use.

#include <cstdint>
#include <span>

#include "app/configuration.hpp"
#include "device/cpu/cpu_device.hpp"
#include "model/model.hpp"
#include "spec/machine_spec.hpp"

namespace sluice::app {

/// Bytes of a training state, each number once: working parameters, gradients, masters and moments.
std::int64_t state_bytes(const model::Model& model, const spec::TrainingSpec& training);

/// A node's memory as one of its ranks sees it.
struct MemoryFacts {
  device::CpuFacts cpu;
  std::int64_t resident_bytes = 0;  // of this rank already, and so not free
};

/// Device and host memory: what the user gave, else a part of what is free, less a margin for what grows unseen (page cache of data and
/// checkpoints, buffers of MPI). A device's budget has to hold what its rank has outside the plan, so what is resident already is added to
/// it. On a CPU both are the same memory, so the device gets nearly all of it; only where `state` bytes don't fit it and there are paths to
/// swap to has the host a quarter, through which moves everything that lives on disk. Throws EnvironmentError where the user's figures
/// exceed what the node or the cgroup has. disk_bytes stays 0. Pure.
spec::Budget memory_budget(const Configuration& configuration, int ranks_on_node, const MemoryFacts& facts, std::int64_t state);

/// One path to swap to.
struct SwapRoom {
  std::uint64_t disk = 0;          // the file system's number
  std::int64_t free_bytes = 0;     // of it
  std::int64_t claimed_bytes = 0;  // of those, what the run will write there besides: checkpoints, exported weights
  std::int64_t hosts = 1;          // of the run that swap to this disk
};

/// What a host's files striped over these paths may take together: the path with the least room sets the pace, and paths and hosts that
/// share a disk share its room. `margin`: leaves a tenth of what is free. Pure.
std::int64_t swap_room(std::span<const SwapRoom> paths, bool margin);

/// `asked` (--nvme-space), which must fit, or what there is room for less a margin. Throws EnvironmentError with the numbers. Pure.
std::int64_t disk_budget(const Configuration& configuration, std::span<const SwapRoom> paths);

}  // namespace sluice::app
