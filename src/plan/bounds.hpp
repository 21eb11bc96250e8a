#pragma once
// Closed forms that need no graph: the least bytes and seconds a candidate can take.

#include <array>
#include <cstdint>
#include <vector>

#include "plan/workbench.hpp"

namespace sluice::plan {

using Activations = std::vector<spec::Activation>;

/// Bytes of one rank by a walk over the segments: what is alive at each of them. Placement needs this or a little more.
struct MemoryBound {
  // Of the homes, by set_homes():
  std::array<std::int64_t, spec::kTierCount> persistent_bytes{};
  std::array<std::int64_t, spec::kTierCount> waiting_bytes{};
  std::vector<std::int64_t> passing_device_bytes;  // per segment, or none
  std::int64_t passing_host_bytes = 0;
  std::int64_t rcache_bytes = 0;
  std::int64_t gradient_part_bytes = 0, update_staging_bytes = 0, read_staging_bytes = 0, sum_staging_bytes = 0;  // as HomeBytes
  int returns_ahead = 1;  // how many items before its backward what a segment saved elsewhere comes back
  // Of the walk:
  std::int64_t stack = 1;            // micro-batches whose activations stand at the same time
  std::int64_t token_bytes = 0;      // host
  bool forward_stores_saved = true;  // also where backward computes it again
  // Per segment and micro-batch, but for what stands of all of them; what is saved between segments is counted by bytes():
  std::vector<std::int64_t> forward_bytes;   // alive while its forward runs
  std::vector<std::int64_t> backward_bytes;  // while its backward runs
  std::vector<std::int64_t> saved_bytes;     // what its forward saves
  std::vector<double> recompute_seconds;     // 0 where it can't be recomputed

  /// Of the device, with these activations.
  std::int64_t bytes(const Activations& activations) const;
  std::int64_t host_bytes(const Activations& activations) const;
  std::int64_t disk_bytes(const Activations& activations) const;
  /// Takes what depends on the homes, the rCache, the update mode and the prefetch from the plan.
  void set_homes(Workbench& bench, const spec::Plan& plan);

 private:
  std::int64_t returning(const Activations& activations, std::size_t s) const;
};
MemoryBound memory_bound(Workbench& bench, const spec::Plan& plan);

/// Recomputation that brings the bound to at most `bytes`: segments in the order of saved bytes a second of recomputing, of a
/// kind the last layers first, as few as suffice; all of them where none suffice.
Activations least_recompute(const MemoryBound& memory, std::int64_t bytes);

/// Seconds below which no step of the plan can be: of the busiest lane and the scarcest resource; with one rank that moves nothing, and so
/// overlaps nothing, their sum.
double seconds_bound(Workbench& bench, const spec::Plan& plan);

}  // namespace sluice::plan
