#pragma once
// Closed forms that need no graph: the least bytes and seconds a candidate can take.

#include <cstdint>
#include <vector>

#include "plan/workbench.hpp"

namespace sluice::plan {

using Activations = std::vector<spec::Activation>;

/// Device bytes of one rank by a walk over the segments: what is alive at each of them. Placement needs this or a little more.
struct MemoryBound {
  std::int64_t persistent_bytes = 0;
  std::int64_t rcache_bytes = 0;
  bool forward_stores_saved = true;  // also where backward computes it again
  // Per segment; what is saved between segments is counted by bytes():
  std::vector<std::int64_t> forward_bytes;   // alive while its forward runs
  std::vector<std::int64_t> backward_bytes;  // while its backward runs
  std::vector<std::int64_t> saved_bytes;     // what its forward saves
  std::vector<double> recompute_seconds;     // 0 where it can't be recomputed
  /// Of a plan with these activations, kept or recomputed.
  std::int64_t bytes(const Activations& activations) const;
};
MemoryBound memory_bound(Workbench& bench, const spec::Plan& plan);

/// Recomputation that brings the bound to at most `bytes`: segments in the order of saved bytes a second of recomputing, of a
/// kind the last layers first, as few as suffice; all of them where none suffice.
Activations least_recompute(const MemoryBound& memory, std::int64_t bytes);

/// Seconds below which no step of the plan can be: of the busiest lane and the scarcest resource; with one rank, which overlaps
/// nothing, their sum.
double seconds_bound(Workbench& bench, const spec::Plan& plan);

}  // namespace sluice::plan
