#pragma once
// One timing of a profile: what the repeats of a body say, and whether something else ran meanwhile.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "comm/communicator.hpp"

namespace sluice::profile {

struct Timing {
  double seconds = 0;  // the lower quartile of the repeats: other programs only ever make one slower
  double spread = 1;   // their median over it, the most of all ranks
  double apart = 1;    // the slowest rank of a node over the fastest, the most of all nodes
  /// Whether the machine was ours, as far as that shows: of a quiet one repeats differ by some percent, and ranks of a node by
  /// what its cores differ.
  bool is_steady() const { return spread <= 1.4 && apart <= 1.75; }
  /// Of two of the same body the one that was disturbed less.
  bool is_better_than(const Timing& other) const;
};

/// Times `body` on all ranks at once, with as many repeats on each; an unsteady timing, if `may_repeat`, once more. `clock`: nanoseconds.
/// Of the result `seconds` is this rank's, the rest the same on all. Collective; `may_repeat` must be the same on all ranks.
Timing time_together(comm::Communicator& world, const std::function<void()>& body, bool may_repeat,
                     const std::function<std::int64_t()>& clock = now_ns);

}  // namespace sluice::profile
