#include "schedule/build.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "chunks/residency.hpp"
#include "schedule/build_context.hpp"
#include "schedule/compute_tasks.hpp"
#include "schedule/place.hpp"
#include "schedule/state_tasks.hpp"

namespace sluice::schedule {
namespace {

using model::Phase;
using spec::Tier;
using spec::UpdateMode;

constexpr std::int64_t kFloat = sizeof(float);
// How many compute tasks run on after an agree was posted before they wait for it: hides its latency.
constexpr int kAgreeSlack = 2;

/// The order of a graph: which tasks come when. What they are, the parts know.
class Build {
 public:
  Build(GraphKind kind, const BuildInputs& inputs) : context_(kind, inputs), state_(context_), compute_(context_, state_) {
    context_.add_control();
  }

  StepGraph finish() && {
    switch (context_.kind) {
      case GraphKind::kStep:
        emit_step();
        break;
      case GraphKind::kFlush:
        state_.plan_ahead();
        state_.emit_updates_left();
        break;
      case GraphKind::kEvaluate:
      case GraphKind::kGenerate:
        emit_forward_only();
        break;
      case GraphKind::kSave:
        state_.emit_save();
        break;
    }
    StepGraph graph = std::move(context_.builder).finish();
    graph.storage = context_.layout.storage();
    if (context_.plan.uses_tier(Tier::kDisk)) {
      for (const Tier tier : {Tier::kHost, Tier::kDisk}) graph.alignment[static_cast<std::size_t>(tier)] = kDiskAlignment;
    }
    // Where gathers are issued ahead, reductions may lag behind: one compute task is enough to keep both lanes busy.
    place(graph, std::min(1, context_.plan.prefetch_segments));
    return graph;
  }

 private:
  GraphBuilder& builder() { return context_.builder; }

  void emit_load() {
    context_.tokens = context_.transient(
        BufferTag::kTokens, Tier::kHost, -1, -1,
        token_bytes(context_.shape.rows, context_.shape.sequence, context_.in.document_attention) * context_.accumulation);
    builder().add_task(
        {.kind = TaskKind::kLoad, .lane = Lane::kHostCompute},
        std::array<Use, 2>{{{context_.tokens, Access::kWrite, Role::kTokens}, {context_.local_counts, Access::kWrite, Role::kValidCount}}});
  }

  TaskId emit_agree(AgreeRole role, bool can_cancel, int micro) {
    const Task task{.kind = TaskKind::kAgree, .lane = Lane::kMeshComm, .agree_role = role, .can_cancel = can_cancel, .micro = micro};
    if (role == AgreeRole::kStart) {
      return builder().add_task(task, std::array<Use, 2>{{{context_.local_counts, Access::kRead, Role::kSource},
                                                          {context_.global_counts, Access::kWrite, Role::kValidCount}}});
    }
    // Not before the step has come so far: what a rank is asked is whether it wants to stop by now.
    return builder().add_task(task, {}, builder().last_of(Lane::kCompute));
  }

  void emit_report(bool with_norm) {
    std::vector<Use> uses{{context_.loss, Access::kRead, Role::kLoss},
                          {context_.local_counts, Access::kRead, Role::kValidCount},
                          {context_.report, Access::kWrite, Role::kReport}};
    if (with_norm) uses.push_back({context_.norm, Access::kRead, Role::kSource});
    builder().add_task({.kind = TaskKind::kNorm, .lane = Lane::kMeshComm}, uses);
  }

  void emit_step() {
    state_.plan_ahead();
    const spec::Plan& plan = context_.plan;
    const bool next_forward = plan.update_mode == UpdateMode::kNextForward;
    const bool in_backward = plan.update_mode == UpdateMode::kInBackward;
    emit_load();
    // With next_forward the state is unclean until the last update of the step before, so nothing before it may cancel.
    builder().govern_by(emit_agree(AgreeRole::kStart, !next_forward, -1));
    TaskId pending_agree = kNone;
    int slack = 0;
    bool updates_begun = false;
    int since_agree = 0;
    const std::vector<Item>& items = context_.items;
    const int items_of_micro_batch = static_cast<int>(items.size()) / context_.accumulation;
    for (int i = 0; i < static_cast<int>(items.size()); ++i) {
      const Item& item = items[static_cast<std::size_t>(i)];
      const bool last_micro = item.micro == context_.accumulation - 1;
      state_.emit_before_item(i);
      compute_.emit(i);
      ++since_agree;
      if (pending_agree != kNone && --slack <= 0) {
        builder().govern_by(pending_agree);
        pending_agree = kNone;
      }
      const bool is_last = i + 1 == static_cast<int>(items.size());
      // Layer by layer: after as many items as a micro-batch has.
      const bool micro_batch_ends = !is_last && (context_.is_layer_by_layer() ? since_agree >= items_of_micro_batch
                                                                              : items[static_cast<std::size_t>(i) + 1].micro != item.micro);
      for (const ComputeTasks::Completed& completed : compute_.completed_by(i)) {
        // ZeRO 0 and 1 add up micro-batches first and meet once; 2 and 3 meet after every micro-batch.
        if (plan.zero_stage >= 2 || last_micro) state_.emit_scatter_of_run(completed.run, item.micro, completed.gradient);
      }
      if (in_backward && state_.has_updates_due(i)) {
        if (!updates_begun) builder().govern_by(emit_agree(AgreeRole::kBeforeUpdate, true, item.micro));
        pending_agree = kNone;
        updates_begun = true;
        state_.emit_updates_due(i);
      }
      const bool state_is_clean = !updates_begun && (!next_forward || !state_.has_updates_left());
      const bool long_since = context_.in.segments_between_agrees > 0 && since_agree >= context_.in.segments_between_agrees;
      if (pending_agree == kNone && (micro_batch_ends || long_since)) {
        pending_agree = emit_agree(AgreeRole::kMicroBatch, state_is_clean, item.micro);
        slack = kAgreeSlack;
        since_agree = 0;
      }
    }
    if (in_backward) {
      if (!updates_begun) builder().govern_by(emit_agree(AgreeRole::kBeforeUpdate, true, context_.accumulation - 1));
      state_.emit_updates_left();
    } else {
      if (!next_forward) state_.emit_first_moves_in();  // during the backward, as far as lanes and bytes are free
      // With next_forward nothing is left to drop: the update of this step belongs to the next graph.
      builder().govern_by(emit_agree(AgreeRole::kBeforeUpdate, !next_forward, context_.accumulation - 1));
    }
    state_.emit_norm_of_chunks();
    emit_report(true);
    if (plan.update_mode == UpdateMode::kAtEnd) state_.emit_updates_left();
  }

  void emit_forward_only() {
    state_.plan_ahead();
    emit_load();
    for (int i = 0; i < static_cast<int>(context_.items.size()); ++i) {
      state_.emit_before_item(i);
      compute_.emit(i);
    }
    if (context_.kind == GraphKind::kEvaluate) emit_report(false);
  }

  BuildContext context_;
  StateTasks state_;
  ComputeTasks compute_;
};

}  // namespace

BuildContext::BuildContext(GraphKind graph_kind, const BuildInputs& inputs)
    : in(inputs),
      plan(inputs.plan),
      model(*inputs.model),
      layout(*inputs.layout),
      kind(graph_kind),
      builder(graph_kind),
      first_trained(first_trained_segment(model, layout.grouping())) {
  SLUICE_CHECK(plan.activations.size() == model.segments.size(), "plan.activations has ", plan.activations.size(), " entries for ",
               model.segments.size(), " segments");
  SLUICE_CHECK(!(plan.update_mode == UpdateMode::kInBackward && in.needs_norm),
               "update mode in_backward can't clip or look for overflows: the global norm isn't known");
  SLUICE_CHECK(plan.zero_stage >= 0 && plan.zero_stage <= 3, "zero_stage ", plan.zero_stage);
  SLUICE_CHECK(!is_layer_by_layer() || plan.zero_stage >= 2, "order layer_by_layer with zero_stage ", plan.zero_stage,
               ": uses of a tied parameter would be added up in another order than micro-batch by micro-batch");
  check_homes();
  SLUICE_CHECK(plan.micro_batch > 0 && plan.accumulation > 0 && in.ranks > 0 && in.sequence_length > 0, "empty batch");
  shape = {kind == GraphKind::kGenerate ? 1 : plan.micro_batch, in.sequence_length};
  accumulation = kind == GraphKind::kStep ? static_cast<int>(plan.accumulation) : 1;
  for (const auto& s : model.segments) {
    std::vector<int> runs, trained;
    for (const int param : s->params()) {
      const int run_of_param = layout.place(param).run;
      if (std::find(runs.begin(), runs.end(), run_of_param) == runs.end()) runs.push_back(run_of_param);
      if (trains(param) && std::find(trained.begin(), trained.end(), run_of_param) == trained.end()) trained.push_back(run_of_param);
    }
    runs_of.push_back(std::move(runs));
    trained_runs_of.push_back(std::move(trained));
  }
  list_items(*this);
}

void BuildContext::check_homes() const {
  SLUICE_CHECK(plan.state_prefetch >= 0, "state_prefetch ", plan.state_prefetch);
  SLUICE_CHECK(plan.homes.empty() || plan.homes.size() == layout.chunks().size(), "plan.homes has ", plan.homes.size(), " entries for ",
               layout.chunks().size(), " chunks");
  for (std::size_t c = 0; c < plan.homes.size(); ++c) {
    const spec::ChunkHomes& homes = plan.homes[c];
    const auto words = [&] {
      return cat("chunk ", c, " with working ", name_of(homes.working), ", gradient ", name_of(homes.gradient), ", states ",
                 name_of(homes.states), " and zero_stage ", plan.zero_stage);
    };
    SLUICE_CHECK(homes.working == Tier::kDevice || plan.zero_stage == 3, words(), ": working leaves the device with zero_stage 3 only");
    if (!layout.trains(layout.chunks()[c])) continue;
    SLUICE_CHECK(homes.working <= homes.states && homes.gradient <= homes.states, words(), ": states stand in the slowest tier");
    SLUICE_CHECK(homes.gradient != Tier::kDisk || plan.update_mode != UpdateMode::kInBackward, words(),
                 ": update mode in_backward uses up a gradient before it would get to disk");
    SLUICE_CHECK(homes.gradient == Tier::kDevice || plan.zero_stage >= 2, words(),
                 ": a gradient leaves the device with zero_stage 2 and 3 only");
  }
}

std::vector<std::int64_t> BuildContext::run_elements() const {
  std::vector<std::int64_t> elements;
  for (const chunks::Run& r : layout.runs()) elements.push_back(r.elements);
  return elements;
}

void BuildContext::add_control() {
  const auto control = [this](Control which, std::int64_t bytes) {
    return persistent(BufferTag::kControl, Tier::kHost, static_cast<std::int32_t>(which), bytes);
  };
  local_counts = control(Control::kLocalCounts, sizeof(Counts));
  global_counts = control(Control::kGlobalCounts, sizeof(Counts));
  loss = control(Control::kLoss, static_cast<std::int64_t>(sizeof(double)) * plan.accumulation);
  norm = control(Control::kNorm, sizeof(ops::NormAccumulator));
  report = control(Control::kReport, sizeof(Report));
  logits = control(Control::kLogits, model.spec.vocab * kFloat);
}

StepGraph build(GraphKind kind, const BuildInputs& inputs) {
  return Build(kind, inputs).finish();
}

SetBytes bytes_of_set(const StepGraph& step, const BuildInputs& inputs) {
  SetBytes bytes{step.arena_bytes, step.bookkeeping_bytes()};
  for (const GraphKind kind : {GraphKind::kEvaluate, GraphKind::kFlush, GraphKind::kSave}) {
    const StepGraph other = build(kind, inputs);
    for (std::size_t t = 0; t < bytes.arenas.size(); ++t) bytes.arenas[t] = std::max(bytes.arenas[t], other.arena_bytes[t]);
    const int alike = kind == GraphKind::kEvaluate ? 2 : 1;  // generating has evaluation's tasks
    bytes.bookkeeping += alike * other.bookkeeping_bytes();
  }
  return bytes;
}

std::int64_t minimum_rcache_elements(const BuildInputs& inputs) {
  const BuildContext context(GraphKind::kStep, inputs);
  return chunks::minimum_capacity(context.item_runs, context.run_elements(), context.prefetch_items());
}

int first_trained_segment(const model::Model& model, const optim::Grouping& grouping) {
  const auto trains = [&](int param) { return grouping.trains(param); };
  const auto first = std::find_if(model.segments.begin(), model.segments.end(), [&](const auto& segment) {
    return std::any_of(segment->params().begin(), segment->params().end(), trains);
  });
  return static_cast<int>(first - model.segments.begin());
}

std::int64_t token_bytes(std::int64_t rows, std::int64_t sequence_length, bool document_attention) {
  const std::int64_t values = document_attention ? 3 : 2;
  return rows * sequence_length * values * static_cast<std::int64_t>(sizeof(std::int32_t)) +
         rows * static_cast<std::int64_t>(sizeof(std::int64_t));
}

}  // namespace sluice::schedule
