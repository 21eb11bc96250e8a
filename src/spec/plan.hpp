#pragma once
// The plan: every choice about placement and order, and nothing else. A plan with the model, mesh and training values
// determines the step graph.

#include <cstdint>
#include <string>
#include <vector>

#include "spec/training_spec.hpp"

namespace sluice::spec {

enum class Tier : std::uint8_t { kDevice, kHost, kDisk };
inline constexpr int kTierCount = 3;
std::string_view name_of(Tier tier);

/// When a chunk's update runs (design section 1): after the whole backward; just before the chunk's next use; as soon as its
/// gradient is reduced (only without clipping).
enum class UpdateMode : std::uint8_t { kAtEnd, kNextForward, kInBackward };
std::string_view name_of(UpdateMode mode);

/// What becomes of the tensors that a segment's forward saves for its backward: kept on the device; dropped and computed again; moved
/// to host memory or, through it, to disk, and back before the backward.
enum class Activation : std::uint8_t { kKeep, kRecompute, kHost, kDisk };
inline constexpr int kActivationCount = 4;
std::string_view name_of(Activation activation);  // "keep", "recompute", "host", "disk"

/// In which order a step's micro-batches pass the segments: one after the other, or each segment for all of them before the next
/// (gathered parameters serve all micro-batches; GreedySnake's vertical order).
enum class MicroBatchOrder : std::uint8_t { kDepthFirst, kLayerByLayer };
std::string_view name_of(MicroBatchOrder order);  // "depth_first", "layer_by_layer"

/// Where a rank's share of a chunk stands between its uses, each in a tier that isn't slower than that of the states. Off the device only
/// where it is sharded: working with zero_stage 3, gradient with 2 and 3; no gradient on disk with in_backward, which uses it up at once.
/// A chunk whose states are off the device is updated in host memory. Of a frozen chunk only `working` counts.
struct ChunkHomes {
  Tier working = Tier::kDevice;   // working parameters; in fp32 these are the master
  Tier gradient = Tier::kDevice;  // of the step, reduced
  Tier states = Tier::kDevice;    // the optimizer's moments, and the master where it is a plane of its own
  friend bool operator==(const ChunkHomes&, const ChunkHomes&) = default;
};

struct Plan {
  int zero_stage = 0;                // 0..3
  std::int64_t chunk_elements = 0;   // capacity of a chunk, a multiple of 256
  std::int64_t rcache_elements = 0;  // zero_stage 3: elements of gathered working parameters resident at once
  int prefetch_segments = 1;         // how many segments ahead a gather is issued
  std::int64_t micro_batch = 1;      // sequences per rank and micro-batch
  std::int64_t accumulation = 1;     // micro-batches per step
  UpdateMode update_mode = UpdateMode::kAtEnd;
  MicroBatchOrder order = MicroBatchOrder::kDepthFirst;
  std::vector<Activation> activations;  // per segment
  std::vector<ChunkHomes> homes;        // per chunk; empty: everything stands on the device
  int state_prefetch = 1;               // how many chunks ahead of their update states off their update's tier are fetched
  int threads = 1;                      // compute threads per rank
  MeshSpec mesh;

  ChunkHomes home(std::size_t chunk) const { return homes.empty() ? ChunkHomes{} : homes[chunk]; }
  bool recomputes(std::size_t segment) const { return activations[segment] == Activation::kRecompute; }
  /// Whether anything stands in that tier between its uses.
  bool uses_tier(Tier tier) const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

std::string to_json(const Plan& plan);
Plan plan_from_json(const std::string& text, const std::string& source);

/// The arithmetic signature (design section 6): what may change bits. Two runs with equal signatures have equal bits,
/// whatever else their plans say.
struct ArithmeticSignature {
  MeshSpec mesh;
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 0;
  std::string reduce_point;  // "step" (zero_stage 0-1: micro-batches, then ranks) or "micro-batch" (2-3: ranks, then micro-batches)
  std::string dtypes;        // "f32"
  std::string isa;           // "avx512", "avx2": the kernels' instruction set
  int threads = 0;           // per rank
  std::string libraries;     // versions that may change bits, as "onednn 2.6.3"
  friend bool operator==(const ArithmeticSignature&, const ArithmeticSignature&) = default;
};

std::string to_json(const ArithmeticSignature& signature);
ArithmeticSignature signature_from_json(const std::string& text, const std::string& source);
/// One line for people: "dp 2 x micro 4 x accum 1, reduce per step, f32, avx512, 1 thread, onednn 2.6.3".
std::string describe(const ArithmeticSignature& signature);
/// The fields that differ, as "threads: 1 here, 2 there"; empty when equal.
std::vector<std::string> differences(const ArithmeticSignature& here, const ArithmeticSignature& there);

}  // namespace sluice::spec
