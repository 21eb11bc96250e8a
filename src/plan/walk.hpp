#pragma once
// The walk of the search: every combination that is worth a price, with the activations and homes that fit the budget.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "plan/bounds.hpp"
#include "plan/homes.hpp"
#include "plan/search.hpp"
#include "plan/workbench.hpp"

namespace sluice::plan {

/// What gives way when a plan needs more than the device has.
enum class Relief : std::uint8_t {
  kRecompute,          // activations, as few as suffice; nothing leaves the device
  kLeave,              // homes, and activations only where that doesn't suffice
  kMoveAndLeave,       // the same with activations moved to the host instead of recomputed
  kRecomputeAndLeave,  // all activations, then homes
  kLeaveAsGiven,       // homes; activations are as they are
};

struct Candidate {
  using TierBytes = std::array<std::int64_t, spec::kTierCount>;

  spec::Plan plan;
  Relief relief = Relief::kRecompute;
  bool fits = true;       // as far as known
  bool is_tight = false;  // only if placement needs less than is expected of it
  TierBytes expected{};   // bytes of a rank
  TierBytes missing{};    // the device's of a rank, the others' of a node
  bool refined = false;   // its neighbours were looked at
  bool relaxed = false;   // and so was what keeps more where placement needed less than expected
  double bound_seconds = 0;
  std::optional<double> reduced_seconds;
  std::optional<double> seconds;  // simulated whole
  Prediction prediction;          // of that
  int segments_between_agrees = 0;

  /// The best that is known.
  double known_seconds() const { return seconds ? *seconds : reduced_seconds ? *reduced_seconds : bound_seconds; }
};

std::int64_t sum_of(const Candidate::TierBytes& bytes);
/// How far from fitting: bytes of a faster tier are harder to come by.
std::int64_t distance_of(const Candidate::TierBytes& missing);
/// 0: everything stays on the device; 1: without the disk; 2: with it.
int tiers_used(const spec::Plan& plan);
/// Whether moves between device and host memory have a price there.
bool knows_copies(const spec::MachineSpec& machine);
/// Whether something stands elsewhere than on the device by choice.
bool leaves_device(const Choices& choices);

class Walk {
 public:
  Walk(const PlanRequest& request, Workbench& bench) : request_(request), bench_(bench) {}  // both outlive it

  /// Appends all candidates, fitted as far as they can be. Throws RequestError for a batch or an update mode that can't be.
  void add_to(std::deque<Candidate>& candidates);
  /// Activations and homes of a candidate such that what placement is expected to need leaves `spare` bytes of each tier (negative: needs
  /// more by so much); false when none do, and then they are those that miss least. Sets what is expected and what is missing.
  bool fit(Candidate& candidate, const Room& spare);
  /// Whether some activations and homes of a candidate may fit: false only where what stands at the same time for certain has no room.
  bool may_fit(const Candidate& candidate);
  /// What one rank may use, less `spare`.
  Room room_of_rank(const Room& spare) const;
  /// What a plan misses that needs so much of each tier, of a rank.
  Candidate::TierBytes missing_bytes(const spec::Plan& plan, const Candidate::TierBytes& needed, const Room& room) const;
  /// memory_bound, walked once for all that differ in homes, rCache, prefetch and update mode alone.
  MemoryBound bounded_memory(const spec::Plan& plan);
  /// Whether anything may leave the device.
  bool may_leave() const;
  /// Whether what segments save may, where that is faster.
  bool may_move_activations() const;
  bool has_disk() const { return request_.budget.disk_bytes > 0; }

 private:
  std::vector<std::int64_t> chunk_sizes() const;
  std::vector<spec::UpdateMode> update_modes() const;
  std::vector<int> zero_stages() const;
  std::vector<spec::MicroBatchOrder> orders(int zero_stage, std::int64_t accumulation) const;
  std::vector<int> prefetches(int zero_stage, spec::UpdateMode mode) const;
  bool pins_leave() const;
  bool only_to_leave(int zero_stage) const;
  bool keeps_all_at_stage_0(spec::Plan plan);
  void add_with_rcaches(spec::Plan plan, std::deque<Candidate>& candidates);
  void add(const spec::Plan& plan, std::deque<Candidate>& candidates);
  HomeRules home_rules(const spec::Plan& plan) const;
  std::vector<spec::ChunkHomes> homes_of_all(const spec::Plan& plan);

  const PlanRequest& request_;
  Workbench& bench_;
  std::map<std::array<std::int64_t, 4>, MemoryBound> memories_;
};

}  // namespace sluice::plan
