#pragma once
// Small values that tasks hand to each other through control buffers of the host tier.

#include <cstdint>

#include "ops/grad_norm.hpp"

namespace sluice::schedule {

/// Which control buffer: Buffer::index under BufferTag::kControl.
enum class Control : std::int32_t { kLocalCounts, kGlobalCounts, kLoss, kNorm, kReport, kLogits };

struct Counts {
  std::int64_t valid_tokens = 0;
};

/// What a run of a step or an evaluation found; the same on all ranks.
struct Report {
  double loss = 0;       // mean over the valid tokens of all ranks and micro-batches
  double grad_norm = 0;  // global, before clipping, without the loss scale
  float grad_scale = 1;  // what the update multiplies gradients by: clip factor over loss scale
  std::int64_t valid_tokens = 0;
  bool overflow = false;        // fp16: the loss or a gradient isn't finite
  bool skipped = false;         // nothing is updated: an overflow, or no token counted
  bool stop_requested = false;  // by any rank, at any agree or at the end
};

}  // namespace sluice::schedule
