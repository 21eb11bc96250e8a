#include "schedule/body.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

#include "base/check.hpp"
#include "base/units.hpp"
#include "ops/adamw.hpp"
#include "ops/add.hpp"
#include "ops/convert.hpp"
#include "ops/fill.hpp"
#include "ops/lion.hpp"
#include "ops/sgd.hpp"
#include "schedule/build.hpp"
#include "schedule/staging.hpp"

namespace sluice::schedule {
namespace {

using chunks::Plane;

/// Resolves a task's declared uses to addresses, and nothing else.
class Binder {
 public:
  Binder(const StepGraph& graph, const Environment& env) : graph_(graph), env_(env) {}

  std::byte* address(const Use& use) const {
    const Buffer& buffer = graph_.buffers[use.buffer];
    const memory::Arena* arena = env_.arenas[static_cast<std::size_t>(buffer.tier)];
    SLUICE_CHECK(arena != nullptr, "no arena for ", graph_.buffer_name(use.buffer));
    return arena->at(buffer.offset, buffer.bytes);
  }
  template <typename T>
  T* pointer(const Task& task, Role role) const {
    const Use* use = graph_.use_of(task, role);
    return use == nullptr ? nullptr : reinterpret_cast<T*>(address(*use));
  }
  template <typename T>
  T* required(const Task& task, Role role) const {
    T* p = pointer<T>(task, role);
    SLUICE_CHECK(p != nullptr, name_of(task.kind), " declares no ", name_of(role));
    return p;
  }

  const chunks::Chunk& chunk(const Task& task) const { return env_.layout->chunks()[static_cast<std::size_t>(task.chunk)]; }
  int ranks() const { return env_.group->size(); }
  int rank() const { return env_.group->rank(); }

  std::int64_t shard_begin(const Task& task) const { return chunks::shard_begin(chunk(task).elements, rank(), ranks()); }
  std::int64_t shard_elements(const Task& task) const {
    return chunks::shard_begin(chunk(task).elements, rank() + 1, ranks()) - shard_begin(task);
  }
  /// What this rank updates of the task's chunk and moves between tiers, its part: with ZeRO 0 the whole of it, as every other rank does,
  /// else its shard.
  std::int64_t part_begin(const Task& task) const { return env_.plan.zero_stage == 0 ? 0 : shard_begin(task); }
  std::int64_t part_elements(const Task& task) const { return env_.plan.zero_stage == 0 ? chunk(task).elements : shard_elements(task); }
  /// Elements from the begin of a buffer to this rank's part of the task's chunk in it.
  std::int64_t part_offset(const Task& task, const Buffer& buffer, Plane plane) const {
    const bool is_region = buffer.tag == BufferTag::kGathered || buffer.tag == BufferTag::kMicroGradient;
    const bool is_plane = buffer.tier == spec::Tier::kDevice && !chunks::is_sharded(plane, env_.plan.zero_stage);
    return is_region || is_plane ? chunk(task).run_offset + part_begin(task) : 0;  // all others hold the part alone
  }
  /// This rank's part of the task's chunk, and its shard in there, in a plane of elements T.
  template <typename T>
  T* part(const Task& task, Role role, Plane plane) const {
    SLUICE_CHECK(env_.layout->element_bytes(plane) == sizeof(T), "plane ", chunks::name_of(plane), " read in ", sizeof(T), " bytes");
    T* base = required<T>(task, role);
    return base + part_offset(task, graph_.buffers[graph_.use_of(task, role)->buffer], plane);
  }
  template <typename T>
  T* shard(const Task& task, Role role, Plane plane) const {
    return part<T>(task, role, plane) + shard_begin(task) - part_begin(task);
  }

  const StepGraph& graph() const { return graph_; }
  const Environment& env() const { return env_; }

 private:
  const StepGraph& graph_;
  const Environment& env_;
};

class LoadBody final : public Body {
 public:
  LoadBody(const Binder& binder, const Task& task) {
    const Environment& env = binder.env();
    const bool one_row = binder.graph().kind == GraphKind::kGenerate;
    const std::int64_t rows = one_row ? 1 : env.plan.micro_batch;
    micros_ = binder.graph().kind == GraphKind::kStep ? static_cast<int>(env.plan.accumulation) : 1;
    auto* base = binder.required<std::byte>(task, Role::kTokens);
    for (int m = 0; m < micros_; ++m) {
      std::byte* at = base + token_bytes(rows, env.sequence_length, env.document_attention) * m;
      auto* ids = reinterpret_cast<std::int64_t*>(at);
      auto* inputs = reinterpret_cast<std::int32_t*>(ids + rows);
      const std::int64_t tokens = rows * env.sequence_length;
      views_.push_back({inputs, inputs + tokens, ids, env.document_attention ? inputs + 2 * tokens : nullptr});
    }
    counts_ = binder.required<Counts>(task, Role::kValidCount);
  }
  void run(RunState& state, device::Stream& /*stream*/) override {
    counts_->valid_tokens = 0;
    for (int m = 0; m < micros_; ++m) counts_->valid_tokens += state.inputs->load(m, views_[static_cast<std::size_t>(m)]);
  }

 private:
  int micros_ = 1;
  std::vector<TokenRows> views_;
  Counts* counts_ = nullptr;
};

/// Which parameters' gradients were written before, over the whole graph: decides overwriting or adding. Where micro-batches are reduced
/// one by one (zero_stage 2 and 3) each has gradients of its own, else all add to the same.
class GradientHistory {
 public:
  GradientHistory(std::size_t params, const spec::Plan& plan) : apart_(plan.zero_stage >= 2) {
    written_.assign(apart_ ? static_cast<std::size_t>(plan.accumulation) : 1, std::vector<bool>(params, false));
  }
  /// Whether it was written before; it is from now on.
  bool write(int param, int micro) {
    std::vector<bool>& written = written_[apart_ ? static_cast<std::size_t>(micro) : 0];
    const bool before = written[static_cast<std::size_t>(param)];
    written[static_cast<std::size_t>(param)] = true;
    return before;
  }

 private:
  bool apart_;
  std::vector<std::vector<bool>> written_;  // per micro-batch with a gradient of its own, per parameter
};

class ComputeBody final : public Body {
 public:
  ComputeBody(const Binder& binder, const Task& task, GradientHistory& history)
      : env_(binder.env()), segment_(*env_.model->segments[static_cast<std::size_t>(task.segment)]), phase_(task.phase) {
    const auto params = segment_.params();
    std::vector<const Use*> param_uses, grad_uses;
    for (const Use& use : binder.graph().uses_of(task)) {
      if (use.role == Role::kParam) param_uses.push_back(&use);
      if (use.role == Role::kParamGrad) grad_uses.push_back(&use);
    }
    SLUICE_CHECK(param_uses.size() == params.size(), segment_.name(), " declares ", param_uses.size(), " of ", params.size(),
                 " parameters");
    const bool backward = phase_ == model::Phase::kBackward || phase_ == model::Phase::kForwardBackward;
    const auto trains = [this](int param) { return env_.layout->grouping().trains(param); };
    const auto trained = std::count_if(params.begin(), params.end(), trains);
    SLUICE_CHECK(static_cast<std::ptrdiff_t>(grad_uses.size()) == (backward ? trained : 0), segment_.name(), " declares ", grad_uses.size(),
                 " gradients");
    std::size_t next_grad = 0;
    const bool one_row = binder.graph().kind == GraphKind::kGenerate;
    const std::int64_t rows = one_row ? 1 : env_.plan.micro_batch;
    const model::Shape shape{rows, env_.sequence_length};
    const DType storage = env_.layout->storage();
    auto* const saved = binder.pointer<std::byte>(task, Role::kSaved);
    const Staging staging = make_staging(*env_.model, segment_, phase_, shape, storage, saved != nullptr);
    auto* const staged = binder.pointer<std::byte>(task, Role::kStaging);
    SLUICE_CHECK((staging.bytes > 0) == (staged != nullptr), segment_.name(), " stages ", staging.bytes, " bytes");
    const auto floats_at = [staged](std::int64_t offset) { return reinterpret_cast<float*>(staged + offset); };
    for (std::size_t i = 0; i < params.size(); ++i) {
      const chunks::Place& place = env_.layout->place(params[i]);
      if (storage == DType::kF32) {
        params_.push_back(reinterpret_cast<const float*>(binder.address(*param_uses[i])) + place.offset);
      } else {
        const auto* stored = reinterpret_cast<const std::uint16_t*>(binder.address(*param_uses[i])) + place.offset;
        const bool is_widened = staging.params[i] >= 0;
        params_.push_back(is_widened ? floats_at(staging.params[i]) : nullptr);
        stored_params_.push_back(segment_.intake(phase_, i) == model::Intake::kStored ? stored : nullptr);
        if (is_widened)
          widened_.push_back({stored, env_.model->params[static_cast<std::size_t>(params[i])].elements(), floats_at(staging.params[i])});
      }
      if (!backward) continue;
      if (!trains(params[i])) {
        grads_.push_back(nullptr);
        accumulate_.push_back(0);
        continue;
      }
      const Use& grad_use = *grad_uses[next_grad++];
      auto* base = reinterpret_cast<float*>(binder.address(grad_use));
      grads_.push_back(base + place.offset);
      accumulate_.push_back(history.write(params[i], task.micro) ? 1 : 0);
      if (grad_use.access == Access::kWrite) {  // first touch: what belongs to no parameter must be zero for the reduction
        const chunks::Run& run = env_.layout->runs()[static_cast<std::size_t>(place.run)];
        for (int c = run.first_chunk; c < run.first_chunk + run.chunk_count; ++c) {
          const chunks::Chunk& chunk = env_.layout->chunks()[static_cast<std::size_t>(c)];
          for (const chunks::Gap& gap : chunk.gaps) gaps_.push_back({base + chunk.run_offset + gap.offset, gap.elements});
        }
      }
    }
    call_.ops = &env_.ops;
    call_.storage = storage;
    call_.shape = shape;
    call_.params = params_;
    call_.stored_params = stored_params_;
    call_.grads = grads_;
    call_.accumulate = accumulate_;
    auto* tokens = binder.required<std::byte>(task, Role::kTokens) +
                   token_bytes(rows, env_.sequence_length, env_.document_attention) * std::max(0, task.micro);
    call_.sample_ids = reinterpret_cast<std::int64_t*>(tokens);
    call_.inputs = reinterpret_cast<std::int32_t*>(tokens + rows * static_cast<std::int64_t>(sizeof(std::int64_t)));
    call_.targets = call_.inputs + rows * env_.sequence_length;
    if (env_.document_attention) call_.document_starts = call_.targets + rows * env_.sequence_length;
    if (storage == DType::kF32) {
      call_.x = binder.pointer<float>(task, Role::kInput);
      call_.y = binder.pointer<float>(task, Role::kOutput);
      call_.d = binder.pointer<float>(task, Role::kGradientInOut);
      call_.saved = saved;
    } else {
      bind_staged(binder, task, staging, staged, saved);
    }
    call_.workspace = binder.pointer<std::byte>(task, Role::kWorkspace);
    if (auto* loss = binder.pointer<double>(task, Role::kLoss)) call_.loss_sum = loss + std::max(0, task.micro);
    call_.logits = binder.pointer<float>(task, Role::kLogits);
    counts_ = binder.pointer<Counts>(task, Role::kValidCount);
  }

  void run(RunState& state, device::Stream& /*stream*/) override {
    const spec::StepInputs& step = state.inputs->step;
    call_.step.seed = step.seed;
    call_.step.step = step.step;
    call_.step.training = step.training;
    if (counts_ != nullptr) {
      const auto valid = static_cast<double>(counts_->valid_tokens);
      call_.step.loss_scale = valid > 0 ? static_cast<float>(step.loss_scale / valid) : 0.0F;
    }
    call_.position = state.inputs->position;
    for (const auto& [begin, elements] : gaps_) std::fill(begin, begin + elements, 0.0F);
    for (const Widened& w : widened_) ops::widen(env_.ops, w.stored, w.elements, call_.storage, w.wide);
    for (const Exact& e : exact_in_) std::memcpy(e.to, e.from, static_cast<std::size_t>(e.bytes));
    segment_.run(phase_, call_);
    for (const Rounded& r : rounded_) ops::narrow(env_.ops, r.wide, r.elements, call_.storage, r.stored);
    for (const Exact& e : exact_out_) std::memcpy(e.to, e.from, static_cast<std::size_t>(e.bytes));
  }

 private:
  struct Widened {
    const std::uint16_t* stored;
    std::int64_t elements;
    float* wide;
  };
  struct Rounded {
    const float* wide;
    std::int64_t elements;
    std::uint16_t* stored;
  };
  struct Exact {
    const std::byte* from;
    std::byte* to;
    std::int64_t bytes;
  };

  /// The segment sees f32 in the staging region; what it reads is widened into it before, what it writes rounded out of it after.
  void bind_staged(const Binder& binder, const Task& task, const Staging& staging, std::byte* staged, std::byte* saved) {
    const auto floats_at = [&](std::int64_t offset) { return offset < 0 ? nullptr : reinterpret_cast<float*>(staged + offset); };
    const std::int64_t elements = staging.activation_elements;
    if (staging.widening >= 0) call_.widening = staged + staging.widening;
    if (const auto* stored = binder.pointer<std::uint16_t>(task, Role::kInput)) {
      call_.x = floats_at(staging.x);
      widened_.push_back({stored, elements, floats_at(staging.x)});
    }
    if (auto* stored = binder.pointer<std::uint16_t>(task, Role::kOutput)) {
      call_.y = floats_at(staging.y);
      rounded_.push_back({call_.y, elements, stored});
    }
    if (auto* stored = binder.pointer<std::uint16_t>(task, Role::kGradientInOut)) {
      call_.d = floats_at(staging.d);
      if (phase_ == model::Phase::kBackward) widened_.push_back({stored, elements, call_.d});
      if (segment_.kind() != model::SegmentKind::kEmbedding) rounded_.push_back({call_.d, elements, stored});
    }
    if (staging.saved < 0) return;
    call_.saved = staged + staging.saved;
    if (saved == nullptr) return;
    auto* stored = reinterpret_cast<std::uint16_t*>(saved);
    std::byte* const exact = call_.saved + staging.saved_elements * static_cast<std::int64_t>(sizeof(float));
    std::byte* const stored_exact = saved + staging.saved_exact_offset;
    if (phase_ == model::Phase::kBackward) {
      widened_.push_back({stored, staging.saved_elements, floats_at(staging.saved)});
      if (staging.saved_exact_bytes > 0) exact_in_.push_back({stored_exact, exact, staging.saved_exact_bytes});
    } else {
      rounded_.push_back({floats_at(staging.saved), staging.saved_elements, stored});
      if (staging.saved_exact_bytes > 0) exact_out_.push_back({exact, stored_exact, staging.saved_exact_bytes});
    }
  }

  const Environment& env_;
  const model::Segment& segment_;
  model::Phase phase_;
  model::SegmentCall call_;
  std::vector<Widened> widened_;
  std::vector<Rounded> rounded_;
  std::vector<Exact> exact_in_, exact_out_;
  std::vector<const std::uint16_t*> stored_params_;
  std::vector<const float*> params_;
  std::vector<float*> grads_;
  std::vector<std::uint8_t> accumulate_;
  std::vector<std::pair<float*, std::int64_t>> gaps_;
  const Counts* counts_ = nullptr;
};

class GatherBody final : public Body {
 public:
  GatherBody(const Binder& binder, const Task& task) {
    const chunks::Chunk& chunk = binder.chunk(task);
    const std::int64_t element_bytes = binder.env().layout->element_bytes(task.plane);
    for (const std::int64_t element : chunks::shard_bounds(chunk.elements, binder.ranks())) bounds_.push_back(element * element_bytes);
    region_ = binder.required<std::byte>(task, Role::kTarget) + chunk.run_offset * element_bytes;
    // A source of its own is a plane that is sharded: this rank's part alone.
    const auto* source = binder.pointer<std::byte>(task, Role::kSource);
    SLUICE_CHECK(source == nullptr || chunks::is_sharded(task.plane, binder.env().plan.zero_stage), "a gather from a whole plane");
    slice_ = source != nullptr ? source : region_ + bounds_[static_cast<std::size_t>(binder.rank())];
  }
  comm::Channel::Ticket post(RunState& /*state*/, comm::Channel& channel) override { return channel.post_gather(slice_, region_, bounds_); }

 private:
  std::vector<std::int64_t> bounds_;
  const std::byte* slice_ = nullptr;
  std::byte* region_ = nullptr;
};

class ScatterBody final : public Body {
 public:
  ScatterBody(const Binder& binder, const Task& task) : accumulate_(task.accumulate) {
    const chunks::Chunk& chunk = binder.chunk(task);
    bounds_ = chunks::shard_bounds(chunk.elements, binder.ranks());
    const bool in_place = binder.graph().use_of(task, Role::kSource) == nullptr;
    region_ = binder.required<float>(task, in_place ? Role::kTarget : Role::kSource) + chunk.run_offset;
    out_ = binder.shard<float>(task, Role::kTarget, Plane::kGradient);
  }
  comm::Channel::Ticket post(RunState& /*state*/, comm::Channel& channel) override {
    return channel.post_scatter(region_, out_, bounds_, accumulate_);
  }

 private:
  std::vector<std::int64_t> bounds_;
  const float* region_ = nullptr;
  float* out_ = nullptr;
  bool accumulate_;
};

class AgreeBody final : public Body {
 public:
  AgreeBody(const Binder& binder, const Task& task, int ordinal)
      : all_(static_cast<std::size_t>(binder.ranks())),
        ordinal_(ordinal),
        can_cancel_(task.can_cancel),
        local_(binder.pointer<Counts>(task, Role::kSource)),
        global_(binder.pointer<Counts>(task, Role::kValidCount)) {}
  comm::Channel::Ticket post(RunState& state, comm::Channel& channel) override {
    mine_.valid_tokens = local_ != nullptr ? local_->valid_tokens : 0;
    mine_.stop = state.inputs->stop && state.inputs->stop() ? 1 : 0;
    return channel.post_exchange(&mine_, all_.data(), sizeof(Payload));
  }
  void complete(RunState& state) override {
    Counts sum;
    bool stop = false;
    for (const Payload& payload : all_) {
      sum.valid_tokens += payload.valid_tokens;
      stop = stop || payload.stop != 0;
    }
    if (global_ != nullptr) *global_ = sum;
    if (!stop) return;
    state.stop_requested.store(true, std::memory_order_relaxed);
    if (can_cancel_ && ordinal_ < state.cancelled_from.load(std::memory_order_relaxed))
      state.cancelled_from.store(ordinal_, std::memory_order_relaxed);
  }

 private:
  struct Payload {
    std::int64_t valid_tokens = 0;
    std::int64_t stop = 0;
  };
  Payload mine_;
  std::vector<Payload> all_;
  int ordinal_;
  bool can_cancel_;
  const Counts* local_;
  Counts* global_;
};

class NormOfChunkBody final : public Body {
 public:
  NormOfChunkBody(const Binder& binder, const Task& task) : ops_(binder.env().ops) {
    begin_ = binder.shard<float>(task, Role::kSource, Plane::kGradient);
    elements_ = binder.shard_elements(task);
    norm_ = binder.required<ops::NormAccumulator>(task, Role::kTarget);
    clears_ = binder.graph().use_of(task, Role::kTarget)->access == Access::kWrite;
  }
  void run(RunState& /*state*/, device::Stream& /*stream*/) override {
    if (clears_) *norm_ = {};
    if (elements_ > 0) ops::add_squared_norm(ops_, begin_, elements_, *norm_);
  }

 private:
  const ops::Context& ops_;
  const float* begin_ = nullptr;
  std::int64_t elements_ = 0;
  ops::NormAccumulator* norm_ = nullptr;
  bool clears_ = false;
};

class ReportBody final : public Body {
 public:
  ReportBody(const Binder& binder, const Task& task)
      : all_(static_cast<std::size_t>(binder.ranks())),
        max_norm_(binder.env().optimizer.gradient_clipping),
        skips_overflow_(binder.env().skips_overflow) {
    micros_ = binder.graph().kind == GraphKind::kStep ? static_cast<int>(binder.env().plan.accumulation) : 1;
    loss_ = binder.required<double>(task, Role::kLoss);
    counts_ = binder.required<Counts>(task, Role::kValidCount);
    norm_ = binder.pointer<ops::NormAccumulator>(task, Role::kSource);
    report_ = binder.required<Report>(task, Role::kReport);
  }
  comm::Channel::Ticket post(RunState& state, comm::Channel& channel) override {
    mine_ = {};
    if (norm_ != nullptr) mine_.norm = *norm_;
    for (int m = 0; m < micros_; ++m) mine_.loss += loss_[m];  // micro-batches in order, then ranks in order
    mine_.valid_tokens = counts_->valid_tokens;
    mine_.stop = state.inputs->stop && state.inputs->stop() ? 1 : 0;
    return channel.post_exchange(&mine_, all_.data(), sizeof(Payload));
  }
  void complete(RunState& state) override {
    Report report;
    ops::NormAccumulator norm;
    for (const Payload& payload : all_) {
      norm.merge(payload.norm);
      report.loss += payload.loss;
      report.valid_tokens += payload.valid_tokens;
      report.stop_requested = report.stop_requested || payload.stop != 0;
    }
    if (report.valid_tokens > 0) report.loss /= static_cast<double>(report.valid_tokens);
    if (norm_ != nullptr) {
      const double scale = state.inputs->step.loss_scale;
      report.grad_norm = std::sqrt(norm.value()) / scale;
      report.grad_scale = static_cast<float>(static_cast<double>(optim::clip_factor(report.grad_norm, max_norm_)) / scale);
      report.overflow = skips_overflow_ && !(std::isfinite(report.grad_norm) && std::isfinite(report.loss));
      report.skipped = report.overflow || report.valid_tokens == 0;
    }
    if (report.stop_requested) state.stop_requested.store(true, std::memory_order_relaxed);
    *report_ = report;
  }

 private:
  struct Payload {
    ops::NormAccumulator norm;
    double loss = 0;
    std::int64_t valid_tokens = 0;
    std::int64_t stop = 0;
  };
  Payload mine_;
  std::vector<Payload> all_;
  double max_norm_;
  bool skips_overflow_;
  int micros_ = 1;
  const double* loss_ = nullptr;
  const Counts* counts_ = nullptr;
  const ops::NormAccumulator* norm_ = nullptr;
  Report* report_ = nullptr;
};

/// Whether the updates of a run change anything: what a task declares of the step's report, or with in_backward of its counts.
class UpdateCondition {
 public:
  UpdateCondition(const Binder& binder, const Task& task)
      : report_(binder.pointer<Report>(task, Role::kReport)), counts_(binder.pointer<Counts>(task, Role::kValidCount)) {}
  bool is_given() const { return report_ != nullptr || counts_ != nullptr; }
  bool holds(const RunState& state) const {
    if (!state.inputs->step.update.apply) return false;
    return report_ != nullptr ? !report_->skipped : counts_->valid_tokens > 0;
  }
  float grad_scale() const { return report_ != nullptr ? report_->grad_scale : 1.0F; }

 private:
  const Report* report_;
  const Counts* counts_;
};

class UpdateBody final : public Body {
 public:
  UpdateBody(const Binder& binder, const Task& task) : env_(binder.env()), condition_(binder, task) {
    SLUICE_CHECK(condition_.is_given(), "an update declares neither a report nor counts");
    const chunks::ChunkLayout& layout = *env_.layout;
    choose_rule();
    std::visit(
        [&](auto& args) {
          const auto part = [&](Role role, Plane plane) { return binder.part<float>(task, role, plane); };
          args.n = binder.part_elements(task);
          args.param = part(Role::kParam, layout.master());
          args.grad = part(Role::kParamGrad, Plane::kGradient);
          args.weight_decay = env_.grouping->groups[static_cast<std::size_t>(binder.chunk(task).group)].weight_decay;
          if (layout.has_master()) {
            args.copy = binder.part<std::uint16_t>(task, Role::kTarget, Plane::kWorking);
            args.copy_dtype = layout.storage();
            fills_copy_ = !binder.graph().buffers[binder.graph().use_of(task, Role::kTarget)->buffer].persistent;
          }
          bind_state(args, part);
        },
        rule_);
  }
  void run(RunState& state, device::Stream& /*stream*/) override {
    const spec::UpdateInputs& update = state.inputs->step.update;
    const bool applies = condition_.holds(state);
    std::visit(
        [&](auto& args) {
          if (args.n == 0) return;
          if (!applies) {
            if (fills_copy_) ops::narrow(env_.ops, args.param, args.n, args.copy_dtype, args.copy);
            return;
          }
          args.learning_rate = update.learning_rate;
          args.grad_scale = condition_.grad_scale();
          if constexpr (requires { args.count; }) args.count = update.count;
          apply(args);
        },
        rule_);
  }

 private:
  void choose_rule() {
    const spec::OptimizerSpec& optimizer = env_.optimizer;
    switch (optimizer.kind) {
      case spec::OptimizerKind::kAdamW:
      case spec::OptimizerKind::kAdam: {
        ops::AdamwArgs args{};
        args.beta1 = optimizer.beta1;
        args.beta2 = optimizer.beta2;
        args.eps = optimizer.eps;
        if (optimizer.kind == spec::OptimizerKind::kAdam) args.decay = ops::AdamDecay::kInGradient;
        rule_ = args;
        break;
      }
      case spec::OptimizerKind::kSgd: {
        ops::SgdArgs args{};
        args.momentum = optimizer.momentum;
        args.dampening = optimizer.dampening;
        args.nesterov = optimizer.nesterov;
        rule_ = args;
        break;
      }
      case spec::OptimizerKind::kLion: {
        ops::LionArgs args{};
        args.beta1 = optimizer.beta1;
        args.beta2 = optimizer.beta2;
        rule_ = args;
        break;
      }
    }
  }

  template <typename Part>
  static void bind_state(ops::AdamwArgs& args, const Part& part) {
    args.moment1 = part(Role::kMoment1, Plane::kMoment1);
    args.moment2 = part(Role::kMoment2, Plane::kMoment2);
  }
  template <typename Part>
  static void bind_state(ops::SgdArgs& args, const Part& part) {
    if (args.momentum > 0) args.buffer = part(Role::kMoment1, Plane::kMoment1);
  }
  template <typename Part>
  static void bind_state(ops::LionArgs& args, const Part& part) {
    args.moment = part(Role::kMoment1, Plane::kMoment1);
  }

  void apply(const ops::AdamwArgs& args) const { ops::adamw(env_.ops, args); }
  void apply(const ops::SgdArgs& args) const { ops::sgd(env_.ops, args); }
  void apply(const ops::LionArgs& args) const { ops::lion(env_.ops, args); }

  const Environment& env_;
  UpdateCondition condition_;
  std::variant<ops::AdamwArgs, ops::SgdArgs, ops::LionArgs> rule_;
  /// The rounded copy goes to memory that holds nothing before: who gathers from there finds it also where nothing is updated.
  bool fills_copy_ = false;
};

/// What a move moves: this rank's part of a chunk's plane, or an activation, all of its buffer.
struct Movement {
  Movement(const Binder& binder, const Task& task)
      : from(used(binder, task, Role::kSource)), to(used(binder, task, Role::kTarget)), condition(binder, task) {
    const Buffer &source = binder.graph().buffers[from->buffer], &target = binder.graph().buffers[to->buffer];
    if (task.chunk < 0) {
      bytes = std::min(source.bytes, target.bytes);
      return;
    }
    const std::int64_t element = binder.env().layout->element_bytes(task.plane);
    bytes = binder.part_elements(task) * element;
    from_offset = binder.part_offset(task, source, task.plane) * element;
    to_offset = binder.part_offset(task, target, task.plane) * element;
  }
  /// Nothing is moved where the update that it belongs to does nothing.
  bool happens(const RunState& state) const { return bytes > 0 && (!condition.is_given() || condition.holds(state)); }

  const Use* from;
  const Use* to;
  std::int64_t bytes = 0;
  std::int64_t from_offset = 0, to_offset = 0;  // bytes, in their buffers
  UpdateCondition condition;

 private:
  static const Use* used(const Binder& binder, const Task& task, Role role) {
    const Use* use = binder.graph().use_of(task, role);
    SLUICE_CHECK(use != nullptr, "a move declares no ", name_of(role));
    return use;
  }
};

/// Between device and host memory.
class MoveBody final : public Body {
 public:
  MoveBody(const Binder& binder, const Task& task)
      : movement_(binder, task),
        source_(binder.address(*movement_.from) + movement_.from_offset),
        target_(binder.address(*movement_.to) + movement_.to_offset),
        accumulate_(task.accumulate),
        ops_(binder.env().ops) {
    ops_.threads = 1;  // as for a copy: the backward beside it has the rank's
  }
  void run(RunState& state, device::Stream& /*stream*/) override {
    if (!movement_.happens(state)) return;
    if (accumulate_) {
      ops::add(ops_, reinterpret_cast<const float*>(source_), movement_.bytes / static_cast<std::int64_t>(sizeof(float)),
               reinterpret_cast<float*>(target_));
    } else {
      std::memcpy(target_, source_, static_cast<std::size_t>(movement_.bytes));
    }
  }

 private:
  Movement movement_;
  const std::byte* source_;
  std::byte* target_;
  bool accumulate_;
  ops::Context ops_;
};

/// Between host memory and disk.
class DiskMoveBody final : public Body {
 public:
  DiskMoveBody(const Binder& binder, const Task& task)
      : movement_(binder, task),
        disk_(binder.env().disk),
        reads_(task.lane == Lane::kDiskRead),
        id_((reads_ ? movement_.from : movement_.to)->buffer),
        buffer_(binder.graph().buffers[id_]) {
    SLUICE_CHECK(disk_ != nullptr, "a graph that uses the disk is bound without one");
    SLUICE_CHECK(!task.accumulate && movement_.from_offset == 0 && movement_.to_offset == 0, "a disk holds parts alone, as they are");
    const Use& in_memory = reads_ ? *movement_.to : *movement_.from;
    const Buffer& memory = binder.graph().buffers[in_memory.buffer];
    // Whole blocks are moved, so the memory must have room for what follows the last byte in its block.
    const memory::Arena* arena = binder.env().arenas[static_cast<std::size_t>(memory.tier)];
    SLUICE_CHECK(arena != nullptr && memory.offset % kDiskAlignment == 0, binder.graph().buffer_name(in_memory.buffer), " at ",
                 memory.offset, " is not placed for the disk");
    data_ = arena->at(memory.offset, round_up(memory.bytes, kDiskAlignment));
  }
  void start(RunState& state, memory::IoTicket& ticket) override {
    started_ = movement_.happens(state);
    if (!started_) return;
    if (reads_) {
      disk_->post_read(ticket, id_, buffer_, data_, movement_.bytes);
    } else {
      disk_->post_write(ticket, id_, buffer_, data_, movement_.bytes);
    }
  }
  void complete(RunState& /*state*/) override {
    if (started_ && !reads_) disk_->commit(id_, buffer_);
  }

 private:
  Movement movement_;
  DiskState* disk_;
  bool reads_;
  BufferId id_;
  const Buffer& buffer_;
  std::byte* data_ = nullptr;
  bool started_ = false;
};

class SaveBody final : public Body {
 public:
  SaveBody(const Binder& binder, const Task& task) : plane_(task.plane), chunk_(task.chunk) {
    const std::int64_t elements = binder.chunk(task).elements;
    begin_ = chunks::shard_begin(elements, binder.rank(), binder.ranks());
    count_ = chunks::shard_begin(elements, binder.rank() + 1, binder.ranks()) - begin_;
    const bool is_f32 = binder.env().layout->element_bytes(task.plane) == sizeof(float);
    if (is_f32) {
      data_ = binder.shard<float>(task, Role::kSource, task.plane);
    } else {
      data_ = binder.shard<std::uint16_t>(task, Role::kSource, task.plane);
    }
  }
  void run(RunState& state, device::Stream& /*stream*/) override {
    if (count_ > 0) state.inputs->save(plane_, chunk_, begin_, count_, data_);
  }

 private:
  Plane plane_;
  int chunk_;
  std::int64_t begin_ = 0, count_ = 0;
  const void* data_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<Body>> bind_bodies(const StepGraph& graph, const Environment& env) {
  const Binder binder(graph, env);
  GradientHistory history(env.model->params.size(), env.plan);
  std::vector<std::unique_ptr<Body>> bodies;
  bodies.reserve(graph.tasks.size());
  int agrees = 0;
  for (const Task& task : graph.tasks) {
    switch (task.kind) {
      case TaskKind::kLoad:
        bodies.push_back(std::make_unique<LoadBody>(binder, task));
        break;
      case TaskKind::kAgree:
        bodies.push_back(std::make_unique<AgreeBody>(binder, task, agrees++));
        break;
      case TaskKind::kCompute:
        bodies.push_back(std::make_unique<ComputeBody>(binder, task, history));
        break;
      case TaskKind::kGather:
        bodies.push_back(std::make_unique<GatherBody>(binder, task));
        break;
      case TaskKind::kScatter:
        bodies.push_back(std::make_unique<ScatterBody>(binder, task));
        break;
      case TaskKind::kNorm:
        if (task.chunk >= 0) {
          bodies.push_back(std::make_unique<NormOfChunkBody>(binder, task));
        } else {
          bodies.push_back(std::make_unique<ReportBody>(binder, task));
        }
        break;
      case TaskKind::kUpdate:
        bodies.push_back(std::make_unique<UpdateBody>(binder, task));
        break;
      case TaskKind::kForeign:
        bodies.push_back(std::make_unique<SaveBody>(binder, task));
        break;
      case TaskKind::kMove:
        if (task.lane == Lane::kDiskRead || task.lane == Lane::kDiskWrite) {
          bodies.push_back(std::make_unique<DiskMoveBody>(binder, task));
        } else {
          bodies.push_back(std::make_unique<MoveBody>(binder, task));
        }
        break;
      case TaskKind::kSend:
      case TaskKind::kRecv:
      case TaskKind::kCollective:
        SLUICE_CHECK(false, "no body for ", name_of(task.kind));
    }
  }
  return bodies;
}

}  // namespace sluice::schedule
