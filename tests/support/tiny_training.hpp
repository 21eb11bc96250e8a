#pragma once
// A whole training run of a tiny GPT-2 on ranks that are threads: what the layout tests compare.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "memory/io/io_system.hpp"
#include "schedule/execute.hpp"
#include "spec/model_spec.hpp"
#include "spec/plan.hpp"
#include "spec/training_spec.hpp"
#include "support/temp_dir.hpp"
#include "train/engine.hpp"

namespace sluice::testing {

/// Hidden 48, 3 layers, vocabulary 67, so that no shard or chunk divides evenly; dropout 0.1 everywhere.
spec::ModelSpec tiny_model();
/// Global batch 12 of 16 tokens, AdamW with decay, clipping 0.5.
spec::TrainingSpec tiny_training();
/// A plan for `ranks` ranks with these degrees of freedom; the rest is filled to match.
spec::Plan tiny_plan(int ranks, int zero_stage, std::int64_t accumulation, spec::UpdateMode mode, bool recompute,
                     std::int64_t chunk_elements, int prefetch_segments = 1);

struct TinyRun {
  int ranks = 1;
  int steps = 4;
  spec::ModelSpec model = tiny_model();
  spec::TrainingSpec training = tiny_training();
  spec::Plan plan;
  schedule::Threading threading = schedule::Threading::kFolded;
  bool poison = false;
  int segments_between_agrees = 0;
  std::uint64_t lag_seed = 0;  // not 0: collectives lag at random
  /// Which targets count: position t of a sample. Empty: six of seven, unevenly over rows.
  std::function<bool(std::int64_t sample, std::int64_t t)> counts;
  /// Makes the device of a rank; empty: the cpu device.
  std::function<std::unique_ptr<device::Device>(int rank)> make_device;
  /// What a rank asks for the files it swaps to; empty: the kernel. Outlives the run.
  std::function<const memory::IoSystem*(int rank)> io;
  /// Told by a rank as train::SwapSetup says; may be empty.
  std::function<void(int rank, std::int64_t written, std::int64_t bytes)> on_fill;
};

struct TinyResult {
  std::vector<double> losses;      // per step
  std::vector<double> grad_norms;  // per step
  double evaluation = 0;           // loss of a fixed batch after the last step
  std::vector<float> logits;       // that follow a fixed prompt after the last step
  std::string state;               // every parameter and moment, whole, as f32 in parameter order; of frozen ones the parameter alone
};

/// What differs in bits; empty when nothing does.
std::string difference(const TinyResult& a, const TinyResult& b);

/// One rank of a tiny run: its device, engine, initialised parameters and data, and a directory to swap to where the plan uses the disk.
/// Calls are collective.
class TinyRank {
 public:
  TinyRank(const TinyRun& run, comm::Communicator& world);
  train::Engine& engine() { return *engine_; }
  device::Device& device() { return *device_; }
  /// Where it swaps to; null if the plan has nothing on disk.
  const TempDir* swap() const { return swap_.get(); }
  /// `number` from 1: decides tokens and learning rate.
  schedule::RunResult step(int number, const std::function<bool()>& stop = {});
  double evaluate();
  std::vector<float> logits();
  /// Every parameter and moment, whole, on every rank: by the save graph. Checks that over all ranks each element is there once.
  std::string state();
  /// Called before a step's tokens are loaded, on the thread that loads them.
  std::function<void(int micro)> before_load;

 private:
  std::int64_t fill(std::int64_t first_sample, int micro, const schedule::TokenRows& out) const;
  TinyRun run_;
  comm::Communicator& world_;
  std::unique_ptr<comm::Communicator> lagging_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<TempDir> swap_;
  std::unique_ptr<train::Engine> engine_;
};

/// Runs it and checks that all ranks report the same. Rethrows what a rank throws.
TinyResult run_tiny(const TinyRun& run);

}  // namespace sluice::testing
