#include "schedule/build.hpp"

#include <algorithm>
#include <limits>

#include "base/check.hpp"
#include "base/units.hpp"
#include "chunks/residency.hpp"
#include "schedule/control.hpp"
#include "schedule/place.hpp"
#include "schedule/staging.hpp"

namespace sluice::schedule {
namespace {

using chunks::Plane;
using model::Phase;
using spec::Tier;
using spec::UpdateMode;

constexpr std::int64_t kFloat = sizeof(float);
// How many compute tasks run on after an agree was posted before they wait for it: hides its latency.
constexpr int kAgreeSlack = 2;

/// One compute task to be emitted.
struct Item {
  int segment;
  int micro;
  Phase phase;
};

class Build {
 public:
  Build(GraphKind kind, const BuildInputs& inputs)
      : in_(inputs),
        plan_(inputs.plan),
        model_(*inputs.model),
        layout_(*inputs.layout),
        builder_(kind),
        kind_(kind),
        first_trained_(first_trained_segment(model_, layout_.grouping())) {
    SLUICE_CHECK(plan_.activations.size() == model_.segments.size(), "plan.activations has ", plan_.activations.size(), " entries for ",
                 model_.segments.size(), " segments");
    SLUICE_CHECK(!(plan_.update_mode == UpdateMode::kInBackward && in_.needs_norm),
                 "update mode in_backward can't clip or look for overflows: the global norm isn't known");
    SLUICE_CHECK(plan_.zero_stage >= 0 && plan_.zero_stage <= 3, "zero_stage ", plan_.zero_stage);
    SLUICE_CHECK(plan_.micro_batch > 0 && plan_.accumulation > 0 && in_.ranks > 0 && in_.sequence_length > 0, "empty batch");
    shape_ = {kind == GraphKind::kGenerate ? 1 : plan_.micro_batch, in_.sequence_length};
    accumulation_ = kind == GraphKind::kStep ? static_cast<int>(plan_.accumulation) : 1;
    for (const auto& segment : model_.segments) {
      std::vector<int> runs, trained;
      for (const int param : segment->params()) {
        const int run = layout_.place(param).run;
        if (std::find(runs.begin(), runs.end(), run) == runs.end()) runs.push_back(run);
        if (trains(param) && std::find(trained.begin(), trained.end(), run) == trained.end()) trained.push_back(run);
      }
      runs_of_.push_back(std::move(runs));
      trained_runs_of_.push_back(std::move(trained));
    }
    list_items();
  }

  std::int64_t minimum_rcache() const { return chunks::minimum_capacity(item_runs_, run_elements(), plan_.prefetch_segments); }

  StepGraph finish() && {
    add_persistent();
    switch (kind_) {
      case GraphKind::kStep:
        emit_step();
        break;
      case GraphKind::kFlush:
        if (plan_.update_mode == UpdateMode::kNextForward) emit_updates_in_order();
        break;
      case GraphKind::kEvaluate:
      case GraphKind::kGenerate:
        emit_forward_only();
        break;
      case GraphKind::kSave:
        emit_save();
        break;
    }
    StepGraph graph = std::move(builder_).finish();
    // Where gathers are issued ahead, reductions may lag behind: one compute task is enough to keep both lanes busy.
    place(graph, std::min(1, plan_.prefetch_segments));
    return graph;
  }

 private:
  bool trains(int param) const { return layout_.grouping().trains(param); }
  bool gathers_working() const { return plan_.zero_stage == 3; }
  int segments() const { return static_cast<int>(model_.segments.size()); }
  const model::Segment& segment(int s) const { return *model_.segments[static_cast<std::size_t>(s)]; }
  bool recomputes(int s) const { return plan_.recomputes(static_cast<std::size_t>(s)) && segment(s).has_phase(Phase::kRecompute); }
  std::vector<std::int64_t> run_elements() const {
    std::vector<std::int64_t> elements;
    for (const chunks::Run& run : layout_.runs()) elements.push_back(run.elements);
    return elements;
  }

  void list_items() {
    const int last = segments() - 1;
    for (int m = 0; m < accumulation_; ++m) {
      for (int s = 0; s < last; ++s) items_.push_back({s, m, Phase::kForward});
      if (kind_ == GraphKind::kStep) {
        items_.push_back({last, m, Phase::kForwardBackward});
        for (int s = last - 1; s >= first_trained_; --s) {  // nobody wants a gradient from before
          if (recomputes(s)) items_.push_back({s, m, Phase::kRecompute});
          items_.push_back({s, m, Phase::kBackward});
        }
      } else {
        items_.push_back({last, m, kind_ == GraphKind::kGenerate ? Phase::kLogits : Phase::kForward});
      }
    }
    for (const Item& item : items_) item_runs_.push_back(runs_of_[static_cast<std::size_t>(item.segment)]);
  }

  BufferId persistent(BufferTag tag, Tier tier, std::int32_t index, std::int64_t bytes) {
    return builder_.add_buffer({.tag = tag, .tier = tier, .persistent = true, .index = index, .bytes = bytes});
  }

  /// A plane that a rank holds whole has a buffer a run, one that is sharded a buffer a chunk.
  struct PlaneBuffers {
    std::vector<BufferId> of_chunk;  // the buffer in which a chunk's plane stands
  };

  void add_persistent() {
    static constexpr std::array<BufferTag, chunks::kPlaneCount> kTags{BufferTag::kWorking, BufferTag::kGradient, BufferTag::kMaster,
                                                                      BufferTag::kMoments, BufferTag::kMoments};
    for (int p = 0; p < chunks::kPlaneCount; ++p) {
      const auto plane = static_cast<Plane>(p);
      const std::int64_t element = layout_.element_bytes(plane);
      PlaneBuffers& buffers = planes_[static_cast<std::size_t>(p)];
      buffers.of_chunk.resize(layout_.chunks().size(), kNone);
      for (std::size_t r = 0; r < layout_.runs().size(); ++r) {
        const chunks::Run& run = layout_.runs()[r];
        if (!layout_.has(plane, layout_.chunks()[static_cast<std::size_t>(run.first_chunk)])) continue;
        BufferId whole = kNone;
        if (!chunks::is_sharded(plane, plan_.zero_stage))
          whole = persistent(kTags[static_cast<std::size_t>(p)], Tier::kDevice, static_cast<std::int32_t>(r), run.elements * element);
        for (int c = run.first_chunk; c < run.first_chunk + run.chunk_count; ++c) {
          const std::int64_t shard = chunks::largest_shard(layout_.chunks()[static_cast<std::size_t>(c)].elements, in_.ranks);
          buffers.of_chunk[static_cast<std::size_t>(c)] =
              whole != kNone ? whole : persistent(kTags[static_cast<std::size_t>(p)], Tier::kDevice, c, shard * element);
        }
      }
    }
    const auto control = [&](Control which, std::int64_t bytes) {
      return persistent(BufferTag::kControl, Tier::kHost, static_cast<std::int32_t>(which), bytes);
    };
    local_counts_ = control(Control::kLocalCounts, sizeof(Counts));
    global_counts_ = control(Control::kGlobalCounts, sizeof(Counts));
    loss_ = control(Control::kLoss, static_cast<std::int64_t>(sizeof(double)) * plan_.accumulation);
    norm_ = control(Control::kNorm, sizeof(ops::NormAccumulator));
    report_ = control(Control::kReport, sizeof(Report));
    logits_ = control(Control::kLogits, model_.spec.vocab * kFloat);
  }

  BufferId transient(BufferTag tag, Tier tier, std::int32_t index, std::int32_t micro, std::int64_t bytes) {
    return builder_.add_buffer({.tag = tag, .tier = tier, .persistent = false, .index = index, .micro = micro, .bytes = bytes});
  }
  BufferId plane(Plane which, int chunk) const {
    return planes_[static_cast<std::size_t>(which)].of_chunk[static_cast<std::size_t>(chunk)];
  }

  void emit_load() {
    tokens_ = transient(BufferTag::kTokens, Tier::kHost, -1, -1, token_bytes(shape_.rows, shape_.sequence) * accumulation_);
    builder_.add_task({.kind = TaskKind::kLoad, .lane = Lane::kHostCompute},
                      std::array<Use, 2>{{{tokens_, Access::kWrite, Role::kTokens}, {local_counts_, Access::kWrite, Role::kValidCount}}});
  }

  TaskId emit_agree(AgreeRole role, bool can_cancel, int micro) {
    const Task task{.kind = TaskKind::kAgree, .lane = Lane::kMeshComm, .agree_role = role, .can_cancel = can_cancel, .micro = micro};
    if (role != AgreeRole::kStart) return builder_.add_task(task, {});
    return builder_.add_task(
        task, std::array<Use, 2>{{{local_counts_, Access::kRead, Role::kSource}, {global_counts_, Access::kWrite, Role::kValidCount}}});
  }

  void emit_report(bool with_norm) {
    std::vector<Use> uses{
        {loss_, Access::kRead, Role::kLoss}, {local_counts_, Access::kRead, Role::kValidCount}, {report_, Access::kWrite, Role::kReport}};
    if (with_norm) uses.push_back({norm_, Access::kRead, Role::kSource});
    builder_.add_task({.kind = TaskKind::kNorm, .lane = Lane::kMeshComm}, uses);
  }

  void emit_norm_of_chunks() {
    bool first = true;
    for (const int c : trained_chunks()) {
      builder_.add_task({.kind = TaskKind::kNorm, .lane = Lane::kCompute, .plane = Plane::kGradient, .chunk = c},
                        std::array<Use, 2>{{{plane(Plane::kGradient, c), Access::kRead, Role::kSource},
                                            {norm_, first ? Access::kWrite : Access::kReadWrite, Role::kTarget}}});
      first = false;
    }
  }

  std::vector<int> trained_chunks() const {
    std::vector<int> list;
    for (int c = 0; c < static_cast<int>(layout_.chunks().size()); ++c) {
      if (layout_.trains(layout_.chunks()[static_cast<std::size_t>(c)])) list.push_back(c);
    }
    return list;
  }

  /// The optimizer on a chunk, and what makes its new working parameters whole again where every rank holds them whole.
  void emit_update(int chunk) {
    std::vector<Use> uses{{plane(layout_.master(), chunk), Access::kReadWrite, Role::kParam},
                          {plane(Plane::kGradient, chunk), Access::kRead, Role::kParamGrad}};
    const int moments = layout_.grouping().moments;
    if (moments >= 1) uses.push_back({plane(Plane::kMoment1, chunk), Access::kReadWrite, Role::kMoment1});
    if (moments >= 2) uses.push_back({plane(Plane::kMoment2, chunk), Access::kReadWrite, Role::kMoment2});
    // A rank writes its own part only, so what stands beside it stays.
    if (layout_.has_master()) uses.push_back({plane(Plane::kWorking, chunk), Access::kReadWrite, Role::kTarget});
    if (plan_.update_mode != UpdateMode::kInBackward) {
      uses.push_back({report_, Access::kRead, Role::kReport});
    } else {
      uses.push_back({global_counts_, Access::kRead, Role::kValidCount});
    }
    builder_.add_task({.kind = TaskKind::kUpdate, .lane = Lane::kCompute, .chunk = chunk}, uses);
    if (plan_.zero_stage == 1 || plan_.zero_stage == 2) {
      builder_.add_task({.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .plane = Plane::kWorking, .chunk = chunk},
                        std::array<Use, 1>{{{plane(Plane::kWorking, chunk), Access::kReadWrite, Role::kTarget}}});
    }
  }

  void emit_update_of_run(int run) {
    const chunks::Run& r = layout_.runs()[static_cast<std::size_t>(run)];
    if (!layout_.trains(r)) return;
    for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) emit_update(c);
  }

  void emit_updates_in_order() {
    for (const int c : trained_chunks()) emit_update(c);
  }

  /// Gradients of a run are complete for this micro-batch: reduce them to their owners.
  void emit_scatter_of_run(int run, int micro) {
    const chunks::Run& r = layout_.runs()[static_cast<std::size_t>(run)];
    for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
      const Task task{.kind = TaskKind::kScatter,
                      .lane = Lane::kScatterComm,
                      .plane = Plane::kGradient,
                      .accumulate = plan_.zero_stage >= 2 && micro > 0,
                      .chunk = c,
                      .micro = micro};
      const BufferId target = plane(Plane::kGradient, c);
      if (plan_.zero_stage >= 2) {
        builder_.add_task(task, std::array<Use, 2>{{{gradient_of_[static_cast<std::size_t>(run)], Access::kRead, Role::kSource},
                                                    {target, micro > 0 ? Access::kReadWrite : Access::kWrite, Role::kTarget}}});
        continue;
      }
      builder_.add_task(task, std::array<Use, 1>{{{target, Access::kReadWrite, Role::kTarget}}});
      if (plan_.zero_stage == 0) {  // every rank updates everything: the reduced slices go back to all
        builder_.add_task({.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .plane = Plane::kGradient, .chunk = c, .micro = micro},
                          std::array<Use, 1>{{{target, Access::kReadWrite, Role::kTarget}}});
      }
    }
  }

  /// Gathers whose time has come before item `at`, and with next_forward the updates that must come before them.
  void emit_before_item(int at) {
    if (plan_.update_mode == UpdateMode::kNextForward && kind_ == GraphKind::kStep) {
      for (; next_update_ < update_order_.size() && update_order_[next_update_].first <= at; ++next_update_)
        emit_update_of_run(update_order_[next_update_].second);
    }
    for (; next_stay_ < stays_.size() && stays_[next_stay_].gather_at <= at; ++next_stay_) {
      const int run = stays_[next_stay_].run;
      const chunks::Run& r = layout_.runs()[static_cast<std::size_t>(run)];
      const BufferId region = transient(BufferTag::kGathered, Tier::kDevice, run, -1, r.elements * layout_.element_bytes(Plane::kWorking));
      gathered_[static_cast<std::size_t>(run)] = region;
      for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
        builder_.add_task(
            {.kind = TaskKind::kGather,
             .lane = Lane::kGatherComm,
             .plane = Plane::kWorking,
             .chunk = c,
             .micro = items_[static_cast<std::size_t>(at)].micro},
            std::array<Use, 2>{{{plane(Plane::kWorking, c), Access::kRead, Role::kSource}, {region, Access::kWrite, Role::kTarget}}});
      }
    }
  }

  void plan_gathers() {
    gathered_.assign(layout_.runs().size(), kNone);
    if (gathers_working()) stays_ = chunks::plan_residency(item_runs_, run_elements(), plan_.rcache_elements, plan_.prefetch_segments);
    // A stay may end and the next one of the same run begin: compute tasks use the stay that covers them, and since a later
    // stay is gathered after the last use of the one before, the latest gathered is always the right one.
    std::vector<bool> seen(layout_.runs().size(), false);
    if (gathers_working()) {
      for (const chunks::Residency& stay : stays_) {
        if (!seen[static_cast<std::size_t>(stay.run)]) update_order_.emplace_back(stay.gather_at, stay.run);
        seen[static_cast<std::size_t>(stay.run)] = true;
      }
    } else {
      for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
        for (const int run : item_runs_[static_cast<std::size_t>(i)]) {
          if (!seen[static_cast<std::size_t>(run)]) update_order_.emplace_back(std::max(0, i - plan_.prefetch_segments), run);
          seen[static_cast<std::size_t>(run)] = true;
        }
      }
    }
    std::stable_sort(update_order_.begin(), update_order_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  void emit_item(const Item& item) {
    const auto s = static_cast<std::size_t>(item.segment);
    const model::Segment& seg = segment(item.segment);
    const bool head = item.segment == segments() - 1;
    const bool embeds = item.segment == 0;
    const bool backward = item.phase == Phase::kBackward || item.phase == Phase::kForwardBackward;
    const DType storage = layout_.storage();
    const std::int64_t activation_bytes = stored_activation_bytes(model_, shape_, storage);
    // Staged tensors need no buffer of their own where nobody reads them after this task.
    const bool is_read = kind_ == GraphKind::kStep && !recomputes(item.segment) && item.segment >= first_trained_;
    const bool stores_saved = storage == DType::kF32 || item.phase != Phase::kForward || is_read;
    std::vector<Use> uses;
    // Parameters first, in the segment's order, then the gradients of those that are trained in the same order.
    for (const int param : seg.params()) {
      const int run = layout_.place(param).run;
      const BufferId buffer = gathers_working() ? gathered_[static_cast<std::size_t>(run)]
                                                : plane(Plane::kWorking, layout_.runs()[static_cast<std::size_t>(run)].first_chunk);
      uses.push_back({buffer, Access::kRead, Role::kParam});
    }
    if (backward) {
      for (const int param : seg.params()) {
        if (trains(param)) uses.push_back(gradient_use(layout_.place(param).run, item.micro));
      }
    }
    uses.push_back({tokens_, Access::kRead, Role::kTokens});  // ids, targets, or the sample ids of dropout
    if (!embeds) uses.push_back({activation_[s - 1], Access::kRead, Role::kInput});
    if (!head && item.phase == Phase::kForward) {
      activation_[s] = transient(BufferTag::kActivation, Tier::kDevice, item.segment, item.micro, activation_bytes);
      uses.push_back({activation_[s], Access::kWrite, Role::kOutput});
    }
    if (const std::int64_t bytes = stores_saved ? stored_saved_bytes(seg, shape_, storage) : 0; bytes > 0) {
      // Where the saved tensors are dropped after forward, forward writes them to a buffer that dies with it.
      if (item.phase == Phase::kForward || item.phase == Phase::kRecompute) {
        saved_[s] = transient(BufferTag::kSaved, Tier::kDevice, item.segment, item.micro, bytes);
        uses.push_back({saved_[s], Access::kWrite, Role::kSaved});
      } else if (item.phase == Phase::kBackward) {
        uses.push_back({saved_[s], Access::kRead, Role::kSaved});
      } else {
        uses.push_back({transient(BufferTag::kSaved, Tier::kDevice, item.segment, item.micro, bytes), Access::kWrite, Role::kSaved});
      }
    }
    if (item.phase == Phase::kForwardBackward) {
      gradient_of_activation_ = transient(BufferTag::kActivationGradient, Tier::kDevice, item.segment, item.micro, activation_bytes);
      uses.push_back({gradient_of_activation_, Access::kWrite, Role::kGradientInOut});
    } else if (item.phase == Phase::kBackward) {
      uses.push_back({gradient_of_activation_, Access::kReadWrite, Role::kGradientInOut});
    }
    if (const std::int64_t bytes = seg.workspace_bytes(item.phase, shape_, plan_.threads); bytes > 0) {
      uses.push_back({transient(BufferTag::kWorkspace, Tier::kDevice, item.segment, item.micro, bytes), Access::kWrite, Role::kWorkspace});
    }
    if (const std::int64_t bytes = make_staging(model_, seg, item.phase, shape_, storage, stores_saved).bytes; bytes > 0) {
      uses.push_back({transient(BufferTag::kWorkspace, Tier::kDevice, item.segment, item.micro, bytes), Access::kWrite, Role::kStaging});
    }
    if (head && item.phase != Phase::kLogits) {
      if (kind_ == GraphKind::kStep) uses.push_back({global_counts_, Access::kRead, Role::kValidCount});
      // Each micro-batch writes its own number of the array; they are ordered by the compute lane.
      uses.push_back({loss_, item.micro == 0 ? Access::kWrite : Access::kReadWrite, Role::kLoss});
    }
    if (item.phase == Phase::kLogits) uses.push_back({logits_, Access::kWrite, Role::kLogits});
    builder_.add_task(
        {.kind = TaskKind::kCompute, .lane = Lane::kCompute, .phase = item.phase, .segment = item.segment, .micro = item.micro}, uses);
  }

  Use gradient_use(int run, int micro) {
    const auto r = static_cast<std::size_t>(run);
    if (plan_.zero_stage < 2) {
      gradient_of_[r] = plane(Plane::kGradient, layout_.runs()[r].first_chunk);
      const bool first = !touched_[r];
      touched_[r] = true;
      return {gradient_of_[r], micro == 0 && first ? Access::kWrite : Access::kReadWrite, Role::kParamGrad};
    }
    const bool first = !touched_[r];
    if (first) gradient_of_[r] = transient(BufferTag::kMicroGradient, Tier::kDevice, run, micro, layout_.runs()[r].elements * kFloat);
    touched_[r] = true;
    return {gradient_of_[r], first ? Access::kWrite : Access::kReadWrite, Role::kParamGrad};
  }

  void emit_step() {
    plan_gathers();
    activation_.assign(model_.segments.size(), kNone);
    saved_.assign(model_.segments.size(), kNone);
    gradient_of_.assign(layout_.runs().size(), kNone);
    const bool next_forward = plan_.update_mode == UpdateMode::kNextForward;
    const bool in_backward = plan_.update_mode == UpdateMode::kInBackward;
    emit_load();
    // With next_forward the state is unclean until the last update of the step before, so nothing before it may cancel.
    builder_.govern_by(emit_agree(AgreeRole::kStart, !next_forward, -1));
    TaskId pending_agree = kNone;
    int slack = 0;
    bool updates_begun = false;
    std::vector<std::pair<int, int>> updates_due;  // in_backward: (item after which, run)
    std::size_t next_due = 0;
    int since_agree = 0;
    std::vector<int> uses_left(layout_.runs().size(), 0);
    for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
      const Item& item = items_[static_cast<std::size_t>(i)];
      const bool last_micro = item.micro == accumulation_ - 1;
      if (item.segment == 0 && item.phase == Phase::kForward) {  // a micro-batch begins
        touched_.assign(layout_.runs().size(), false);
        std::fill(uses_left.begin(), uses_left.end(), 0);
        for (const std::vector<int>& runs : trained_runs_of_) {
          for (const int run : runs) ++uses_left[static_cast<std::size_t>(run)];
        }
      }
      emit_before_item(i);
      emit_item(item);
      ++since_agree;
      if (pending_agree != kNone && --slack <= 0) {
        builder_.govern_by(pending_agree);
        pending_agree = kNone;
      }
      const bool micro_batch_ends = i + 1 == static_cast<int>(items_.size()) || items_[static_cast<std::size_t>(i) + 1].micro != item.micro;
      if (item.phase == Phase::kBackward || item.phase == Phase::kForwardBackward) {
        for (const int run : trained_runs_of_[static_cast<std::size_t>(item.segment)]) {
          if (--uses_left[static_cast<std::size_t>(run)] > 0) continue;
          // ZeRO 0 and 1 add up micro-batches first and meet once; 2 and 3 meet after every micro-batch.
          if (plan_.zero_stage >= 2 || last_micro) emit_scatter_of_run(run, item.micro);
          if (in_backward && last_micro) updates_due.emplace_back(i + std::max(1, plan_.prefetch_segments), run);
        }
      }
      if (in_backward && next_due < updates_due.size() && updates_due[next_due].first <= i) {
        if (!updates_begun) builder_.govern_by(emit_agree(AgreeRole::kBeforeUpdate, true, item.micro));
        pending_agree = kNone;
        updates_begun = true;
        for (; next_due < updates_due.size() && updates_due[next_due].first <= i; ++next_due)
          emit_update_of_run(updates_due[next_due].second);
      }
      const bool state_is_clean = !updates_begun && (!next_forward || next_update_ == update_order_.size());
      const bool long_since = in_.segments_between_agrees > 0 && since_agree >= in_.segments_between_agrees;
      if (pending_agree == kNone && ((micro_batch_ends && !last_micro) || long_since)) {
        pending_agree = emit_agree(AgreeRole::kMicroBatch, state_is_clean, item.micro);
        slack = kAgreeSlack;
        since_agree = 0;
      }
    }
    if (in_backward) {
      if (!updates_begun) builder_.govern_by(emit_agree(AgreeRole::kBeforeUpdate, true, accumulation_ - 1));
      for (; next_due < updates_due.size(); ++next_due) emit_update_of_run(updates_due[next_due].second);
    } else {
      // With next_forward nothing is left to drop: the update of this step belongs to the next graph.
      builder_.govern_by(emit_agree(AgreeRole::kBeforeUpdate, !next_forward, accumulation_ - 1));
    }
    emit_norm_of_chunks();
    emit_report(true);
    if (plan_.update_mode == UpdateMode::kAtEnd) emit_updates_in_order();
  }

  void emit_forward_only() {
    plan_gathers();
    activation_.assign(model_.segments.size(), kNone);
    saved_.assign(model_.segments.size(), kNone);
    emit_load();
    for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
      emit_before_item(i);
      emit_item(items_[static_cast<std::size_t>(i)]);
    }
    if (kind_ == GraphKind::kEvaluate) emit_report(false);
  }

  void emit_save() {
    for (const Plane p : {Plane::kWorking, Plane::kMaster, Plane::kMoment1, Plane::kMoment2}) {
      for (int c = 0; c < static_cast<int>(layout_.chunks().size()); ++c) {
        const chunks::Chunk& chunk = layout_.chunks()[static_cast<std::size_t>(c)];
        const bool is_copy = p == Plane::kWorking && layout_.has(Plane::kMaster, chunk);
        if (is_copy || !layout_.has(p, chunk)) continue;
        builder_.add_task({.kind = TaskKind::kForeign, .lane = Lane::kDiskWrite, .plane = p, .chunk = c},
                          std::array<Use, 1>{{{plane(p, c), Access::kRead, Role::kSource}}});
      }
    }
  }

  const BuildInputs& in_;
  const spec::Plan& plan_;
  const model::Model& model_;
  const chunks::ChunkLayout& layout_;
  GraphBuilder builder_;
  GraphKind kind_;
  int first_trained_;  // segment: those before it have no backward
  model::Shape shape_;
  int accumulation_ = 1;
  std::vector<std::vector<int>> runs_of_;          // per segment, distinct
  std::vector<std::vector<int>> trained_runs_of_;  // those of them that are trained
  std::vector<Item> items_;
  std::vector<std::vector<int>> item_runs_;
  std::array<PlaneBuffers, chunks::kPlaneCount> planes_;
  BufferId local_counts_ = kNone, global_counts_ = kNone, loss_ = kNone, norm_ = kNone, report_ = kNone, logits_ = kNone, tokens_ = kNone;
  std::vector<BufferId> activation_, saved_;  // per segment, of the current micro-batch
  std::vector<BufferId> gathered_;            // per run: its latest stay
  std::vector<BufferId> gradient_of_;         // per run: where this micro-batch's gradient goes
  std::vector<bool> touched_;                 // per run: this micro-batch wrote to it
  BufferId gradient_of_activation_ = kNone;
  std::vector<chunks::Residency> stays_;
  std::size_t next_stay_ = 0;
  std::vector<std::pair<int, int>> update_order_;  // (before item, run)
  std::size_t next_update_ = 0;
};

}  // namespace

StepGraph build(GraphKind kind, const BuildInputs& inputs) {
  return Build(kind, inputs).finish();
}

std::int64_t minimum_rcache_elements(const BuildInputs& inputs) {
  return Build(GraphKind::kStep, inputs).minimum_rcache();
}

int first_trained_segment(const model::Model& model, const optim::Grouping& grouping) {
  const auto trains = [&](int param) { return grouping.trains(param); };
  const auto first = std::find_if(model.segments.begin(), model.segments.end(), [&](const auto& segment) {
    return std::any_of(segment->params().begin(), segment->params().end(), trains);
  });
  return static_cast<int>(first - model.segments.begin());
}

std::int64_t token_bytes(std::int64_t rows, std::int64_t sequence_length) {
  return rows * sequence_length * 2 * static_cast<std::int64_t>(sizeof(std::int32_t)) +
         rows * static_cast<std::int64_t>(sizeof(std::int64_t));
}

}  // namespace sluice::schedule
