#pragma once
// Which gathered chunks are resident when: decided before the run, since the future is known (Belady 1966: evict the one whose
// next use is furthest). Elixir's rCache, as intervals that placement turns into addresses.

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::chunks {

/// One stay of a run in the rCache: gathered before item `begin`, used last in item `end`.
struct Residency {
  int run = 0;
  int gather_at = 0;  // the item before which the gather is issued (prefetch: earlier than `begin`)
  int begin = 0;
  int end = 0;
};

/// `uses[i]`: the runs that item i (a compute task, in order) reads. `run_elements[r]`: size of run r. `capacity`: elements.
/// `prefetch`: how many items ahead a gather is issued. Whatever items i .. i + prefetch need is resident together.
/// Returns stays ordered by gather_at (then by first use). Throws OutOfMemory when some window of items needs more than the
/// capacity, naming the elements (minimum_capacity says what suffices).
std::vector<Residency> plan_residency(std::span<const std::vector<int>> uses, std::span<const std::int64_t> run_elements,
                                      std::int64_t capacity, int prefetch);

/// The smallest capacity that plan_residency accepts.
std::int64_t minimum_capacity(std::span<const std::vector<int>> uses, std::span<const std::int64_t> run_elements, int prefetch);

}  // namespace sluice::chunks
