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

struct Plan {
  int zero_stage = 0;                // 0..3
  std::int64_t chunk_elements = 0;   // capacity of a chunk, a multiple of 256
  std::int64_t rcache_elements = 0;  // zero_stage 3: elements of gathered working parameters resident at once
  int prefetch_segments = 1;         // how many segments ahead a gather is issued
  std::int64_t micro_batch = 1;      // sequences per rank and micro-batch
  std::int64_t accumulation = 1;     // micro-batches per step
  UpdateMode update_mode = UpdateMode::kAtEnd;
  std::vector<std::uint8_t> recompute;  // per segment: 1 = its saved tensors are recomputed in backward
  int threads = 1;                      // compute threads per rank
  MeshSpec mesh;

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
