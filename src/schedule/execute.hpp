#pragma once
// Runs step graphs on a device: one issuing thread a lane or a group of lanes, one thread for communication, two for each lane of the
// disk, of which one posts transfers as soon as what they wait for is complete and the other sees them end, in order.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/trace.hpp"
#include "chunks/layout.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "memory/arena.hpp"
#include "model/model.hpp"
#include "ops/context.hpp"
#include "optim/policy.hpp"
#include "schedule/control.hpp"
#include "schedule/disk_state.hpp"
#include "schedule/graph.hpp"
#include "spec/plan.hpp"
#include "spec/step_inputs.hpp"

namespace sluice::schedule {

/// Which lanes share an issuing thread. Waits point backwards in the linear order, so any merge of lanes that keeps it is legal.
enum class Threading : std::uint8_t {
  kFolded,   // one rank: everything on the caller's thread; several: communication lanes on a thread of their own
  kPerLane,  // every lane that has tasks on a thread of its own, communication lanes together on one
};

/// How the executor runs a graph: where anything moves between tiers every lane is on its own, so that moving hides behind computing.
Threading threading_of(const StepGraph& graph);

/// What bodies work on. Everything pointed to outlives the executor.
struct Environment {
  device::Device* device = nullptr;
  std::array<const memory::Arena*, spec::kTierCount> arenas{};  // of what can be addressed: none of the disk
  DiskState* disk = nullptr;                                    // null: no disk tier
  const model::Model* model = nullptr;
  const chunks::ChunkLayout* layout = nullptr;
  const optim::Grouping* grouping = nullptr;
  spec::OptimizerSpec optimizer;
  spec::Plan plan;
  std::int64_t sequence_length = 0;
  bool document_attention = false;
  ops::Context ops;
  comm::Communicator* group = nullptr;  // the ZeRO group
  TraceSink* trace = nullptr;
  Threading threading = Threading::kFolded;  // kPerLane: of graphs without moves, too
  bool skips_overflow = false;               // a step whose loss or gradients aren't finite changes nothing
  bool poison = false;                       // tests: fill dead buffers with NaN
};

/// Where the tokens of one micro-batch go.
struct TokenRows {
  std::int32_t* inputs;           // [rows, sequence]
  std::int32_t* targets;          // [rows, sequence]
  std::int64_t* sample_ids;       // [rows]
  std::int32_t* document_starts;  // [rows, sequence] as ops::DocumentStarts; null without document_attention
};

/// What varies from run to run.
struct RunInputs {
  spec::StepInputs step;
  /// Fills one micro-batch of this rank; returns its valid (counted) targets. Called for micro 0, 1, ... by the load task.
  std::function<std::int64_t(int micro, const TokenRows& rows)> load;
  /// Asked by agree tasks: does this rank want to stop? May be empty.
  std::function<bool()> stop;
  /// kSave: called for each chunk's plane with this rank's own part (elements [begin, begin + count) of the chunk), f32 but for
  /// frozen working parameters, which are as stored.
  std::function<void(chunks::Plane plane, int chunk, std::int64_t begin, std::int64_t count, const void* data)> save;
  std::int64_t position = 0;  // kGenerate: the token whose logits are wanted
};

struct RunResult {
  bool cancelled = false;  // at a cancel point: nothing of the step was applied
  Report report;
};

class Executor {
 public:
  explicit Executor(const Environment& environment);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Proves a placed graph (check_all) and resolves every task of it to its body and buffers. Collective: a graph that fails a proof on
  /// any rank throws on all; all ranks compare their sequences of collectives, and a mismatch throws CommError naming the first task that
  /// differs. The graph must outlive the executor.
  void bind(const StepGraph& graph);
  /// Runs the bound graph of that kind; returns when every task is done or skipped and no transfer is in flight, also after a failure.
  /// Rethrows the first failure of a body or a transfer (IoError), after which the executor must not be used again.
  RunResult run(GraphKind kind, const RunInputs& inputs);
  /// The vocabulary's logits that the last kGenerate run wrote.
  const float* logits() const;
  /// Bytes moved by the gather, scatter and mesh lanes since the start.
  comm::Traffic traffic(Lane lane) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::schedule
