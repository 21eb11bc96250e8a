#pragma once
// One rank's training engine: the persistent state, the set of graphs on it and the executor that runs them. Strategies are in the
// graphs; what the engine itself asks of them stands in README.md.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.hpp"
#include "chunks/layout.hpp"
#include "comm/communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/device.hpp"
#include "memory/io/swap_space.hpp"
#include "memory/ledger.hpp"
#include "model/model.hpp"
#include "schedule/build.hpp"
#include "schedule/execute.hpp"
#include "spec/machine_spec.hpp"
#include "spec/plan.hpp"
#include "spec/training_spec.hpp"

namespace sluice::train {

/// Where a rank may swap, for plans that use the disk tier.
struct SwapSetup {
  std::vector<std::string> paths;  // directories, at least one; leftovers of dead owners are removed before
  memory::SwapIdentity identity;   // of this rank
  memory::FileEngine::Options engine;
  /// What else is going to be written to the same disks; the engine itself adds the swap of all ranks of the node.
  std::vector<memory::SpaceClaim> claims;
  bool allow_network = false;
  /// Called on every rank before some more of this rank's files is written for the first time, with the bytes that are and all of them:
  /// that may take minutes. What it throws on one rank ends the engine's construction on all.
  std::function<void(std::int64_t written, std::int64_t bytes)> on_fill = [](std::int64_t, std::int64_t) {};
  const memory::IoSystem* system = &memory::IoSystem::real();  // outlives the engine
};

struct EngineSetup {
  spec::ModelSpec model;
  spec::TrainingSpec training;
  bool trains = true;  // false: evaluates and generates alone, without gradients, optimizer state and step
  spec::Plan plan;
  comm::Communicator* group = nullptr;   // the data-parallel group; outlives the engine
  device::Device* device = nullptr;      // outlives the engine
  int segments_between_agrees = 0;       // as schedule::BuildInputs
  std::int64_t device_budget_bytes = 0;  // of this rank's device arena; 0: no limit
  std::optional<SwapSetup> swap;         // opened where the plan uses the disk
  TraceSink* trace = nullptr;
  schedule::Threading threading = schedule::Threading::kFolded;
  ops::Backend backend = ops::Backend::kCpu;
  std::optional<device::Isa> isa;  // benchmarks: narrower instructions than the processor's widest
  bool poison = false;             // tests
};

/// A contiguous part of one parameter's plane that this rank holds.
struct HeldPiece {
  chunks::Plane plane;
  int param;
  std::int64_t begin;  // element of the flattened parameter
  std::int64_t count;
  DType dtype;  // kF32, or what working parameters are stored as
  void* data;   // [count]; null while it stands on disk
  /// Whether it holds the parameter itself: the master or a working copy of it, which are filled alike.
  bool is_parameter() const { return plane == chunks::Plane::kWorking || plane == chunks::Plane::kMaster; }
  /// `data` of an f32 piece; LogicError for others.
  float* f32() const;
};

/// Gives the piece its numbers: calls `fill` for consecutive parts of it, from element `begin` of the parameter on, and rounds what
/// it has written where the piece isn't f32.
void fill_piece(const HeldPiece& piece, const ops::Context& ops,
                const std::function<void(std::int64_t begin, std::int64_t count, float* values)>& fill);

/// Writes all of the pieces it is given; their data are valid during the call only.
using PieceFill = std::function<void(std::span<const HeldPiece> batch)>;

/// Bytes moved to and from this rank's swap files since they were made, the first writing included.
struct SwapBytes {
  std::int64_t read = 0;
  std::int64_t written = 0;
};

/// As many as take fp16's scale from where it starts by default to its minimum, and a few.
inline constexpr int kMostOverflows = 20;

/// One step as the loop asks for it.
struct StepRequest {
  std::int64_t step = 0;     // 1-based
  double learning_rate = 0;  // of this step's update
  std::function<std::int64_t(int micro, const schedule::TokenRows& rows)> load;
  std::function<bool()> stop;
};

/// The arithmetic signature of a plan run with these ops.
spec::ArithmeticSignature signature_of(const spec::Plan& plan, spec::Precision precision, const ops::Context& ops);

class Engine {
 public:
  /// Collective over the group: builds model, layout and graphs, allocates and touches the arenas, opens the swap space, binds. Throws
  /// on all ranks, with the code of the environment where the plan's arenas exceed a rank's budget, the machine or its disks, and as
  /// SwapSpace::create() and fill(), and what SwapSetup::on_fill throws.
  explicit Engine(const EngineSetup& setup);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  const model::Model& model() const noexcept;
  const spec::Plan& plan() const noexcept;
  spec::ArithmeticSignature signature() const;
  const schedule::StepGraph& graph(schedule::GraphKind kind) const;
  /// Of main memory beside the arenas: the graphs, and what the executor keeps of them.
  std::int64_t bookkeeping_bytes() const;
  /// What the graphs were built from; valid as long as the engine.
  const schedule::BuildInputs& build_inputs() const noexcept;

  /// What people should know about memory and disks, one line each: known after construction, perhaps the same on all ranks.
  const std::vector<std::string>& notes() const noexcept;

  /// Every parameter drawn by the counter-based generator from `seed`; moments zero. The same for every plan and rank count.
  void initialise(std::uint64_t seed);
  /// Runs one step. A cancelled step (a stop request at a cancel point) leaves the state of the step before; a skipped one
  /// (an overflow, see optim::skips_overflow; no token counts) as well, but for the loss scale. Throws DivergedError on all ranks where the
  /// loss scale would have to fall below its minimum, and in bf16, which has none, after kMostOverflows overflows in a row.
  schedule::RunResult step(const StepRequest& request);
  /// Applies an update that is still pending (next_forward). Before anything looks at the state from outside.
  void flush();
  /// Mean loss over the valid tokens of one micro-batch a rank, over all ranks; says also whether a rank wants to stop. Collective.
  schedule::Report evaluate(const std::function<std::int64_t(int micro, const schedule::TokenRows& rows)>& load,
                            const std::function<bool()>& stop = {});
  /// Logits [vocab] that follow token `position` of one row. Valid until the next run.
  const float* next_logits(const std::function<std::int64_t(int micro, const schedule::TokenRows& rows)>& load, std::int64_t position);

  /// What this rank *owns*: over all ranks every element of the (master) parameters and their moments exactly once, in f32; of
  /// frozen parameters the working ones.
  const std::vector<HeldPiece>& owned_pieces() const noexcept;
  /// What this rank *holds*: owned parts and whole planes; filling them all restores the state.
  const std::vector<HeldPiece>& held_pieces() const noexcept;
  /// Calls `fill` with batches that contain every held piece once, with somewhere to write it; what it doesn't write of them is lost. As
  /// many calls on every rank. Local: the ranks meet, and agree that none has failed, before anything runs. After a throw the state is
  /// undefined until it is filled again. Throws what `fill` does, and IoError.
  void fill(const PieceFill& fill);
  /// Runs the save graph: calls `write(i, data)` for every owned piece i with where it stands, valid during the call, in an order the
  /// graph decides. Flushes before.
  void save(const std::function<void(std::size_t piece, const void* data)>& write);

  /// Updates applied so far: Adam's t; SGD's first is another than its later ones.
  std::int64_t adam_count() const noexcept;
  /// fp16: where the loss scaler stands; none with other precisions.
  std::optional<spec::LossScaleState> loss_scale() const;
  /// After the held pieces were filled from a checkpoint: takes its update count and, for fp16, its loss scale where it has one.
  void resume(const checkpoint::Progress& progress);

  comm::Traffic traffic(schedule::Lane lane) const;
  SwapBytes swap_bytes() const noexcept;
  /// Bytes of this rank's arenas by tier.
  std::array<std::int64_t, spec::kTierCount> arena_bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::train
