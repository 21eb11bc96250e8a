#pragma once
// A whole training run of a tiny GPT-2 on ranks that are threads: what the layout tests compare.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "schedule/execute.hpp"
#include "spec/model_spec.hpp"
#include "spec/plan.hpp"
#include "spec/training_spec.hpp"

namespace sluice::testing {

/// Hidden 48, 3 layers, vocabulary 67, so that no shard or chunk divides evenly; dropout 0.1 everywhere.
spec::ModelSpec tiny_model();
/// Global batch 12 of 16 tokens, AdamW with decay, clipping 0.5.
spec::TrainingSpec tiny_training();
/// A plan for `ranks` ranks with these degrees of freedom; the rest is filled to match.
spec::Plan tiny_plan(int ranks, int zero_stage, std::int64_t accumulation, spec::UpdateMode mode, bool recompute, std::int64_t chunk_elements);

struct TinyRun {
  int ranks = 1;
  int steps = 4;
  spec::ModelSpec model = tiny_model();
  spec::TrainingSpec training = tiny_training();
  spec::Plan plan;
  schedule::Threading threading = schedule::Threading::kFolded;
  bool poison = false;
  bool verify_graphs = true;
  /// Makes the device of a rank; empty: the cpu device.
  std::function<std::unique_ptr<device::Device>(int rank)> make_device;
};

struct TinyResult {
  std::vector<double> losses;      // per step
  std::vector<double> grad_norms;  // per step
  double evaluation = 0;           // loss of a fixed batch after the last step
  std::string state;               // every parameter and moment, whole, as bytes in parameter order
};

/// Runs it and checks that all ranks report the same. Rethrows what a rank throws.
TinyResult run_tiny(const TinyRun& run);

}  // namespace sluice::testing
