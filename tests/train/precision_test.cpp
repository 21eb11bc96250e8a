// Training with 16-bit storage: what is rounded where, what an overflow does, how near fp32 it stays.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/half.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "model/build.hpp"
#include "ops/convert.hpp"
#include "ops/fill.hpp"
#include "ops/grad_norm.hpp"
#include "parallel/unsharded.hpp"
#include "support/expect_error.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::Precision;
using spec::UpdateMode;

TinyRun run_of(Precision precision, int ranks, int stage, UpdateMode mode = UpdateMode::kAtEnd) {
  TinyRun run;
  run.ranks = ranks;
  run.training.precision = precision;
  run.plan = tiny_plan(ranks, stage, 1, mode, stage % 2 == 1, 5120);
  if (mode == UpdateMode::kInBackward) run.training.optimizer.gradient_clipping = 0;
  return run;
}

/// Runs `body` on every rank of a run.
void on_ranks(const TinyRun& run, const std::function<void(TinyRank& rank, comm::Communicator& world)>& body) {
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();
    TinyRank rank(run, world);
    body(rank, world);
  });
}

std::uint16_t rounded(float value, DType dtype) {
  return dtype == DType::kBF16 ? bf16_from_f32(value) : f16_from_f32(value);
}

TEST(Precision, WorkingParametersAreTheRoundedMaster) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(name_of(precision)) + ", zero_stage " + std::to_string(stage));
      const TinyRun run = run_of(precision, 2, stage, stage == 2 ? UpdateMode::kNextForward : UpdateMode::kAtEnd);
      const DType dtype = dtype_of(precision);
      on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
        for (int s = 0; s <= 2; ++s) {
          if (s > 0) rank.step(s);
          // Every rank gets all masters from the state (the first plane of each parameter), whole.
          const std::string state = rank.state();
          std::vector<std::size_t> begin;
          std::size_t at = 0;
          for (const model::ParamSpec& param : rank.engine().model().params) {
            begin.push_back(at);
            at += static_cast<std::size_t>(param.elements()) * sizeof(float) * 3;
          }
          ASSERT_EQ(at, state.size());
          std::int64_t working = 0;
          for (const train::HeldPiece& piece : rank.engine().held_pieces()) {
            if (piece.plane != chunks::Plane::kWorking) continue;
            ASSERT_EQ(piece.dtype, dtype);
            const auto* stored = static_cast<const std::uint16_t*>(piece.data);
            for (std::int64_t i = 0; i < piece.count; ++i) {
              float master = 0;
              std::memcpy(
                  &master,
                  state.data() + begin[static_cast<std::size_t>(piece.param)] + static_cast<std::size_t>(piece.begin + i) * sizeof(float),
                  sizeof master);
              ASSERT_EQ(stored[i], rounded(master, dtype))
                  << "rank " << world.rank() << ", step " << s << ", parameter " << piece.param << ", element " << piece.begin + i;
            }
            working += piece.count;
          }
          std::int64_t all = 0;
          for (const model::ParamSpec& param : rank.engine().model().params) all += param.elements();
          EXPECT_EQ(working == all, stage < 3) << "whole on every rank, or as a shard";
        }
      });
    }
  }
}

/// A step of the model by the book: segments on f32 numbers that are rounded wherever they are stored.
class RoundedModel {
 public:
  RoundedModel(const spec::ModelSpec& spec, DType storage)
      : storage_(storage), modules_(parallel::make_unsharded_modules()), model_(model::build_model(spec, *modules_)) {}

  const model::Model& model() const { return model_; }
  std::vector<std::vector<float>> params, grads;

  /// Loss and gradient norm of one micro-batch of `rows` rows.
  std::pair<double, double> step(const model::StepView& view, std::int64_t rows, std::int64_t sequence,
                                 const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets,
                                 const std::vector<std::int64_t>& ids, double scale) {
    const model::Shape shape{rows, sequence};
    const std::size_t last = model_.segments.size() - 1;
    const auto width = static_cast<std::size_t>(model_.activation_bytes(shape)) / sizeof(float);
    for (auto& param : params) round(param);
    std::vector<std::vector<float>> saved, x{{}};
    std::vector<std::uint8_t> written(params.size(), 0);
    std::vector<float> d(width);
    double loss = 0;
    const auto run = [&](std::size_t s, model::Phase phase, model::SegmentCall call) {
      const model::Segment& segment = *model_.segments[s];
      std::vector<const float*> p;
      std::vector<const std::uint16_t*> stored;
      std::vector<std::vector<std::uint16_t>> copies(segment.params().size());
      std::vector<float*> g;
      std::vector<std::uint8_t> accumulate;
      for (std::size_t i = 0; i < segment.params().size(); ++i) {
        const auto index = static_cast<std::size_t>(segment.params()[i]);
        const bool as_stored = segment.intake(phase, i) == model::Intake::kStored;
        copies[i].resize(params[index].size());
        ops::narrow(ops_, params[index].data(), static_cast<std::int64_t>(params[index].size()), storage_, copies[i].data());
        p.push_back(as_stored ? nullptr : params[index].data());
        stored.push_back(as_stored ? copies[i].data() : nullptr);
        g.push_back(grads[index].data());
        accumulate.push_back(written[index]);
        if (phase == model::Phase::kBackward || phase == model::Phase::kForwardBackward) written[index] = 1;
      }
      std::vector<std::byte> workspace(static_cast<std::size_t>(segment.workspace_bytes(phase, shape, 1)) + 64);
      call.ops = &ops_;
      call.storage = storage_;
      call.shape = shape;
      call.step = view;
      call.inputs = inputs.data();
      call.targets = targets.data();
      call.sample_ids = ids.data();
      call.params = p;
      call.stored_params = stored;
      call.grads = g;
      call.accumulate = accumulate;
      call.x = s > 0 ? x[s].data() : nullptr;
      std::vector<std::byte> widening(static_cast<std::size_t>(segment.widening_bytes(phase)));
      call.widening = widening.data();
      call.workspace = workspace.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 64) % 64;
      call.loss_sum = &loss;
      segment.run(phase, call);
    };
    for (std::size_t s = 0; s < last; ++s) {
      const model::Segment& segment = *model_.segments[s];
      saved.emplace_back(static_cast<std::size_t>(segment.saved_bytes(shape)) / sizeof(float));
      std::vector<float> y(width);
      model::SegmentCall call;
      call.y = y.data();
      call.saved = reinterpret_cast<std::byte*>(saved.back().data());
      run(s, model::Phase::kForward, call);
      ops::round_to(ops_, storage_, saved.back().data(),
                    (segment.saved_bytes(shape) - segment.saved_exact_bytes(shape)) / static_cast<std::int64_t>(sizeof(float)));
      round(y);
      x.push_back(y);
    }
    model::SegmentCall head;
    head.d = d.data();
    run(last, model::Phase::kForwardBackward, head);
    round(d);
    for (std::size_t s = last; s-- > 0;) {
      model::SegmentCall call;
      call.d = d.data();
      call.saved = reinterpret_cast<std::byte*>(saved[s].data());
      run(s, model::Phase::kBackward, call);
      round(d);
    }
    ops::NormAccumulator norm;
    for (const auto& grad : grads) ops::add_squared_norm(ops_, grad.data(), static_cast<std::int64_t>(grad.size()), norm);
    return {loss, std::sqrt(norm.value()) / scale};
  }

 private:
  void round(std::vector<float>& values) { ops::round_to(ops_, storage_, values.data(), static_cast<std::int64_t>(values.size())); }

  DType storage_;
  std::unique_ptr<model::ModuleFactory> modules_;
  model::Model model_;
  ops::Context ops_ = ops::make_cpu_context(1);
};

TEST(Precision, AStepIsTheModelRoundedWhereItIsStored) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(std::string(name_of(precision)) + (recompute ? ", recompute" : ", keep"));
      TinyRun run = run_of(precision, 1, 0);
      run.training.loss_scale.fixed = 256;
      run.plan.activations.assign(run.plan.activations.size(), recompute ? spec::Activation::kRecompute : spec::Activation::kKeep);
      const std::int64_t rows = run.plan.micro_batch, sequence = run.training.batch.sequence_length;
      RoundedModel reference(run.model, dtype_of(precision));
      schedule::RunResult result;
      std::vector<std::int32_t> inputs, targets;
      std::vector<std::int64_t> ids;
      std::int64_t valid = 0;
      on_ranks(run, [&](TinyRank& rank, comm::Communicator&) {
        reference.params.resize(reference.model().params.size());
        reference.grads.resize(reference.params.size());
        for (const train::HeldPiece& piece : rank.engine().held_pieces()) {
          if (piece.plane != chunks::Plane::kMaster) continue;
          auto& param = reference.params[static_cast<std::size_t>(piece.param)];
          param.resize(static_cast<std::size_t>(reference.model().params[static_cast<std::size_t>(piece.param)].elements()));
          std::copy(piece.f32(), piece.f32() + piece.count, param.begin() + piece.begin);
          reference.grads[static_cast<std::size_t>(piece.param)].resize(param.size());
        }
        train::StepRequest request;
        request.step = 1;
        request.learning_rate = 1e-3;
        request.load = [&](int, const schedule::TokenRows& out) {
          for (std::int64_t i = 0; i < rows * sequence; ++i) {
            out.inputs[i] = static_cast<std::int32_t>(i * 7919 % run.model.vocab);
            out.targets[i] = i % 5 == 0 ? -1 : static_cast<std::int32_t>((i * 104729 + 3) % run.model.vocab);
            valid += i % 5 == 0 ? 0 : 1;
          }
          for (std::int64_t r = 0; r < rows; ++r) out.sample_ids[r] = 1000 + r;
          inputs.assign(out.inputs, out.inputs + rows * sequence);
          targets.assign(out.targets, out.targets + rows * sequence);
          ids.assign(out.sample_ids, out.sample_ids + rows);
          return valid;
        };
        result = rank.engine().step(request);
      });
      const double scale = precision == Precision::kFp16 ? 256 : 1;
      const model::StepView view{
          .seed = run.training.seed, .step = 1, .loss_scale = static_cast<float>(scale / static_cast<double>(valid))};
      const auto [loss, norm] = reference.step(view, rows, sequence, inputs, targets, ids, scale);
      EXPECT_EQ(result.report.loss, loss / static_cast<double>(valid));
      EXPECT_EQ(result.report.grad_norm, norm);
      EXPECT_GT(norm, 0);
    }
  }
}

/// The head widens its table in panels where that is stored in 16 bits; it must be the same products.
TEST(Precision, TheHeadTakesItsTableAsStored) {
  spec::ModelSpec spec = tiny_model();
  spec.vocab = 9001;  // two panels of 5440 rows
  const auto modules = parallel::make_unsharded_modules();
  const model::Model model = model::build_model(spec, *modules);
  const model::Segment& head = *model.segments.back();
  const ops::Context ctx = ops::make_cpu_context(1);
  const model::Shape shape{2, 9};
  const std::int64_t tokens = 18, width = tokens * spec.hidden;
  std::vector<float> x(static_cast<std::size_t>(width));
  ops::fill_normal(ctx, x.data(), width, 1.0F, {1, 2}, 0);
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < tokens; ++i) targets.push_back(static_cast<std::int32_t>(i * 1237 % spec.vocab));
  for (const DType storage : {DType::kBF16, DType::kF16}) {
    std::vector<std::vector<float>> params;
    std::vector<std::vector<std::uint16_t>> copies;
    for (const int index : head.params()) {
      const std::int64_t elements = model.params[static_cast<std::size_t>(index)].elements();
      params.emplace_back(static_cast<std::size_t>(elements));
      copies.emplace_back(params.back().size());
      ops::fill_normal(ctx, params.back().data(), elements, 0.5F, {3, static_cast<std::uint32_t>(index)}, 0);
      ops::narrow(ctx, params.back().data(), elements, storage, copies.back().data());
      ops::round_to(ctx, storage, params.back().data(), elements);
    }
    struct Outcome {
      double loss = 0;
      std::vector<float> d, logits;
      std::vector<std::vector<float>> grads;
    };
    const auto run = [&](DType as) {
      Outcome out;
      std::vector<const float*> p;
      std::vector<const std::uint16_t*> stored;
      std::vector<float*> g;
      for (std::size_t i = 0; i < params.size(); ++i) {
        const bool is_stored = as != DType::kF32 && head.intake(model::Phase::kForwardBackward, i) == model::Intake::kStored;
        p.push_back(is_stored ? nullptr : params[i].data());
        stored.push_back(is_stored ? copies[i].data() : nullptr);
        out.grads.emplace_back(params[i].size());
      }
      for (auto& grad : out.grads) g.push_back(grad.data());
      const std::vector<std::uint8_t> accumulate(params.size(), 0);
      out.d.resize(x.size());
      out.logits.resize(static_cast<std::size_t>(2 * spec.vocab));
      for (const model::Phase phase : {model::Phase::kForwardBackward, model::Phase::kLogits}) {
        std::vector<double> workspace(static_cast<std::size_t>(head.workspace_bytes(phase, shape, 1)) / sizeof(double) + 1);
        std::vector<double> widening(static_cast<std::size_t>(head.widening_bytes(phase)) / sizeof(double) + 1);
        model::SegmentCall call;
        call.ops = &ctx;
        call.storage = as;
        call.shape = shape;
        call.step.loss_scale = 0.25F;
        call.targets = targets.data();
        call.params = p;
        call.stored_params = stored;
        call.grads = g;
        call.accumulate = accumulate;
        call.x = x.data();
        call.d = out.d.data();
        call.workspace = reinterpret_cast<std::byte*>(workspace.data());
        call.widening = reinterpret_cast<std::byte*>(widening.data());
        call.loss_sum = &out.loss;
        call.logits = out.logits.data();
        call.position = 4;
        head.run(phase, call);
      }
      return out;
    };
    const Outcome expected = run(DType::kF32), found = run(storage);
    EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
    const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
      double error = 0, size = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        size += std::pow(static_cast<double>(b[i]), 2);
      }
      return std::sqrt(error) <= 1e-6 * std::sqrt(size) && size > 0;
    };
    EXPECT_TRUE(near(found.d, expected.d));
    EXPECT_TRUE(near(found.logits, expected.logits));
    for (std::size_t i = 0; i < found.grads.size(); ++i) EXPECT_TRUE(near(found.grads[i], expected.grads[i])) << i;
  }
}

TEST(Precision, LossesStayNearThoseOfFp32) {
  TinyRun run = run_of(Precision::kFp32, 1, 0);
  run.steps = 20;
  const TinyResult expected = run_tiny(run);
  ASSERT_LT(expected.losses.back(), expected.losses.front() - 0.3);
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(name_of(precision));
    run.training.precision = precision;
    const TinyResult result = run_tiny(run);
    // bf16 keeps 8 bits of a number, fp16 11.
    const double tolerance = precision == Precision::kBf16 ? 1e-2 : 2e-3;
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], expected.losses[i], tolerance * expected.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(result.grad_norms[i], expected.grad_norms[i], 10 * tolerance * expected.grad_norms[i]) << "step " << i + 1;
    }
    EXPECT_NE(result.losses, expected.losses);
    EXPECT_NEAR(result.evaluation, expected.evaluation, tolerance * expected.evaluation);
  }
}

TEST(Precision, AFixedLossScaleOfAnyPowerOfTwoGivesTheSameStep) {
  // As long as nothing overflows or falls below fp16's smallest number, a power of two moves exponents alone.
  TinyRun run = run_of(Precision::kFp16, 2, 1);
  run.training.loss_scale.fixed = 1024;
  const TinyResult expected = run_tiny(run);
  run.training.loss_scale.fixed = 8192;
  const TinyResult result = run_tiny(run);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(result.losses[i], expected.losses[i], 1e-3 * expected.losses[i]);
    EXPECT_NEAR(result.grad_norms[i], expected.grad_norms[i], 1e-2 * expected.grad_norms[i]);
  }
}

/// What one rank has in its working copy of parameter `param` is made infinite.
std::uint16_t spoil(train::Engine& engine, int param, std::uint16_t bits) {
  for (const train::HeldPiece& piece : engine.held_pieces()) {
    if (piece.plane == chunks::Plane::kWorking && piece.param == param)
      return std::exchange(*static_cast<std::uint16_t*>(piece.data), bits);
  }
  ADD_FAILURE() << "no working copy of parameter " << param;
  return 0;
}

TEST(Precision, AnOverflowOnOneRankSkipsTheStepOnAll) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
    for (const int stage : {0, 1, 2}) {
      // With next_forward and sharded updates a step begins with a gather from the owners, which mends what is spoilt below.
      if (mode == UpdateMode::kNextForward && stage > 0) continue;
      SCOPED_TRACE(std::string(name_of(mode)) + ", zero_stage " + std::to_string(stage));
      TinyRun run = run_of(Precision::kFp16, 3, stage, mode);
      run.training.loss_scale.fixed = 512;  // the same steps before and after
      std::vector<double> losses;
      std::string last;
      on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
        for (int s = 1; s <= 3; ++s) {
          const schedule::RunResult result = rank.step(s);
          if (world.rank() == 0) losses.push_back(result.report.loss);
        }
        const std::string state = rank.state();
        if (world.rank() == 0) last = state;
      });
      on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
        const int gain = 2;  // of the first attention's norm: every token meets it
        rank.step(1);
        const std::string before = rank.state();  // flushes
        const std::int64_t count = rank.engine().adam_count();
        const std::uint16_t was = world.rank() == 1 ? spoil(rank.engine(), gain, 0x7C00) : std::uint16_t{0};
        const schedule::RunResult skipped = rank.step(2);
        if (world.rank() == 1) spoil(rank.engine(), gain, was);
        EXPECT_TRUE(skipped.report.overflow);
        EXPECT_TRUE(skipped.report.skipped);
        EXPECT_FALSE(skipped.cancelled);
        EXPECT_EQ(rank.engine().adam_count(), count);
        EXPECT_TRUE(rank.state() == before) << "a skipped step changes nothing";
        EXPECT_EQ(rank.step(2).report.loss, losses[1]) << "the step as it is without the overflow";
        EXPECT_EQ(rank.step(3).report.loss, losses[2]);
        EXPECT_TRUE(rank.state() == last);
      });
      if (HasFailure()) return;
    }
  }
}

TEST(Precision, Bf16SkipsWhatIsNotFiniteButNotForEver) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
    TinyRun run = run_of(Precision::kBf16, 2, 0, mode);
    run.training.skips_overflow = true;
    run.training.optimizer.gradient_clipping = 0;  // the norm is wanted all the same
    on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
      rank.step(1);
      const std::string before = rank.state();
      const std::int64_t count = rank.engine().adam_count();
      const std::uint16_t was = world.rank() == 1 ? spoil(rank.engine(), 2, 0x7FC0) : std::uint16_t{0};
      for (int s = 2; s < 2 + train::kMostOverflows - 1; ++s) {
        const schedule::RunResult skipped = rank.step(s);
        EXPECT_TRUE(skipped.report.overflow);
        EXPECT_TRUE(skipped.report.skipped);
      }
      EXPECT_EQ(rank.engine().adam_count(), count);
      if (world.rank() == 1) spoil(rank.engine(), 2, was);
      EXPECT_TRUE(rank.state() == before) << "skipped steps change nothing";
      EXPECT_FALSE(rank.step(30).report.skipped);
      rank.engine().flush();  // a pending update would mend it
      if (world.rank() == 1) spoil(rank.engine(), 2, 0x7FC0);
      for (int s = 0; s < train::kMostOverflows - 1; ++s) rank.step(31 + s);
      expect_error<DivergedError>([&] { rank.step(60); }, {"step 60", "isn't finite", "19 steps before"});
    });
  }
}

TEST(Precision, Bf16ThatDoesNotSkipReportsWhatItFinds) {
  TinyRun run = run_of(Precision::kBf16, 1, 0);
  on_ranks(run, [&](TinyRank& rank, comm::Communicator&) {
    spoil(rank.engine(), 2, 0x7FC0);
    const schedule::RunResult result = rank.step(1);
    EXPECT_FALSE(result.report.skipped);
    EXPECT_FALSE(std::isfinite(result.report.loss));
  });
}

TEST(Precision, TheLossScaleFallsUntilGradientsFit) {
  TinyRun run = run_of(Precision::kFp16, 2, 2);
  run.training.loss_scale = {.initial_power = 30, .window = 2, .hysteresis = 1};
  on_ranks(run, [&](TinyRank& rank, comm::Communicator&) {
    double scale = 0x1p30;
    int applied = 0, skipped = 0;
    for (int s = 1; applied < 4; ++s) {
      ASSERT_LT(s, 60);
      const schedule::RunResult result = rank.step(s);
      ASSERT_TRUE(std::isfinite(result.report.loss));
      const double now = rank.engine().loss_scale()->scale;
      if (result.report.skipped) {
        EXPECT_EQ(now, scale / 2);
        ++skipped;
      } else {
        EXPECT_TRUE(now == scale || now == 2 * scale);
        EXPECT_TRUE(std::isfinite(result.report.grad_norm));
        EXPECT_LT(result.report.grad_norm, 100);
        ++applied;
      }
      EXPECT_EQ(rank.engine().adam_count(), applied);
      scale = now;
    }
    EXPECT_GT(skipped, 3);
  });
}

TEST(Precision, AnOverflowAtTheSmallestScaleEndsTheRun) {
  TinyRun run = run_of(Precision::kFp16, 2, 0);
  run.training.loss_scale = {.initial_power = 40, .hysteresis = 1, .min_scale = 0x1p39};
  on_ranks(run, [&](TinyRank& rank, comm::Communicator&) {
    const std::string before = rank.state();
    EXPECT_TRUE(rank.step(1).report.skipped);
    expect_error<DivergedError>([&] { rank.step(2); }, {"step 2", "overflow in fp16", "smallest loss scale"});
    EXPECT_TRUE(rank.state() == before);
  });
}

TEST(Precision, AStepWithoutATokenThatCountsChangesNothing) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
      if (precision == Precision::kFp16 && mode == UpdateMode::kInBackward) continue;
      SCOPED_TRACE(std::string(name_of(precision)) + ", " + std::string(name_of(mode)));
      on_ranks(run_of(precision, 2, 1, mode), [&](TinyRank& rank, comm::Communicator&) {
        rank.step(1);
        const std::string before = rank.state();
        train::StepRequest request;
        request.step = 2;
        request.learning_rate = 1e-2;
        request.load = [](int, const schedule::TokenRows& out) {
          std::fill(out.inputs, out.inputs + 6 * 16, 1);
          std::fill(out.targets, out.targets + 6 * 16, -1);
          std::fill(out.sample_ids, out.sample_ids + 6, 5);
          return std::int64_t{0};
        };
        const schedule::RunResult result = rank.engine().step(request);
        EXPECT_TRUE(result.report.skipped);
        EXPECT_FALSE(result.report.overflow);
        EXPECT_EQ(rank.engine().adam_count(), 1);
        EXPECT_TRUE(rank.state() == before);
      });
      if (HasFailure()) return;
    }
  }
}

TEST(Precision, Fp16CannotUpdateInBackward) {
  TinyRun run = run_of(Precision::kFp16, 1, 0, UpdateMode::kInBackward);
  expect_error<LogicError>([&] { run_tiny(run); }, {"in_backward", "overflows"});
}

}  // namespace
}  // namespace sluice::testing
