#pragma once
// Measuring the machine: every rank measures itself, all ranks of a node at once, since they share its links and memory.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "profile/measure_disks.hpp"
#include "spec/machine_spec.hpp"
#include "spec/model_spec.hpp"

namespace sluice::profile {

struct MeasureRequest {
  spec::ModelSpec model;  // segments are timed at its width, one layer per kind
  std::int64_t sequence_length = 0;
  std::vector<std::int64_t> rows;  // micro-batches to be timed, small ones first; as many as the time allows
  int threads = 1;                 // compute threads per rank
  DiskRequest disk;
};

struct Measurement {
  spec::MachineSpec machine;  // merged: the slowest rank rules
  std::string spread;         // for people: the largest differences between ranks, with their names
  std::string unsteady;       // for people: that something else ran meanwhile, as far as that shows; empty: it doesn't
  DiskMeasurement disk;       // where disks were asked for; its speed is the machine's
  double seconds = 0;         // that measuring took
};

/// Cores that this node's ranks may use together: the union of their affinity masks. Collective.
int cores_of_node(comm::Communicator& world);

/// What a measurement holds for: hosts, processor, ranks, threads, model width and shapes, library versions, disks. Two requests with
/// the same key may share one. Collective.
std::string cache_key(comm::Communicator& world, const MeasureRequest& request);

/// Measures on every rank and merges at rank 0; the same result on all ranks. What seems disturbed is measured twice. Collective; blocks,
/// in under a minute. With disks: throws on all ranks as memory::SwapSpace::open does.
Measurement measure(comm::Communicator& world, const MeasureRequest& request);

/// profile.json: {"key", "spread", "unsteady", "disk": {"lines", "warnings"}, "machine", "seconds"}. `source` names the file in errors.
/// Throws FormatError.
std::string to_json(const std::string& key, const Measurement& measurement);
Measurement measurement_from_json(const std::string& text, const std::string& source, std::string& key);

}  // namespace sluice::profile
