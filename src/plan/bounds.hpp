#pragma once
// Closed forms that need no graph: the least bytes and seconds a candidate can take.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/homes.hpp"
#include "plan/workbench.hpp"

namespace sluice::plan {

using Activations = std::vector<spec::Activation>;

/// Bytes of one rank by a walk over the segments: what is alive at each of them. bytes() and host_bytes() are what placement is expected to
/// need, by which homes and recomputation are chosen; their least_ counterparts are what it can't do without, since only that is
/// counted which stands there at the same time for certain. What a disk holds is known exactly.
struct MemoryBound {
  // By set_homes():
  std::int64_t rcache_bytes = 0;
  Workbench::Gathered gathered;  // zero_stage 3
  HomeBytes of_homes;
  int returns_ahead = 1;  // how many items before its backward what a segment saved elsewhere comes back
  // Of the walk:
  std::int64_t stack = 1;            // micro-batches whose activations stand at the same time
  std::int64_t token_bytes = 0;      // host
  bool forward_stores_saved = true;  // also where backward computes it again
  // Per segment and micro-batch, but for what stands of all of them; what is saved between segments is counted by bytes():
  std::vector<std::int64_t> forward_bytes;    // alive while its forward runs
  std::vector<std::int64_t> backward_bytes;   // while its backward runs
  std::vector<std::int64_t> uncertain_bytes;  // of those, layer by layer: of micro-batches for which something else goes as it comes
  std::vector<std::int64_t> saved_bytes;      // what its forward saves
  std::vector<double> recompute_seconds;      // 0 where it can't be recomputed

  /// Of the device, with these activations.
  std::int64_t bytes(const Activations& activations) const;
  std::int64_t host_bytes(const Activations& activations) const;
  std::int64_t disk_bytes(const Activations& activations) const;
  std::int64_t least_bytes(const Activations& activations) const;
  std::int64_t least_host_bytes(const Activations& activations) const;
  /// Takes what depends on the homes, the rCache, the update mode and the prefetch from the plan.
  void set_homes(Workbench& bench, const spec::Plan& plan);

 private:
  template <typename Forward, typename Backward>
  std::int64_t most_of_segments(const Activations& activations, Forward forward, Backward backward) const;
  std::pair<std::int64_t, std::int64_t> activations_off_device(const Activations& activations) const;
  std::int64_t returning(const Activations& activations, std::size_t s) const;
};
MemoryBound memory_bound(Workbench& bench, const spec::Plan& plan);

/// What of the saved activations gives way, recomputed or moved to the host, so that at most `bytes` are expected of the device: segments
/// in the order of saved bytes a second of recomputing, of a kind the last layers first, as few as suffice; all of them where none suffice.
Activations least_given_up(const MemoryBound& memory, std::int64_t bytes, spec::Activation to);

/// Seconds below which no step of the plan can be: of the busiest lane and the scarcest resource; with one rank that moves nothing, and so
/// overlaps nothing, their sum.
double seconds_bound(Workbench& bench, const spec::Plan& plan);

}  // namespace sluice::plan
