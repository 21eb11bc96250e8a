#pragma once
// Chooses where training state lives and how the ranks share the work. A pure function of values: no device, no communicator,
// so that planning for 512 ranks works on a laptop.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/graph.hpp"
#include "schedule/price.hpp"
#include "spec/machine_spec.hpp"
#include "spec/model_spec.hpp"
#include "spec/plan.hpp"
#include "spec/training_spec.hpp"

namespace sluice::plan {

/// Some of a plan's choices. As pins they bind the search; as hints the search may beat them, and says so.
struct Choices {
  std::optional<int> zero_stage;
  std::optional<std::int64_t> chunk_elements;   // at most the model's; rounded up to what a chunk may be
  std::optional<std::int64_t> rcache_elements;  // between the least that works and the whole model
  std::optional<int> prefetch_segments;
  std::optional<spec::UpdateMode> update_mode;
  std::optional<bool> recompute;  // everything that can be, or nothing
  // Where every trained chunk's states and every chunk's working parameters stand (DeepSpeed's offload_optimizer and offload_param), under
  // the rules of spec::ChunkHomes: working parameters leave the device with zero_stage 3 only, and never for a slower tier than states.
  std::optional<spec::Tier> states;
  std::optional<spec::Tier> working;
  // Whether what segments save for backward goes to host memory (then `recompute` says nothing) or may go nowhere but the device.
  std::optional<bool> host_activations;
  std::optional<spec::MicroBatchOrder> order;
  bool empty() const { return *this == Choices{}; }
  friend bool operator==(const Choices&, const Choices&) = default;
};

struct PlanRequest {
  spec::ModelSpec model;
  spec::MeshSpec mesh;
  spec::TrainingSpec training;  // batch, clipping and sequence length are fixed; a micro-batch of 0 is chosen
  spec::MachineSpec machine;
  spec::Budget budget;  // host_bytes 0: nothing leaves the device, and what stands on the host anyway isn't limited
  int threads = 1;      // compute threads per rank
  Choices hints;
  Choices pins;
};

/// Bytes of one tag in one tier, at the moment when the tier's transient bytes are at their peak.
struct TagBytes {
  spec::Tier tier = spec::Tier::kDevice;
  schedule::BufferTag tag = schedule::BufferTag::kWorking;
  std::int64_t bytes = 0;
};

struct Prediction {
  double seconds = 0;  // of a step
  double tokens_per_second = 0;
  schedule::Resource bound = schedule::Resource::kLatency;
  std::array<double, schedule::kResourceCount> critical_seconds{};
  std::array<double, schedule::kLaneCount> busy_seconds{};
  std::array<std::int64_t, spec::kTierCount> arena_bytes{};  // per rank: the most of all graphs
  std::vector<TagBytes> tags;                                // of the step graph
  std::int64_t gap_bytes = 0;                                // of the device's arena that placement leaves between buffers
  std::int64_t unplanned_bytes = 0;                          // outside the arenas, per rank: measured, and the graphs
  std::int64_t disk_read_bytes = 0, disk_write_bytes = 0;    // per rank and step, as transferred
  std::int64_t tasks = 0;
  std::int64_t parameters = 0, frozen_parameters = 0;  // of the model, and of those the frozen ones
  std::uint64_t graph_hash = 0;
};

/// A candidate that wasn't taken, and why, in one line with its number.
struct Refusal {
  spec::Plan plan;
  std::string reason;
  std::array<std::int64_t, spec::kTierCount> missing_bytes{};  // of the device a rank, of the others a node; all 0: it fits
  double seconds = 0;                                          // predicted; 0: it doesn't fit
};

/// What became of the hints.
struct HintOutcome {
  bool followed = false;  // the chosen plan agrees with all of them
  bool fits = false;
  std::optional<spec::Plan> plan;  // the best one that agrees with them; none where they contradict each other
  double seconds = 0;
  std::array<std::int64_t, spec::kTierCount> missing_bytes{};  // as a Refusal's
  std::string reason;                                          // why it isn't possible: what is missing, or the contradiction
};

/// Elixir's question where zero_stage 3 can't keep both on the device: as many gathered parameters as there is room for and the states in
/// host memory, or the fewest and as many states as fit. The chosen plan and the best of the other kind, priced.
struct CacheDecision {
  spec::Plan rcache_first, states_first;
  double rcache_first_seconds = 0, states_first_seconds = 0;
  bool takes_rcache = false;  // the chosen plan is that with more gathered; perhaps as good as equal to the other
};

struct PlanResult {
  spec::Plan plan;
  int segments_between_agrees = 0;  // as schedule::BuildInputs: agrees stand at most a second of predicted time apart
  Prediction prediction;
  std::vector<Refusal> refused;
  std::optional<HintOutcome> hint;
  std::optional<CacheDecision> cache;
  /// Bytes of a rank that the states of all chunks would take of the device, and those that the chosen plan leaves for them there.
  std::int64_t state_bytes = 0, device_bytes_for_states = 0;
  // How the choice was made.
  std::int64_t considered = 0, too_large = 0, bounded = 0, reduced = 0, simulated = 0;
};

/// Walks ZeRO stage, micro-batch and its order, chunk size, update mode, prefetch, rCache, and what becomes of those that don't fit the
/// device: as little as suffices recomputed or moved to the host, or homes in slower tiers (plan/homes.hpp), or both. Three stages of
/// pricing (design section 1): closed-form bounds prune, of memory only where nothing can fit; a reduced graph ranks, and for the best of
/// these also says how many of the recomputed activations had better be moved and how far ahead states are fetched; at most 20 finalists
/// are placed and simulated whole, and fitted to the budget by what placement needs of each tier. Equal arguments give the equal result; of
/// candidates within 0.5 % of the best those that move nothing come first, then those without the disk, then the first in the order of the
/// walk. Throws RequestError when the batch can't be divided so or pins contradict each other, EnvironmentError with the missing bytes of
/// each tier and the nearest plan when nothing fits.
PlanResult search(const PlanRequest& request);

/// The micro-batches a rank may run: (micro_batch, accumulation) with micro_batch * accumulation * data = global_batch, largest
/// micro-batch first; what `batch` fixes is kept. Throws RequestError with all numbers where they disagree.
std::vector<std::pair<std::int64_t, std::int64_t>> micro_batches(const spec::BatchSpec& batch, std::int64_t data);

/// One line: "zero 3, chunks of 1.05 M elements, rCache 4.2 M, prefetch 1, 8 micro-batches of 4 layer by layer, 6 of 24 half-layers
/// recomputed, 2 saved on host, update at_end, of 12 chunks states 10 on host 2 on disk, gradients 12 on host".
std::string describe(const spec::Plan& plan);

}  // namespace sluice::plan
