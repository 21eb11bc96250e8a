#include "schedule/compute_tasks.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "schedule/staging.hpp"
#include "schedule/state_tasks.hpp"

namespace sluice::schedule {
namespace {

using chunks::Plane;
using model::Phase;
using spec::Activation;
using spec::Tier;

constexpr std::int64_t kFloat = sizeof(float);

bool recomputes_segment(const BuildContext& context, int s) {
  return context.plan.recomputes(static_cast<std::size_t>(s)) && context.segment(s).has_phase(Phase::kRecompute);
}

}  // namespace

void list_items(BuildContext& context) {
  const int last = context.segments() - 1;
  const bool trains = context.kind == GraphKind::kStep;
  const Phase of_head = trains ? Phase::kForwardBackward : context.kind == GraphKind::kGenerate ? Phase::kLogits : Phase::kForward;
  // Micro-batches [begin, end), each segment for all of them before the next.
  const auto pass = [&](int begin, int end) {
    for (int s = 0; s <= last; ++s) {
      for (int m = begin; m < end; ++m) context.items.push_back({s, m, s == last ? of_head : Phase::kForward});
    }
    if (!trains) return;
    for (int s = last - 1; s >= context.first_trained; --s) {  // nobody wants a gradient from before
      for (int m = begin; m < end; ++m) {
        if (recomputes_segment(context, s)) context.items.push_back({s, m, Phase::kRecompute});
        context.items.push_back({s, m, Phase::kBackward});
      }
    }
  };
  if (context.is_layer_by_layer()) {
    pass(0, context.accumulation);
  } else {
    for (int m = 0; m < context.accumulation; ++m) pass(m, m + 1);
  }
  for (const Item& item : context.items) context.item_runs.push_back(context.runs_of[static_cast<std::size_t>(item.segment)]);
}

ComputeTasks::ComputeTasks(BuildContext& context, const StateTasks& state)
    : context_(context),
      state_(state),
      activation_(of_segment(0, context.accumulation), kNone),
      saved_(activation_.size(), kNone),
      gradient_of_(of_run(0, context.accumulation), kNone),
      uses_left_(gradient_of_.size(), 0),
      gradient_of_activation_(static_cast<std::size_t>(context.accumulation), kNone) {
  for (const std::vector<int>& runs : context.trained_runs_of) {
    for (const int run : runs) {
      for (int m = 0; m < context.accumulation; ++m) ++uses_left_[of_run(run, m)];
    }
  }
  plan_returns();
}

bool ComputeTasks::recomputes(int s) const {
  return recomputes_segment(context_, s);
}

bool ComputeTasks::leaves_device(int s) const {
  const Activation activation = context_.plan.activations[static_cast<std::size_t>(s)];
  return context_.kind == GraphKind::kStep && (activation == Activation::kHost || activation == Activation::kDisk) &&
         s >= context_.first_trained && s < context_.segments() - 1 &&
         stored_saved_bytes(context_.segment(s), context_.shape, context_.layout.storage()) > 0;
}

bool ComputeTasks::goes_to_disk(int s) const {
  return context_.plan.activations[static_cast<std::size_t>(s)] == Activation::kDisk;
}

/// Uploads so many items ahead of their backward, reads twice as many, each not before the forward; both in the order in which they
/// are needed, since lanes are served in order.
void ComputeTasks::plan_returns() {
  const int ahead = std::max(1, context_.plan.prefetch_segments);
  std::vector<int> forward(saved_.size(), -1);
  const auto add = [](std::vector<Return>& returns, int at, int backward) {
    returns.push_back({returns.empty() ? at : std::max(at, returns.back().at), backward});
  };
  for (int i = 0; i < static_cast<int>(context_.items.size()); ++i) {
    const Item& item = context_.items[static_cast<std::size_t>(i)];
    int& of_item = forward[of_segment(item.segment, item.micro)];
    if (item.phase == Phase::kForward) of_item = i;
    if (item.phase != Phase::kBackward || !leaves_device(item.segment)) continue;
    if (goes_to_disk(item.segment)) add(reads_, std::max(i - 2 * ahead, of_item + 1), i);
    add(uploads_, std::max(i - ahead, of_item + 1), i);
  }
}

/// A write to disk comes in the linear order after the download that follows it: so the two have host buffers of their own, and the disk
/// goes on while the next download runs.
void ComputeTasks::emit_departure(const Item& item) {
  BufferId& saved = saved_[of_segment(item.segment, item.micro)];
  saved = move_saved(Lane::kDownload, item, saved, Tier::kHost);
  emit_write();
  if (goes_to_disk(item.segment)) unwritten_ = &item;
}

void ComputeTasks::emit_write() {
  if (unwritten_ == nullptr) return;
  BufferId& saved = saved_[of_segment(unwritten_->segment, unwritten_->micro)];
  saved = move_saved(Lane::kDiskWrite, *unwritten_, saved, Tier::kDisk);
  unwritten_ = nullptr;
}

void ComputeTasks::emit_returns(int before) {
  const auto emit_due = [&](std::vector<Return>& returns, std::size_t& next, Lane lane, Tier to) {
    for (; next < returns.size() && returns[next].at <= before; ++next) {
      const Item& item = context_.items[static_cast<std::size_t>(returns[next].backward)];
      BufferId& saved = saved_[of_segment(item.segment, item.micro)];
      if (lane == Lane::kDiskRead) emit_write();
      saved = move_saved(lane, item, saved, to);
    }
  };
  emit_due(reads_, next_read_, Lane::kDiskRead, Tier::kHost);
  emit_due(uploads_, next_upload_, Lane::kUpload, Tier::kDevice);
}

/// Moves a segment's saved tensors into a new buffer.
BufferId ComputeTasks::move_saved(Lane lane, const Item& item, BufferId source, Tier to) {
  const std::int64_t bytes = stored_saved_bytes(context_.segment(item.segment), context_.shape, context_.layout.storage());
  const bool pads = goes_to_disk(item.segment) && to != Tier::kDevice;  // what a disk transfers
  const BufferId target =
      context_.transient(BufferTag::kSaved, to, item.segment, item.micro, pads ? round_up(bytes, kDiskAlignment) : bytes);
  context_.builder.add_task({.kind = TaskKind::kMove, .lane = lane, .segment = item.segment, .micro = item.micro},
                            std::array<Use, 2>{{{source, Access::kRead, Role::kSource}, {target, Access::kWrite, Role::kTarget}}});
  return target;
}

void ComputeTasks::emit(int index) {
  const Item& item = context_.items[static_cast<std::size_t>(index)];
  emit_returns(index);
  const std::size_t s = of_segment(item.segment, item.micro);
  BufferId& gradient_of_activation = gradient_of_activation_[static_cast<std::size_t>(item.micro)];
  const model::Segment& seg = context_.segment(item.segment);
  const bool head = item.segment == context_.segments() - 1;
  const bool embeds = item.segment == 0;
  const bool backward = is_backward(item.phase);
  const DType storage = context_.layout.storage();
  const std::int64_t activation_bytes = stored_activation_bytes(context_.model, context_.shape, storage);
  // Staged tensors need no buffer of their own where nobody reads them after this task.
  const bool is_read = context_.kind == GraphKind::kStep && !recomputes(item.segment) && item.segment >= context_.first_trained;
  const bool stores_saved = storage == DType::kF32 || item.phase != Phase::kForward || is_read;
  const auto transient = [&](BufferTag tag, std::int64_t bytes) {
    return context_.transient(tag, Tier::kDevice, item.segment, item.micro, bytes);
  };
  std::vector<Use> uses;
  // Parameters first, in the segment's order, then the gradients of those that are trained in the same order.
  for (const int param : seg.params()) uses.push_back({state_.parameters(context_.layout.place(param).run), Access::kRead, Role::kParam});
  if (backward) {
    for (const int param : seg.params()) {
      if (context_.trains(param)) uses.push_back(gradient_use(context_.layout.place(param).run, item.micro));
    }
  }
  uses.push_back({context_.tokens, Access::kRead, Role::kTokens});  // ids, targets, or the sample ids of dropout
  if (!embeds) uses.push_back({activation_[s - 1], Access::kRead, Role::kInput});
  if (!head && item.phase == Phase::kForward) {
    activation_[s] = transient(BufferTag::kActivation, activation_bytes);
    uses.push_back({activation_[s], Access::kWrite, Role::kOutput});
  }
  if (const std::int64_t bytes = stores_saved ? stored_saved_bytes(seg, context_.shape, storage) : 0; bytes > 0) {
    // Where the saved tensors are dropped after forward, forward writes them to a buffer that dies with it.
    if (item.phase == Phase::kForward || item.phase == Phase::kRecompute) {
      saved_[s] = transient(BufferTag::kSaved, bytes);
      uses.push_back({saved_[s], Access::kWrite, Role::kSaved});
    } else if (item.phase == Phase::kBackward) {
      uses.push_back({saved_[s], Access::kRead, Role::kSaved});
    } else {
      uses.push_back({transient(BufferTag::kSaved, bytes), Access::kWrite, Role::kSaved});
    }
  }
  if (item.phase == Phase::kForwardBackward) {
    gradient_of_activation = transient(BufferTag::kActivationGradient, activation_bytes);
    uses.push_back({gradient_of_activation, Access::kWrite, Role::kGradientInOut});
  } else if (item.phase == Phase::kBackward) {
    uses.push_back({gradient_of_activation, Access::kReadWrite, Role::kGradientInOut});
  }
  if (const std::int64_t bytes = seg.workspace_bytes(item.phase, context_.shape, context_.plan.threads); bytes > 0)
    uses.push_back({transient(BufferTag::kWorkspace, bytes), Access::kWrite, Role::kWorkspace});
  if (const std::int64_t bytes = make_staging(context_.model, seg, item.phase, context_.shape, storage, stores_saved).bytes; bytes > 0)
    uses.push_back({transient(BufferTag::kWorkspace, bytes), Access::kWrite, Role::kStaging});
  if (head && item.phase != Phase::kLogits) {
    if (context_.kind == GraphKind::kStep) uses.push_back({context_.global_counts, Access::kRead, Role::kValidCount});
    // Each micro-batch writes its own number of the array; they are ordered by the compute lane.
    uses.push_back({context_.loss, item.micro == 0 ? Access::kWrite : Access::kReadWrite, Role::kLoss});
  }
  if (item.phase == Phase::kLogits) uses.push_back({context_.logits, Access::kWrite, Role::kLogits});
  context_.builder.add_task(
      {.kind = TaskKind::kCompute, .lane = Lane::kCompute, .phase = item.phase, .segment = item.segment, .micro = item.micro}, uses);
  if (item.phase == Phase::kForward && leaves_device(item.segment)) emit_departure(item);
}

std::vector<ComputeTasks::Completed> ComputeTasks::completed_by(int index) {
  const Item& item = context_.items[static_cast<std::size_t>(index)];
  std::vector<Completed> completed;
  if (!is_backward(item.phase)) return completed;
  for (const int run : context_.trained_runs_of[static_cast<std::size_t>(item.segment)]) {
    const std::size_t r = of_run(run, item.micro);
    if (--uses_left_[r] == 0) completed.push_back({run, gradient_of_[r]});
  }
  return completed;
}

Use ComputeTasks::gradient_use(int run, int micro) {
  BufferId& gradient = gradient_of_[of_run(run, micro)];
  const bool first = gradient == kNone;
  if (context_.plan.zero_stage < 2) {
    gradient = state_.plane(Plane::kGradient, context_.run(run).first_chunk);
    return {gradient, micro == 0 && first ? Access::kWrite : Access::kReadWrite, Role::kParamGrad};
  }
  if (first) gradient = context_.transient(BufferTag::kMicroGradient, Tier::kDevice, run, micro, context_.run(run).elements * kFloat);
  return {gradient, first ? Access::kWrite : Access::kReadWrite, Role::kParamGrad};
}

}  // namespace sluice::schedule
