#include "train/loop.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"
#include "chunks/layout.hpp"
#include "optim/schedule.hpp"

namespace sluice::train {
namespace {

// A disk that refuses a save may take the next one; three in a row mean that the run produces nothing that lasts.
constexpr int kSaveFailuresAllowed = 3;

std::string why_skipped(const schedule::Report& report, const std::optional<spec::LossScaleState>& before,
                        const std::optional<spec::LossScaleState>& after) {
  if (!report.overflow) return "none of its tokens counts";
  if (!before) return "its loss or a gradient isn't finite in bf16";
  if (before->scale != after->scale) return cat("gradients overflow in fp16; loss scale ", before->scale, " -> ", after->scale);
  if (before->hysteresis == after->hysteresis) return cat("gradients overflow in fp16 at the fixed loss scale ", after->scale);
  return cat("gradients overflow in fp16; loss scale ", after->scale, ", hysteresis ", before->hysteresis, " -> ", after->hysteresis);
}

class Loop {
 public:
  explicit Loop(const LoopSetup& setup)
      : s_(setup),
        layout_{setup.engine->plan().micro_batch, setup.engine->plan().mesh.data, setup.world->rank()},
        params_(param_infos(setup.engine->model())),
        damaged_steps_(setup.save.damaged_steps) {}

  LoopOutcome run() {
    outcome_.progress = s_.start;
    // A stop may come before the first step, and the state of step 0 is saved like any other.
    outcome_.progress.global_batch = s_.training.batch.global_batch;
    outcome_.progress.samples_per_epoch = s_.sampler->samples_per_epoch();
    outcome_.progress.seed = s_.training.seed;
    outcome_.progress.loss_scale = s_.engine->loss_scale();
    saved_step_ = s_.start_is_saved ? s_.start.step : -1;
    if (s_.start_loss) {
      evaluated_step_ = s_.start.step;
      evaluated_loss_ = *s_.start_loss;
    }
    bool stopped = s_.start_is_saved && s_.start.step < s_.steps && catch_up();
    while (!stopped && outcome_.progress.step < s_.steps) {
      stopped = run_step();
      if (stopped || outcome_.progress.step == s_.steps) break;
      if (evaluates_after(outcome_.progress.step)) stopped = run_evaluation();
      if (!stopped && s_.checkpoint_interval > 0 && outcome_.progress.step % s_.checkpoint_interval == 0) save(false);
    }
    if (outcome_.progress.step >= s_.steps) stopped = finish();
    outcome_.finished = !stopped;
    if (outcome_.finished) return outcome_;
    // A second signal skips the saving; ranks get it at different moments, so they ask each other.
    const bool hasten = !s_.world->all_agree(s_.stop == nullptr || !s_.stop->hastened());
    s_.observer->on_stop(outcome_.progress.step, dropped_, !hasten);
    if (!hasten) save(true);
    return outcome_;
  }

 private:
  /// One step; true when the ranks agreed to stop.
  bool run_step() {
    const std::int64_t step = outcome_.progress.step + 1;
    StepRequest request;
    request.step = step;
    request.learning_rate = optim::learning_rate(s_.training.schedule, s_.engine->adam_count());  // a skipped step moves no schedule
    const std::int64_t length = s_.training.batch.sequence_length;
    request.load = [&](int micro, const schedule::TokenRows& rows) {
      return s_.sampler->fill(*s_.train, outcome_.progress.samples, micro, layout_,
                              {rows.inputs, rows.targets, rows.sample_ids, rows.document_starts});
    };
    request.stop = stop_question();
    const SwapBytes before = s_.engine->swap_bytes();
    const std::int64_t begin = now_ns();
    const schedule::RunResult result = s_.engine->step(request);
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    if (result.cancelled) {
      dropped_ = true;
      return true;
    }
    if (!result.report.skipped && !(std::isfinite(result.report.loss) && std::isfinite(result.report.grad_norm))) {
      // The report is the same on every rank, so all throw.
      throw_on_all_ranks(DivergedError(cat("step ", step, ": the loss is ", result.report.loss, " and the gradient norm ",
                                           result.report.grad_norm, " (learning rate ", request.learning_rate,
                                           "); lower the learning rate or clip harder, and continue from the last checkpoint")));
    }
    checkpoint::Progress& progress = outcome_.progress;
    progress.step = step;
    progress.samples += s_.training.batch.global_batch;
    progress.adam_count = s_.engine->adam_count();
    const auto scale_before = std::exchange(progress.loss_scale, s_.engine->loss_scale());
    progress.epoch = progress.samples / progress.samples_per_epoch;
    outcome_.step_seconds.push_back(seconds);
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = result.report.loss;
    metrics.learning_rate = request.learning_rate;
    metrics.grad_norm = result.report.grad_norm;
    metrics.tokens = progress.samples * length;
    metrics.step_seconds = seconds;
    const SwapBytes after = s_.engine->swap_bytes();
    metrics.swapped = {after.read - before.read, after.written - before.written};
    metrics.skipped = result.report.skipped;
    if (metrics.skipped) metrics.why_skipped = why_skipped(result.report, scale_before, progress.loss_scale);
    metrics.tokens_per_second = static_cast<double>(s_.training.batch.global_batch * length) / seconds;
    s_.observer->on_step(metrics);
    return result.report.stop_requested;
  }

  bool evaluates_after(std::int64_t step) const {
    return s_.valid != nullptr && step > 0 && s_.evaluate_interval > 0 && step % s_.evaluate_interval == 0;
  }

  /// The attempt before may have been stopped or killed between saving its last step and evaluating it. True when the ranks agreed to
  /// stop in the middle of it.
  bool catch_up() {
    if (!evaluates_after(outcome_.progress.step)) return false;
    if (run_evaluation()) return true;
    if (is_new_best()) save(false);
    return false;
  }

  /// What is left after the last step. True when the ranks agreed to stop in the middle of it.
  bool finish() {
    // Whether the last state is the best one stands in its manifest, so it is evaluated before where that counts.
    if (s_.keep_best && s_.valid != nullptr && run_evaluation()) return true;
    save(true);
    return s_.valid != nullptr && run_evaluation();
  }

  /// The present state has been evaluated, and better than the best checkpoint so far.
  bool is_new_best() const {
    const auto& best = outcome_.progress.best;
    return s_.keep_best && evaluated_step_ == outcome_.progress.step && std::isfinite(evaluated_loss_) &&
           !(best && best->loss <= evaluated_loss_);
  }

  /// True when the ranks agreed to stop in the middle of it.
  bool run_evaluation() {
    if (evaluated_step_ == outcome_.progress.step) return false;
    const auto metrics = evaluate(*s_.engine, *s_.world, *s_.valid, *s_.valid_sampler, outcome_.progress.step, stop_question());
    if (!metrics) return true;
    evaluated_step_ = outcome_.progress.step;
    evaluated_loss_ = metrics->loss;
    s_.observer->on_evaluation(*metrics);
    return false;
  }

  std::function<bool()> stop_question() const {
    if (s_.stop == nullptr) return {};
    return [this] { return s_.stop->requested(); };
  }

  void save(bool last) {
    if (saved_step_ == outcome_.progress.step && !is_new_best()) {
      outcome_.saved = true;
      return;
    }
    const std::int64_t begin = now_ns();
    s_.engine->flush();
    checkpoint::Progress progress = outcome_.progress;
    if (is_new_best()) progress.best = {progress.step, evaluated_loss_};
    checkpoint::SaveOptions options = s_.save;
    options.damaged_steps = damaged_steps_;
    checkpoint::CheckpointSave saving(*s_.world, s_.checkpoints, progress, s_.documents, params_,
                                      checkpoint_pieces(s_.engine->model(), s_.engine->owned_pieces()), options);
    s_.engine->save([&](std::size_t piece, const void* data) { saving.write(piece, data); });
    const checkpoint::CommitResult result = saving.commit();
    s_.observer->on_checkpoint(result, static_cast<double>(now_ns() - begin) * 1e-9);
    if (result.ok) {
      saved_step_ = outcome_.progress.step;
      outcome_.progress.best = progress.best;  // not before: what wasn't saved is no best checkpoint
      outcome_.last_checkpoint = result.path;
      outcome_.saved = true;
      save_failures_ = 0;
      std::erase(damaged_steps_, saved_step_);  // a whole one stands there now
      return;
    }
    outcome_.saved = false;
    ++save_failures_;
    if (!last && save_failures_ < kSaveFailuresAllowed) return;
    const std::string message = cat("saving step ", outcome_.progress.step, " failed",
                                    save_failures_ > 1 ? cat(", ", save_failures_, " times in a row") : std::string(), ": ", result.reason);
    if (saved_step_ >= 0)
      throw_on_all_ranks(
          ResumableStop(cat(message, "; the checkpoint of step ", saved_step_, " stands: make room and start the same command again")));
    throw_on_all_ranks(EnvironmentError(message));
  }

  const LoopSetup& s_;
  data::RowLayout layout_;
  std::vector<checkpoint::ParamInfo> params_;
  std::vector<std::int64_t> damaged_steps_;
  LoopOutcome outcome_;
  std::int64_t saved_step_ = -1;
  std::int64_t evaluated_step_ = -1;
  double evaluated_loss_ = 0;
  int save_failures_ = 0;
  bool dropped_ = false;
};

}  // namespace

LoopOutcome run_loop(const LoopSetup& setup) {
  SLUICE_CHECK(setup.engine != nullptr && setup.world != nullptr && setup.train != nullptr && setup.sampler != nullptr &&
                   setup.observer != nullptr && (setup.valid == nullptr) == (setup.valid_sampler == nullptr),
               "an incomplete loop");
  return Loop(setup).run();
}

std::vector<checkpoint::ParamInfo> param_infos(const model::Model& model) {
  std::vector<checkpoint::ParamInfo> infos;
  for (const model::ParamSpec& param : model.params) infos.push_back({param.name, param.shape, DType::kF32});
  return infos;
}

std::vector<checkpoint::Piece> checkpoint_pieces(const model::Model& model, std::span<const HeldPiece> held) {
  const std::vector<checkpoint::ParamInfo> infos = param_infos(model);
  std::vector<checkpoint::Piece> pieces;
  for (const HeldPiece& piece : held) {
    // A file's "working" is the parameter in f32: the master where there is one, rounded into working copies when it is read.
    const chunks::Plane plane = piece.is_parameter() ? chunks::Plane::kWorking : piece.plane;
    pieces.push_back({std::string(chunks::name_of(plane)), checkpoint::flat_region(infos, piece.param, piece.begin, piece.count),
                      piece.data, piece.dtype});
  }
  return pieces;
}

std::function<void(checkpoint::PieceReader&)> filling(Engine& engine) {
  return [&engine](checkpoint::PieceReader& reader) {
    engine.fill([&](std::span<const HeldPiece> batch) { reader.read(checkpoint_pieces(engine.model(), batch)); });
  };
}

std::optional<EvaluationMetrics> evaluate(Engine& engine, comm::Communicator& world, const data::Corpus& corpus,
                                          const data::EvaluationSampler& sampler, std::int64_t step, const std::function<bool()>& stop) {
  const data::RowLayout layout{engine.plan().micro_batch, engine.plan().mesh.data, world.rank()};
  EvaluationMetrics metrics;
  metrics.step = step;
  double sum = 0;
  for (std::int64_t batch = 0; batch < sampler.batches(layout); ++batch) {
    const schedule::Report report = engine.evaluate(
        [&](int /*micro*/, const schedule::TokenRows& rows) {
          return sampler.fill(corpus, batch, layout, {rows.inputs, rows.targets, rows.sample_ids, rows.document_starts});
        },
        stop);
    if (report.stop_requested) return std::nullopt;
    sum += report.loss * static_cast<double>(report.valid_tokens);
    metrics.tokens += report.valid_tokens;
  }
  metrics.loss = sum / static_cast<double>(metrics.tokens);
  metrics.perplexity = std::exp(metrics.loss);
  return metrics;
}

}  // namespace sluice::train
