// The training loop on ranks that are threads: stopping, resuming on the same and on another number of ranks, epochs, failing
// disks, divergence.

#include "train/loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/load.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "ops/convert.hpp"
#include "optim/schedule.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

class Recorder final : public train::Observer {
 public:
  void on_step(const train::StepMetrics& metrics) override {
    steps.push_back(metrics);
    if (after_step) after_step(metrics.step);
  }
  void on_evaluation(const train::EvaluationMetrics& metrics) override { evaluations.push_back(metrics); }
  void on_checkpoint(const checkpoint::CommitResult& result, double /*seconds*/) override { commits.push_back(result); }
  void on_stop(std::int64_t step, bool /*dropped*/, bool /*saves*/) override { stopped_at = step; }
  std::vector<train::StepMetrics> steps;
  std::vector<train::EvaluationMetrics> evaluations;
  std::vector<checkpoint::CommitResult> commits;
  std::int64_t stopped_at = -1;
  std::function<void(std::int64_t)> after_step;
};

spec::ScheduleSpec tiny_schedule(double peak) {
  // A warm-up throughout, so that each applied step has a rate of its own.
  return {.kind = spec::ScheduleKind::kLinear, .peak = peak, .warmup_steps = 100, .total_steps = 200};
}

class LoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("sluice-loop-" + std::to_string(getpid()) + "-" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "train.txt", std::ios::binary);
    for (int i = 0; i < 60; ++i) text << "the " << i << " quick brown foxes jump over " << i * 7 % 13 << " lazy dogs. ";
    std::ofstream(folder_ / "valid.txt", std::ios::binary)
        << "the quick brown fox jumps over the lazy dog, and then it does so once more for good measure.";
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Job {
    int ranks = 2;
    int zero_stage = 3;
    spec::UpdateMode mode = spec::UpdateMode::kNextForward;
    std::int64_t steps = 8;
    std::int64_t checkpoint_interval = 3;
    std::int64_t evaluate_interval = 0;
    double peak = 5e-3;
    spec::Precision precision = spec::Precision::kFp32;
    spec::LossScaleSpec loss_scale;
    bool warms_up = false;
    std::vector<std::string> trainable;
    spec::OptimizerSpec optimizer = tiny_training().optimizer;
    std::string run = "run";
    checkpoint::Hook hook;
    std::function<void(std::int64_t)> after_step;  // of rank 0
    bool listen = false;
    bool keep_best = false;
    std::optional<double> start_loss;
    int keep = 3;
  };
  struct Result {
    Recorder recorder;  // of rank 0
    train::LoopOutcome outcome;
    std::string state;
  };

  /// Runs a job from the newest checkpoint of its directory, if there is one.
  void run(const Job& job, Result& result) {
    spec::ModelSpec model = tiny_model();
    model.vocab = 257;
    spec::TrainingSpec training = tiny_training();
    training.schedule.peak = job.peak;
    if (job.warms_up) training.schedule = tiny_schedule(job.peak);
    training.precision = job.precision;
    training.trainable = job.trainable;
    training.optimizer = job.optimizer;
    training.loss_scale = job.loss_scale;
    std::mutex mutex;
    std::map<std::pair<int, int>, std::vector<float>> state;
    std::optional<train::StopSource> stop;
    if (job.listen) stop.emplace((folder_ / job.run / "STOP").string());
    comm::run_local_ranks(job.ranks, [&](comm::Communicator& world) {
      const auto device = device::make_cpu_device();
      train::EngineSetup setup;
      setup.model = model;
      setup.training = training;
      setup.plan = tiny_plan(job.ranks, job.zero_stage, 1, job.mode, true, 4096);
      // The tiny plan was made for the tiny vocabulary; the larger one needs a larger rCache.
      setup.plan.rcache_elements = 1 << 20;
      setup.group = &world;
      setup.device = device.get();
      train::Engine engine(setup);
      engine.initialise(training.seed);
      const data::Corpus corpus({(folder_ / "train.txt").string()}, model.vocab);
      const data::Corpus valid({(folder_ / "valid.txt").string()}, model.vocab);
      const data::TrainingSampler sampler(corpus.tokens(), training.batch.sequence_length, data::Order::kShuffled, training.seed);
      const data::EvaluationSampler valid_sampler(valid.tokens(), training.batch.sequence_length);
      Recorder others;
      Recorder& recorder = world.rank() == 0 ? result.recorder : others;
      if (world.rank() == 0) recorder.after_step = job.after_step;
      train::LoopSetup loop;
      loop.engine = &engine;
      loop.world = &world;
      loop.train = &corpus;
      loop.valid = &valid;
      loop.valid_sampler = &valid_sampler;
      loop.sampler = &sampler;
      loop.training = training;
      loop.steps = job.steps;
      loop.checkpoint_interval = job.checkpoint_interval;
      loop.evaluate_interval = job.evaluate_interval;
      loop.checkpoints = (folder_ / job.run / "checkpoints").string();
      loop.save.hook = job.hook;
      loop.save.keep = job.keep;
      loop.observer = &recorder;
      loop.stop = stop ? &*stop : nullptr;
      loop.keep_best = job.keep_best;
      loop.start_loss = job.start_loss;
      const auto infos = train::param_infos(engine.model());
      if (const auto loaded = checkpoint::load_newest(world, loop.checkpoints, infos, train::filling(engine))) {
        for (const checkpoint::Refused& refused : loaded->refused) loop.save.damaged_steps.push_back(refused.step);
        loop.start = loaded->manifest.progress;
        loop.start_is_saved = true;
        engine.resume(loop.start);
      }
      const train::LoopOutcome outcome = train::run_loop(loop);
      if (world.rank() == 0) result.outcome = outcome;
      const std::lock_guard lock(mutex);
      engine.save([&](std::size_t i, const void* data) {
        const train::HeldPiece& piece = engine.owned_pieces()[i];
        auto& values = state[{piece.param, static_cast<int>(piece.plane)}];
        values.resize(static_cast<std::size_t>(engine.model().params[static_cast<std::size_t>(piece.param)].elements()));
        if (piece.dtype == DType::kF32) {
          std::copy_n(static_cast<const float*>(data), piece.count, values.begin() + piece.begin);
        } else {
          ops::widen(ops::make_cpu_context(1), static_cast<const std::uint16_t*>(data), piece.count, piece.dtype,
                     values.data() + piece.begin);
        }
      });
    });
    for (const auto& [key, values] : state)
      result.state.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }

  static std::vector<double> losses(const Result& result) {
    std::vector<double> list;
    for (const train::StepMetrics& step : result.recorder.steps) list.push_back(step.loss);
    return list;
  }

  fs::path folder_;
};

TEST_F(LoopTest, TrainsEvaluatesAndSaves) {
  Result result;
  Job job;
  job.evaluate_interval = 4;
  run(job, result);
  EXPECT_TRUE(result.outcome.finished);
  ASSERT_EQ(result.recorder.steps.size(), 8U);
  EXPECT_LT(result.recorder.steps.back().loss, result.recorder.steps.front().loss - 0.5);
  ASSERT_EQ(result.recorder.evaluations.size(), 2U);  // after step 4 and at the end
  EXPECT_EQ(result.recorder.evaluations[0].step, 4);
  EXPECT_EQ(result.recorder.evaluations[0].tokens,
            static_cast<std::int64_t>(fs::file_size(folder_ / "valid.txt")));  // and the end of the document, less the first token
  EXPECT_DOUBLE_EQ(result.recorder.evaluations[1].perplexity, std::exp(result.recorder.evaluations[1].loss));
  ASSERT_EQ(result.recorder.commits.size(), 3U);  // steps 3, 6 and 8
  EXPECT_EQ(result.recorder.commits[2].step, 8);
  EXPECT_EQ(result.outcome.progress.samples, 8 * 12);
  EXPECT_EQ(result.outcome.progress.adam_count, 8);
}

TEST_F(LoopTest, ResumesToTheSameBitsAcrossAnEpochBorder) {
  for (const spec::UpdateMode mode : {spec::UpdateMode::kAtEnd, spec::UpdateMode::kNextForward}) {
    Job job;
    job.mode = mode;
    job.steps = 20;  // 240 samples; an epoch has fewer than 160
    job.evaluate_interval = 5;
    job.run = "whole" + std::to_string(static_cast<int>(mode));
    Result whole;
    run(job, whole);
    ASSERT_GT(whole.outcome.progress.epoch, 0);
    Job part = job;
    part.run = "parts" + std::to_string(static_cast<int>(mode));
    Result first, second;
    part.steps = 7;
    run(part, first);
    part.steps = 20;
    run(part, second);
    ASSERT_EQ(second.recorder.steps.front().step, 8);
    std::vector<double> joined = losses(first);
    for (const double loss : losses(second)) joined.push_back(loss);
    EXPECT_EQ(joined, losses(whole));
    EXPECT_TRUE(second.state == whole.state) << "the final parameters or moments differ in bits";
  }
}

TEST_F(LoopTest, ResumesToTheSameBitsIn16Bits) {
  for (const spec::Precision precision : {spec::Precision::kBf16, spec::Precision::kFp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", zero_stage " + std::to_string(stage));
      Job job;
      job.precision = precision;
      job.loss_scale = {.initial_power = 26, .window = 3, .hysteresis = 2};  // which falls at first, and then doubles now and then
      job.zero_stage = stage;
      job.mode = stage % 2 == 0 ? spec::UpdateMode::kNextForward : spec::UpdateMode::kAtEnd;
      job.steps = 12;
      job.run = std::string("whole") + std::string(name_of(precision)) + std::to_string(stage);
      Result whole;
      run(job, whole);
      std::int64_t skipped = 0;
      for (const train::StepMetrics& step : whole.recorder.steps) skipped += step.skipped ? 1 : 0;
      EXPECT_EQ(skipped > 0, precision == spec::Precision::kFp16);
      EXPECT_EQ(whole.outcome.progress.adam_count, 12 - skipped);
      EXPECT_EQ(whole.outcome.progress.loss_scale.has_value(), precision == spec::Precision::kFp16);
      Job part = job;
      part.run = "parts" + job.run;
      std::vector<double> joined;
      std::optional<Result> last;
      for (const std::int64_t steps : {2, 5, 12}) {  // in the middle of the scale's fall, and of a window
        part.steps = steps;
        run(part, last.emplace());
        for (const double loss : losses(*last)) joined.push_back(loss);
      }
      EXPECT_EQ(joined, losses(whole));
      EXPECT_TRUE(last->state == whole.state) << "the final parameters or moments differ in bits";
      EXPECT_EQ(last->outcome.progress, whole.outcome.progress);
    }
  }
}

TEST_F(LoopTest, EveryOptimizerResumesToTheSameBits) {
  struct Kind {
    spec::OptimizerKind kind;
    double momentum, dampening;
    std::array<bool, 3> planes;  // working, exp_avg, exp_avg_sq
  };
  for (const Kind& each : {Kind{spec::OptimizerKind::kAdam, 0, 0, {true, true, true}},
                           {spec::OptimizerKind::kSgd, 0, 0, {true, false, false}},
                           {spec::OptimizerKind::kSgd, 0.9, 0.25, {true, true, false}},
                           {spec::OptimizerKind::kLion, 0, 0, {true, true, false}}}) {
    SCOPED_TRACE("kind " + std::to_string(static_cast<int>(each.kind)) + ", momentum " + std::to_string(each.momentum));
    Job job;
    job.optimizer.kind = each.kind;
    job.optimizer.momentum = each.momentum;
    job.optimizer.dampening = each.dampening;
    job.peak = each.kind == spec::OptimizerKind::kSgd ? 0.3 : 1e-3;
    job.precision = each.momentum > 0 ? spec::Precision::kBf16 : spec::Precision::kFp32;
    job.run = "whole" + std::to_string(static_cast<int>(each.kind)) + (each.momentum > 0 ? "m" : "");
    Result whole;
    run(job, whole);
    Job part = job;
    part.run = "parts" + job.run;
    std::vector<double> joined;
    std::optional<Result> last;
    for (const std::int64_t steps : {0, 1, 4, 8}) {  // before and just after the first update, which is SGD's special one
      part.steps = steps;
      if (steps > 0) part.zero_stage = 3 - part.zero_stage % 2;  // 2 and 3 have one signature
      run(part, last.emplace());
      for (const double loss : losses(*last)) joined.push_back(loss);
    }
    EXPECT_EQ(joined, losses(whole));
    EXPECT_TRUE(last->state == whole.state) << "the final parameters or moments differ in bits";
    const checkpoint::Manifest manifest = checkpoint::read_manifest((folder_ / part.run / "checkpoints" / "step-00000008").string());
    std::array<std::int64_t, 3> held{};
    for (const checkpoint::ShardInfo& shard : manifest.shards) {
      for (const checkpoint::StoredPlane& plane : shard.planes) held[static_cast<std::size_t>(plane.plane)] += plane.elements;
    }
    for (std::size_t plane = 0; plane < 3; ++plane) EXPECT_EQ(held[plane], each.planes[plane] ? held[0] : 0) << plane;
    EXPECT_TRUE(checkpoint::verify_checkpoint((folder_ / part.run / "checkpoints" / "step-00000008").string(), true).whole());
  }
}

TEST_F(LoopTest, FrozenParametersAreSavedOnceAndResumeToTheSameBits) {
  for (const spec::Precision precision : {spec::Precision::kFp32, spec::Precision::kBf16}) {
    for (const int stage : {1, 3}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", zero_stage " + std::to_string(stage));
      Job job;
      job.precision = precision;
      job.zero_stage = stage;
      job.trainable = {"h\\.1\\.", "ln_f"};
      job.steps = 6;
      job.checkpoint_interval = 2;
      job.run = std::string("whole") + std::string(name_of(precision)) + std::to_string(stage);
      Result whole;
      run(job, whole);
      Job part = job;
      part.run = "parts" + job.run;
      Result first, second;
      part.steps = 3;
      run(part, first);
      part.steps = 6;
      part.ranks = 2;
      run(part, second);
      std::vector<double> joined = losses(first);
      for (const double loss : losses(second)) joined.push_back(loss);
      EXPECT_EQ(joined, losses(whole));
      EXPECT_TRUE(second.state == whole.state);
      // Each parameter whole, moments of the trained ones alone.
      const checkpoint::Manifest manifest = checkpoint::read_manifest((folder_ / part.run / "checkpoints" / "step-00000006").string());
      std::map<std::pair<int, int>, std::int64_t> held;  // (plane, parameter) -> elements
      for (const checkpoint::ShardInfo& shard : manifest.shards) {
        for (const checkpoint::StoredPlane& plane : shard.planes) {
          for (const checkpoint::Region& region : plane.pieces) held[{plane.plane, region.param}] += region.elements;
        }
      }
      for (int p = 0; p < static_cast<int>(manifest.params.size()); ++p) {
        const checkpoint::ParamInfo& param = manifest.params[static_cast<std::size_t>(p)];
        const bool trains = param.name.rfind("h.1.", 0) == 0 || param.name.rfind("ln_f", 0) == 0;
        for (int plane = 0; plane < 3; ++plane)
          EXPECT_EQ(held[std::pair(plane, p)], plane == 0 || trains ? param.elements() : 0) << param.name;
      }
    }
  }
}

TEST_F(LoopTest, MomentsOfWhatWasFrozenAreNotInvented) {
  Job job;
  job.trainable = {"h\\.1\\."};
  job.steps = 2;
  Result first, second;
  run(job, first);
  job.trainable = {"h\\.[01]\\."};
  job.steps = 4;
  try {
    run(job, second);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRequest);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the run that saved it did not train this parameter"));
  }
}

TEST_F(LoopTest, ACheckpointGoesOnInAnotherPrecision) {
  Job job;
  job.run = "narrow";
  job.precision = spec::Precision::kBf16;
  job.steps = 4;
  Result narrow;
  run(job, narrow);
  job.run = "wide";
  job.precision = spec::Precision::kFp32;
  job.steps = 8;
  Result wide;
  run(job, wide);
  // A bf16 checkpoint holds fp32 masters, so an fp32 run takes it up, and the other way round.
  for (const auto& [from, precision] : {std::pair{"narrow", spec::Precision::kFp32}, {"narrow", spec::Precision::kFp16}}) {
    SCOPED_TRACE(std::string(from) + " in " + std::string(name_of(precision)));
    Job on = job;
    on.run = std::string("on-") + std::string(name_of(precision));
    fs::copy(folder_ / from, folder_ / on.run, fs::copy_options::recursive);
    on.precision = precision;
    Result result;
    run(on, result);
    ASSERT_EQ(result.recorder.steps.front().step, 5);
    for (const train::StepMetrics& step : result.recorder.steps) {
      const double expected = wide.recorder.steps[static_cast<std::size_t>(step.step - 1)].loss;
      EXPECT_NEAR(step.loss, expected, 1e-2 * expected) << "step " << step.step;
    }
  }
}

TEST_F(LoopTest, ASkippedStepMovesNoSchedule) {
  Job job;
  job.precision = spec::Precision::kFp16;
  job.loss_scale = {.initial_power = 30, .hysteresis = 1};
  job.warms_up = true;
  job.steps = 14;
  Result result;
  run(job, result);
  ASSERT_EQ(result.recorder.steps.size(), 14U);
  std::int64_t skipped = 0, applied = 0;
  for (const train::StepMetrics& step : result.recorder.steps) {
    EXPECT_EQ(step.learning_rate, optim::learning_rate(tiny_schedule(job.peak), applied)) << "step " << step.step;
    EXPECT_EQ(step.tokens, step.step * 12 * 16) << "the samples of a skipped step are spent";
    if (step.skipped) {
      EXPECT_THAT(step.why_skipped, ::testing::HasSubstr("overflow in fp16; loss scale"));
      EXPECT_EQ(applied, 0) << "the scale only falls at first";
      ++skipped;
    } else {
      EXPECT_EQ(step.why_skipped, "");
      ++applied;
    }
  }
  EXPECT_GT(skipped, 2);
  EXPECT_GT(applied, 2);
  EXPECT_EQ(result.outcome.progress.adam_count, applied);
  EXPECT_EQ(result.outcome.progress.step, 14);
}

TEST_F(LoopTest, AnOverflowAtTheSmallestScaleIsNamed) {
  Job job;
  job.precision = spec::Precision::kFp16;
  job.loss_scale = {.initial_power = 31, .hysteresis = 1, .min_scale = 0x1p30};
  Result result;
  try {
    run(job, result);
    FAIL() << "nothing was thrown";
  } catch (const DivergedError& error) {
    EXPECT_EQ(error.code(), ExitCode::kDiverged);
    EXPECT_TRUE(error.is_agreed());
    EXPECT_THAT(error.what(), ::testing::HasSubstr("step 2: gradients overflow in fp16 at the smallest loss scale"));
  }
  EXPECT_EQ(result.recorder.steps.size(), 1U);
}

TEST_F(LoopTest, ResumesOnAnotherNumberOfRanksAndStage) {
  Job job;
  job.steps = 8;
  job.run = "two";
  Result two;
  run(job, two);
  Job part = job;
  part.run = "changing";
  part.steps = 3;
  part.ranks = 3;
  part.zero_stage = 1;
  Result first, second;
  run(part, first);
  part.steps = 8;
  part.ranks = 4;
  part.zero_stage = 2;
  part.mode = spec::UpdateMode::kAtEnd;
  run(part, second);
  std::vector<double> joined = losses(first);
  for (const double loss : losses(second)) joined.push_back(loss);
  const std::vector<double> expected = losses(two);
  ASSERT_EQ(joined.size(), expected.size());
  for (std::size_t i = 0; i < joined.size(); ++i) EXPECT_NEAR(joined[i], expected[i], 1e-5 * expected[i]) << "step " << i + 1;
}

TEST_F(LoopTest, StopsOnASignalSavesAndGoesOnAsIfNothingHappened) {
  Job job;
  job.run = "whole";
  job.checkpoint_interval = 0;
  Result whole;
  run(job, whole);
  Job stopping = job;
  stopping.run = "stopped";
  stopping.listen = true;
  stopping.after_step = [](std::int64_t step) {
    if (step == 4) ::kill(::getpid(), SIGUSR1);
  };
  Result first, second;
  run(stopping, first);
  EXPECT_FALSE(first.outcome.finished);
  EXPECT_TRUE(first.outcome.saved);
  EXPECT_EQ(first.recorder.stopped_at, first.outcome.progress.step);
  EXPECT_GE(first.outcome.progress.step, 4);
  EXPECT_LE(first.outcome.progress.step, 5);
  stopping.after_step = nullptr;
  run(stopping, second);
  std::vector<double> joined = losses(first);
  for (const double loss : losses(second)) joined.push_back(loss);
  EXPECT_EQ(joined, losses(whole));
  EXPECT_TRUE(second.state == whole.state);
}

// After step 4 of 8 and after the last one: asked to stop, a run drops the evaluation, and its next attempt makes up for it.
TEST_F(LoopTest, AStopInAnEvaluationLeavesItToTheNextAttempt) {
  using Evaluations = std::vector<std::pair<std::int64_t, double>>;
  const auto evaluations_of = [](const Result& result) {
    Evaluations list;
    for (const train::EvaluationMetrics& each : result.recorder.evaluations) list.emplace_back(each.step, each.loss);
    return list;
  };
  for (const bool keep_best : {false, true}) {
    Job job;
    job.evaluate_interval = 4;
    job.keep_best = keep_best;
    job.run = cat("whole-", keep_best);
    Result whole;
    run(job, whole);
    for (const std::int64_t last : {4, 8}) {
      SCOPED_TRACE(cat("stop after step ", last, keep_best ? ", the best is kept" : ""));
      Job stopping = job;
      stopping.run = cat("stopped-", keep_best, last);
      stopping.listen = true;
      stopping.after_step = [last](std::int64_t step) {
        if (step == last) ::kill(::getpid(), SIGUSR1);
      };
      Result first, second;
      run(stopping, first);
      EXPECT_FALSE(first.outcome.finished);
      EXPECT_TRUE(first.outcome.saved);
      EXPECT_EQ(first.recorder.stopped_at, last);
      stopping.after_step = nullptr;
      run(stopping, second);
      EXPECT_TRUE(second.outcome.finished);
      Evaluations joined = evaluations_of(first);
      for (const auto& each : evaluations_of(second)) joined.push_back(each);
      EXPECT_EQ(joined, evaluations_of(whole));
      EXPECT_TRUE(second.state == whole.state);
      const auto& best = second.outcome.progress.best;
      ASSERT_EQ(best.has_value(), keep_best);
      if (keep_best) {
        EXPECT_EQ(best->step, 8);
        EXPECT_EQ(best->loss, whole.recorder.evaluations.back().loss);
        // That it is the best so far is written into the checkpoint of the stop.
        ASSERT_FALSE(second.recorder.commits.empty());
        EXPECT_EQ(second.recorder.commits.front().step, last);
        EXPECT_EQ(second.recorder.commits.front().best_step, last);
      }
    }
  }
}

TEST_F(LoopTest, AnEvaluationOnRecordIsNotDoneAgain) {
  for (const bool keep_best : {false, true}) {
    Job job;
    job.steps = 4;
    job.evaluate_interval = 4;
    job.keep_best = keep_best;
    job.run = cat("run-", keep_best);
    Result first, second, third;
    run(job, first);
    ASSERT_EQ(first.recorder.evaluations.size(), 1U);
    job.start_loss = first.recorder.evaluations[0].loss;
    run(job, second);  // killed before it could say that it is finished
    EXPECT_TRUE(second.outcome.finished);
    EXPECT_TRUE(second.outcome.saved);
    EXPECT_TRUE(second.recorder.evaluations.empty());
    EXPECT_TRUE(second.recorder.commits.empty());
    job.steps = 8;
    run(job, third);
    ASSERT_EQ(third.recorder.evaluations.size(), 1U);
    EXPECT_EQ(third.recorder.evaluations[0].step, 8);
  }
}

TEST_F(LoopTest, AStopFileStopsAndASecondSignalSkipsTheSaving) {
  Job job;
  job.run = "file";
  job.listen = true;
  job.steps = 1'000'000;
  job.checkpoint_interval = 0;
  job.after_step = [this](std::int64_t step) {
    if (step == 2) std::ofstream(folder_ / "file" / "STOP");
  };
  fs::create_directories(folder_ / "file");
  Result result;
  run(job, result);
  EXPECT_FALSE(result.outcome.finished);
  EXPECT_TRUE(result.outcome.saved);
  ASSERT_EQ(checkpoint::list_checkpoints((folder_ / "file" / "checkpoints").string()).size(), 1U);

  job.run = "hasty";
  job.after_step = [](std::int64_t step) {
    if (step == 2) {
      ::kill(::getpid(), SIGUSR1);
      ::kill(::getpid(), SIGTERM);
    }
  };
  Result hasty;
  run(job, hasty);
  EXPECT_FALSE(hasty.outcome.finished);
  EXPECT_FALSE(hasty.outcome.saved);
  EXPECT_TRUE(checkpoint::list_checkpoints((folder_ / "hasty" / "checkpoints").string()).empty());
}

TEST_F(LoopTest, AFailingSaveWarnsAndTheRunGoesOn) {
  Job job;
  int failures = 0;
  job.hook = [&](const char* point) {
    if (std::string(point) == "before_manifest" && failures++ == 0) throw EnvironmentError("the disk is full");
  };
  Result result;
  run(job, result);
  EXPECT_TRUE(result.outcome.finished);
  ASSERT_EQ(result.recorder.commits.size(), 3U);
  EXPECT_FALSE(result.recorder.commits[0].ok);
  EXPECT_THAT(result.recorder.commits[0].reason, ::testing::HasSubstr("the disk is full"));
  EXPECT_TRUE(result.recorder.commits[1].ok);
}

TEST_F(LoopTest, SavesThatKeepFailingEndTheRunOnAllRanks) {
  Job job;
  job.checkpoint_interval = 1;
  job.hook = [](const char* point) {
    if (std::string(point) == "before_manifest") throw EnvironmentError("the disk is full");
  };
  Result result;
  try {
    run(job, result);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    EXPECT_TRUE(error.is_agreed());
    EXPECT_THAT(error.what(), ::testing::HasSubstr("3 times in a row"));
  }
  EXPECT_EQ(result.recorder.steps.size(), 3U);
}

TEST_F(LoopTest, ADamagedCheckpointIsKeptInNoWholeOnesPlaceUntilItIsWrittenAnew) {
  Job job;
  job.ranks = 1;
  job.zero_stage = 1;
  job.checkpoint_interval = 2;
  Result first;
  run(job, first);
  const auto steps_of = [this](const std::string& name) { return checkpoint::committed_steps((folder_ / name / "checkpoints").string()); };
  ASSERT_THAT(steps_of("run"), ::testing::ElementsAre(4, 6, 8));
  {
    const fs::path newest = folder_ / "run/checkpoints/step-00000008";
    const auto place = static_cast<std::streamoff>(checkpoint::read_manifest(newest.string()).shards[0].planes[0].offset + 64);
    std::fstream file(newest / "rank-00000.h5", std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(place);
    const int byte = file.get();
    file.seekp(place);
    file.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(file.flush().good());
  }
  fs::copy(folder_ / "run", folder_ / "anew", fs::copy_options::recursive);
  job.keep = 2;
  job.steps = 9;
  job.checkpoint_interval = 7;  // 7 and 9
  Result passed;
  run(job, passed);
  EXPECT_THAT(steps_of("run"), ::testing::ElementsAre(7, 8, 9));
  job.run = "anew";
  job.steps = 10;
  job.checkpoint_interval = 2;  // 8 and 10
  Result anew;
  run(job, anew);
  EXPECT_THAT(steps_of("anew"), ::testing::ElementsAre(8, 10));
}

TEST_F(LoopTest, DivergenceIsNamed) {
  Job job;
  job.peak = 1e30;
  job.steps = 50;
  Result result;
  try {
    run(job, result);
    FAIL() << "nothing was thrown";
  } catch (const DivergedError& error) {
    EXPECT_EQ(error.code(), ExitCode::kDiverged);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("learning rate"));
  }
}

}  // namespace
}  // namespace sluice::testing
