#pragma once
// The training loop: steps, evaluation, checkpoints, stopping. Collective over the world: every rank runs it.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/state.hpp"
#include "comm/communicator.hpp"
#include "data/corpus.hpp"
#include "data/sampler.hpp"
#include "spec/training_spec.hpp"
#include "train/engine.hpp"
#include "train/stop.hpp"

namespace sluice::train {

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  std::int64_t tokens = 0;  // positions of all rows since the run began, those without loss included
  double step_seconds = 0;
  double tokens_per_second = 0;
  SwapBytes swapped;  // in this step, by this rank
  bool skipped = false;
  std::string why_skipped;  // for people
};

struct EvaluationMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double perplexity = 0;
  std::int64_t tokens = 0;  // predicted
};

/// What the loop tells the world outside. Called on every rank; rank 0's usually writes.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;
  virtual void on_step(const StepMetrics& metrics) = 0;
  virtual void on_evaluation(const EvaluationMetrics& metrics) = 0;
  virtual void on_checkpoint(const checkpoint::CommitResult& result, double seconds) = 0;
  virtual void on_stop(std::int64_t step, bool step_was_dropped, bool saves) = 0;
};

struct LoopSetup {
  Engine* engine = nullptr;
  comm::Communicator* world = nullptr;
  const data::Corpus* train = nullptr;
  const data::TrainingSampler* sampler = nullptr;
  const data::Corpus* valid = nullptr;                     // null: no evaluation
  const data::EvaluationSampler* valid_sampler = nullptr;  // of valid
  bool keep_best = false;  // of the checkpoints of evaluated steps the one with the lowest loss is kept, whatever save.keep says
  spec::TrainingSpec training;
  std::int64_t steps = 0;                // the run's last step
  std::int64_t checkpoint_interval = 0;  // steps; 0: at the end only
  std::int64_t evaluate_interval = 0;    // steps; 0: at the end only
  std::string checkpoints;               // directory
  checkpoint::SaveOptions save;
  checkpoint::Documents documents;
  checkpoint::Progress start;        // of the loaded checkpoint, or zero
  bool start_is_saved = false;       // in a checkpoint of `checkpoints`
  std::optional<double> start_loss;  // of the evaluation of that state that is on record, NaN: on other data; none: it wasn't evaluated
  StopSource* stop = nullptr;        // null: none
  Observer* observer = nullptr;
};

struct LoopOutcome {
  bool finished = false;  // all steps done and the last evaluated; else stopped on request
  bool saved = false;     // the last state is in a checkpoint
  checkpoint::Progress progress;
  std::string last_checkpoint;  // path; empty: none in this attempt
  std::vector<double> step_seconds;
};

/// Runs from setup.start to setup.steps or a stop. Throws DivergedError when the loss isn't finite; when saving fails three times
/// in a row or at the end, ResumableStop if an earlier checkpoint of this run stands, else EnvironmentError.
LoopOutcome run_loop(const LoopSetup& setup);

/// What a checkpoint needs to know about the engine's parameters.
std::vector<checkpoint::ParamInfo> param_infos(const model::Model& model);
/// An engine's pieces in the checkpoint's terms.
std::vector<checkpoint::Piece> checkpoint_pieces(const model::Model& model, std::span<const HeldPiece> pieces);
/// Fills the whole engine from a checkpoint: for load_checkpoint() and load_newest(). The engine outlives it.
std::function<void(checkpoint::PieceReader&)> filling(Engine& engine);

/// Mean loss over every token of `corpus` that `sampler` predicts with loss, each once; none when the ranks agreed to stop on the way.
/// Collective.
std::optional<EvaluationMetrics> evaluate(Engine& engine, comm::Communicator& world, const data::Corpus& corpus,
                                          const data::EvaluationSampler& sampler, std::int64_t step, const std::function<bool()>& stop);

}  // namespace sluice::train
