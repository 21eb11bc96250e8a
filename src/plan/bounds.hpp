#pragma once
// Closed forms that need no graph: the least bytes and seconds a candidate can take.

#include <cstdint>
#include <vector>

#include "plan/workbench.hpp"

namespace sluice::plan {

/// Device bytes of one rank by a walk over the segments. What placement needs is this or a little more.
struct MemoryBound {
  std::int64_t persistent_bytes = 0;
  std::int64_t activation_bytes = 0;             // between segments, all of a micro-batch's
  std::vector<std::int64_t> saved_bytes;         // per segment; 0 where nothing is saved or it can't be recomputed
  std::vector<double> recompute_seconds;         // per segment
  std::int64_t always_saved_bytes = 0;           // of segments that can't recompute
  std::int64_t short_lived_bytes = 0;            // the most of workspace, gradients and rCache at once
  /// Of a plan that recomputes as `recompute` says.
  std::int64_t bytes(const std::vector<std::uint8_t>& recompute) const;
};
MemoryBound memory_bound(Workbench& bench, const spec::Plan& plan);

/// Recomputation that brings the bound to at most `bytes`: segments in the order of saved bytes a second of recomputing, of a
/// kind the last layers first, as few as suffice; all of them where none suffice.
std::vector<std::uint8_t> least_recompute(const MemoryBound& memory, std::int64_t bytes);

/// Seconds below which no step of the plan can be: of the busiest lane and the scarcest resource; with one rank, which overlaps
/// nothing, their sum.
double seconds_bound(Workbench& bench, const spec::Plan& plan);

}  // namespace sluice::plan
