#pragma once
// Where the planes of chunks stand between their uses: which of them leave the device and where they go, and what that takes of
// each tier.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/workbench.hpp"

namespace sluice::plan {

/// Bytes that one rank may use of each tier.
struct Room {
  std::int64_t device = 0;
  std::int64_t host = 0;          // 0: nothing may stand there, so nothing leaves the device
  std::int64_t disk = 0;          // 0: there is none
  std::int64_t host_in_pass = 0;  // of `host`, what tokens and activations take, and the staging of updates may use again
};

/// Bytes of one rank that follow from the homes of chunks.
struct HomeBytes {
  std::array<std::int64_t, spec::kTierCount> persistent{};  // the planes that outlive a step, and on the host the control buffers
  /// Gradients that updates in backward use up in the step that makes them. Those that wait for the next micro-batch stand there all at
  /// once; the others come and go: on the device while each segment runs backward, on the host the most at once.
  std::array<std::int64_t, spec::kTierCount> waiting{};
  std::vector<std::int64_t> passing_device;
  std::int64_t passing_host = 0;
  // On the host, what of it stands there at once; and what of it certainly does.
  std::int64_t update_staging = 0, update_staging_least = 0;  // operands of the updates in flight whose home isn't where they are updated
  std::int64_t read_staging = 0, read_staging_least = 0;      // working parameters on their way from the disk to the device
  std::int64_t sum_staging = 0, sum_staging_least = 0;        // gradients on their way to the disk, with the sum of those before
  std::int64_t gradient_part = 0;                             // device: a reduced gradient on its way to its home elsewhere
};
HomeBytes home_bytes(Workbench& bench, const spec::Plan& plan);

/// What binds the homes.
struct HomeRules {
  std::optional<spec::Tier> states, working;  // of all chunks
  bool working_leaves = false;                // whatever room there is
  bool gradients_leave = false;
};

/// Homes by budget for a plan whose zero_stage, chunks and rCache are set, in one pass over the chunks in order. `room`: what
/// the rCache and what passes through the segments leave. States leave the device first, then (zero_stage 2 and 3) gradients, then (3)
/// working parameters; of each kind the first chunks that fit stay. In host memory gradients and working parameters come before states; the
/// states that find no room there, then the working parameters, and as a last resort gradients, go to disk. Empty: everything fits the
/// device and no rule says otherwise. Where the rooms don't suffice the homes are those that miss least on the device; what home_bytes says
/// of them is then more than there is.
std::vector<spec::ChunkHomes> choose_homes(Workbench& bench, const spec::Plan& plan, const Room& room, const HomeRules& rules);

}  // namespace sluice::plan
