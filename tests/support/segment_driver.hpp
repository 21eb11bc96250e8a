#pragma once
// Runs a model's segments one after another, with nothing planned: the plainest trainer there is, for tests.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "model/build.hpp"
#include "model/model.hpp"
#include "parallel/unsharded.hpp"
#include "support/guarded_buffer.hpp"

namespace sluice::test {

/// A micro-batch.
struct Batch {
  model::Shape shape;
  std::vector<std::int32_t> inputs, targets;
  std::vector<std::int64_t> sample_ids;
  std::vector<std::int32_t> document_starts;  // as the targets; empty: every row is one document

  /// Rows [first, first + rows).
  Batch slice(std::int64_t first, std::int64_t rows) const {
    const auto part = [&](const auto& v, std::int64_t width) {
      return std::decay_t<decltype(v)>(v.begin() + first * width, v.begin() + (first + rows) * width);
    };
    return {{rows, shape.sequence},
            part(inputs, shape.sequence),
            part(targets, shape.sequence),
            part(sample_ids, 1),
            document_starts.empty() ? document_starts : part(document_starts, shape.sequence)};
  }
};

class SegmentDriver {
 public:
  SegmentDriver(const spec::ModelSpec& spec, const ops::Context& context)
      : factory_(parallel::make_unsharded_modules()), model_(model::build_model(spec, *factory_)), context_(context) {
    for (const model::ParamSpec& param : model_.params) {
      params.push_back(GuardedBuffer::floats(param.elements()));
      grads.push_back(GuardedBuffer::floats(param.elements()));
    }
    begin_step();
  }

  const model::Model& model() const { return model_; }
  const ops::Context& context() const { return context_; }

  std::vector<GuardedBuffer> params, grads;
  std::vector<GuardedBuffer> boundaries;      // of the last micro-batch: output of every segment but the head
  std::vector<GuardedBuffer> boundary_grads;  // of the last train(): d loss / d boundaries[i]

  /// Forgets the gradients: the next use of each overwrites it (and finds NaN if it reads).
  void begin_step() {
    written_.assign(grads.size(), 0);
    for (GuardedBuffer& grad : grads) grad.poison();
  }

  /// Forward and backward; gradients are added to those since begin_step(). With `recompute` nothing is kept between segments
  /// but their inputs. Returns the summed loss.
  double train(const Batch& batch, const model::StepView& step, bool recompute = false) {
    std::vector<GuardedBuffer> saved = forward(batch, step);
    const std::size_t last = model_.segments.size() - 1;
    GuardedBuffer d = GuardedBuffer::floats(batch.shape.tokens() * model_.spec.hidden);
    double loss = std::nan("");
    {
      model::SegmentCall call = start(last, batch, step);
      call.targets = batch.targets.data();
      call.x = boundaries.back().f32();
      call.d = d.f32();
      call.loss_sum = &loss;
      run(last, model::Phase::kForwardBackward, call, true);
    }
    boundary_grads.clear();
    for (std::size_t s = last; s-- > 0;) {
      boundary_grads.insert(boundary_grads.begin(), GuardedBuffer(static_cast<std::int64_t>(d.size())));
      std::memcpy(boundary_grads.front().data(), d.data(), d.size());
      const model::Segment& segment = *model_.segments[s];
      model::SegmentCall call = start(s, batch, step);
      call.x = s > 0 ? boundaries[s - 1].f32() : nullptr;
      call.saved = saved[s].data();
      if (recompute && segment.has_phase(model::Phase::kRecompute)) {
        saved[s].poison();
        run(s, model::Phase::kRecompute, call, false);
        EXPECT_TRUE(saved[s].guard_intact()) << segment.name();
      }
      call.d = d.f32();
      run(s, model::Phase::kBackward, call, true);
      EXPECT_TRUE(d.guard_intact()) << segment.name();
    }
    return loss;
  }

  /// Forward alone. Returns what the segments saved.
  std::vector<GuardedBuffer> forward(const Batch& batch, const model::StepView& step) {
    boundaries.clear();
    std::vector<GuardedBuffer> saved;
    for (std::size_t s = 0; s + 1 < model_.segments.size(); ++s) {
      const model::Segment& segment = *model_.segments[s];
      saved.emplace_back(segment.saved_bytes(batch.shape));
      GuardedBuffer y(model_.activation_bytes(batch.shape));
      model::SegmentCall call = start(s, batch, step);
      call.x = s > 0 ? boundaries.back().f32() : nullptr;
      call.y = y.f32();
      call.saved = saved.back().data();
      run(s, model::Phase::kForward, call, false);
      EXPECT_TRUE(saved.back().guard_intact() && y.guard_intact()) << segment.name();
      boundaries.push_back(std::move(y));
    }
    return saved;
  }

  /// The summed loss by the head's forward.
  double evaluate(const Batch& batch, const model::StepView& step) {
    forward(batch, step);
    double loss = std::nan("");
    model::SegmentCall call = start(model_.segments.size() - 1, batch, step);
    call.targets = batch.targets.data();
    call.x = boundaries.back().f32();
    call.loss_sum = &loss;
    run(model_.segments.size() - 1, model::Phase::kForward, call, false);
    return loss;
  }

  /// [rows, vocab] of the tokens at `position`, after forward().
  std::vector<float> logits(const Batch& batch, std::int64_t position) {
    GuardedBuffer out = GuardedBuffer::floats(batch.shape.rows * model_.spec.vocab);
    model::SegmentCall call = start(model_.segments.size() - 1, batch, {.training = false});
    call.x = boundaries.back().f32();
    call.logits = out.f32();
    call.position = position;
    run(model_.segments.size() - 1, model::Phase::kLogits, call, false);
    EXPECT_TRUE(out.guard_intact());
    return {out.f32(), out.f32() + out.float_count()};
  }

  /// A call with all that doesn't depend on the phase.
  model::SegmentCall start(std::size_t s, const Batch& batch, const model::StepView& step) const {
    model::SegmentCall call;
    call.ops = &context_;
    call.shape = batch.shape;
    call.step = step;
    if (model_.segments[s]->kind() == model::SegmentKind::kEmbedding) call.inputs = batch.inputs.data();
    call.sample_ids = batch.sample_ids.data();
    if (!batch.document_starts.empty()) call.document_starts = batch.document_starts.data();
    return call;
  }

  /// Runs one phase on a poisoned workspace of the stated size, with parameters, gradients and their flags.
  void run(std::size_t s, model::Phase phase, model::SegmentCall& call, bool with_grads) {
    const model::Segment& segment = *model_.segments[s];
    GuardedBuffer workspace(segment.workspace_bytes(phase, call.shape, context_.threads));
    std::vector<const float*> param_pointers;
    std::vector<float*> grad_pointers;
    std::vector<std::uint8_t> flags;
    for (const int index : segment.params()) {
      param_pointers.push_back(params[static_cast<std::size_t>(index)].f32());
      grad_pointers.push_back(grads[static_cast<std::size_t>(index)].f32());
      flags.push_back(written_[static_cast<std::size_t>(index)]);
      if (with_grads) written_[static_cast<std::size_t>(index)] = 1;
    }
    call.params = param_pointers;
    if (with_grads) {
      call.grads = grad_pointers;
      call.accumulate = flags;
    }
    call.workspace = workspace.data();
    segment.run(phase, call);
    EXPECT_TRUE(workspace.guard_intact()) << segment.name() << " " << name_of(phase);
    for (const int index : segment.params()) {
      EXPECT_TRUE(params[static_cast<std::size_t>(index)].guard_intact()) << segment.name();
      EXPECT_TRUE(grads[static_cast<std::size_t>(index)].guard_intact()) << segment.name();
    }
    call.params = {};
    call.grads = {};
    call.accumulate = {};
    call.workspace = nullptr;
  }

 private:
  std::unique_ptr<model::ModuleFactory> factory_;
  model::Model model_;
  ops::Context context_;
  std::vector<std::uint8_t> written_;
};

}  // namespace sluice::test
