#include "schedule/state_tasks.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"
#include "schedule/place.hpp"

namespace sluice::schedule {
namespace {

using chunks::Plane;
using spec::Tier;
using spec::UpdateMode;

constexpr std::array<Plane, chunks::kPlaneCount> kPlanes{Plane::kWorking, Plane::kGradient, Plane::kMaster, Plane::kMoment1,
                                                         Plane::kMoment2};

BufferTag tag_of(Plane plane) {
  switch (plane) {
    case Plane::kWorking:
      return BufferTag::kWorking;
    case Plane::kGradient:
      return BufferTag::kGradient;
    case Plane::kMaster:
      return BufferTag::kMaster;
    case Plane::kMoment1:
    case Plane::kMoment2:
      break;
  }
  return BufferTag::kMoments;
}

Lane lane_between(Tier from, Tier to) {
  if (from == Tier::kDevice && to == Tier::kHost) return Lane::kDownload;
  if (from == Tier::kHost && to == Tier::kDevice) return Lane::kUpload;
  if (from == Tier::kDisk && to == Tier::kHost) return Lane::kDiskRead;
  SLUICE_CHECK(from == Tier::kHost && to == Tier::kDisk, "no lane from ", name_of(from), " to ", name_of(to));
  return Lane::kDiskWrite;
}

Use from(BufferId buffer) {
  return {buffer, Access::kRead, Role::kSource};
}
Use to(BufferId buffer, Access access = Access::kWrite) {
  return {buffer, access, Role::kTarget};
}

}  // namespace

StateTasks::StateTasks(BuildContext& context)
    : context_(context),
      gathered_(context.layout.runs().size(), kNone),
      updated_(context.layout.chunks().size(), kNone),
      sums_(context.layout.chunks().size(), kNone),
      is_reduced_(context.layout.chunks().size(), false),
      wants_gradient_(context.layout.chunks().size(), false) {
  const chunks::ChunkLayout& layout = context.layout;
  operands_ = {{layout.master(), Role::kParam, true, true}, {Plane::kGradient, Role::kParamGrad, true, false}};
  if (layout.grouping().moments >= 1) operands_.push_back({Plane::kMoment1, Role::kMoment1, true, true});
  if (layout.grouping().moments >= 2) operands_.push_back({Plane::kMoment2, Role::kMoment2, true, true});
  if (layout.has_master()) operands_.push_back({Plane::kWorking, Role::kTarget, false, true});
  for (const Plane plane : kPlanes) {
    planes_[static_cast<std::size_t>(plane)].resize(layout.chunks().size(), kNone);
    staged_[static_cast<std::size_t>(plane)].resize(layout.chunks().size(), kNone);
    if (plane != Plane::kGradient || keeps_gradients()) add_plane(plane);
  }
}

/// Between graphs: with in_backward a gradient is used up in the step that made it, so it has bytes only from its first part to its update.
bool StateTasks::keeps_gradients() const {
  return context_.plan.update_mode != UpdateMode::kInBackward;
}

void StateTasks::add_plane(Plane plane) {
  const bool is_whole = !chunks::is_sharded(plane, context_.plan.zero_stage);
  for (std::size_t r = 0; r < context_.layout.runs().size(); ++r) {
    const chunks::Run& run = context_.layout.runs()[r];
    if (!context_.layout.has(plane, context_.chunk(run.first_chunk))) continue;
    BufferId whole = kNone;
    for (int c = run.first_chunk; c < run.first_chunk + run.chunk_count; ++c) {
      const bool is_in_whole = is_whole && home(plane, c) == Tier::kDevice;
      if (is_in_whole && whole == kNone)
        whole = add_buffer(plane, Tier::kDevice, static_cast<std::int32_t>(r), run.elements * context_.layout.element_bytes(plane));
      planes_[static_cast<std::size_t>(plane)][static_cast<std::size_t>(c)] = is_in_whole ? whole : add_part(plane, c);
    }
  }
}

Tier StateTasks::home(Plane plane, int chunk) const {
  const spec::ChunkHomes homes = context_.plan.home(static_cast<std::size_t>(chunk));
  if (plane == Plane::kWorking) return homes.working;
  return plane == Plane::kGradient ? homes.gradient : homes.states;
}

Tier StateTasks::updates_in(int chunk) const {
  return context_.plan.home(static_cast<std::size_t>(chunk)).states == Tier::kDevice ? Tier::kDevice : Tier::kHost;
}

std::int64_t StateTasks::part_bytes(Plane plane, int chunk) const {
  const std::int64_t elements = context_.chunk(chunk).elements;
  return (context_.plan.zero_stage == 0 ? elements : chunks::largest_shard(elements, context_.in.ranks)) *
         context_.layout.element_bytes(plane);
}

BufferId StateTasks::add_buffer(Plane plane, Tier tier, std::int32_t index, std::int64_t bytes) {
  if (plane == Plane::kGradient && !keeps_gradients()) return context_.transient(tag_of(plane), tier, index, -1, bytes);
  return context_.persistent(tag_of(plane), tier, index, bytes);
}

BufferId StateTasks::add_part(Plane plane, int chunk) {
  const Tier tier = home(plane, chunk);
  const std::int64_t bytes = part_bytes(plane, chunk);
  if (tier != Tier::kDisk) return add_buffer(plane, tier, chunk, bytes);
  const std::int64_t padded = round_up(bytes, kDiskAlignment);
  // The last step's states stay whole on disk while new ones are written beside them. Gradients are of their step alone, and nothing
  // writes frozen parameters.
  const bool is_updated = plane != Plane::kGradient && context_.layout.trains(context_.chunk(chunk));
  return is_updated ? context_.persistent_halves(tag_of(plane), chunk, padded) : add_buffer(plane, tier, chunk, padded);
}

/// A transient buffer for this rank's part of a chunk's plane.
BufferId StateTasks::stage(Plane plane, int chunk, Tier tier, bool through_disk) {
  const std::int64_t bytes = part_bytes(plane, chunk);
  return context_.transient(tag_of(plane), tier, chunk, -1, through_disk ? round_up(bytes, kDiskAlignment) : bytes);
}

BufferId StateTasks::parameters(int run) const {
  return context_.gathers_working() ? gathered_[static_cast<std::size_t>(run)] : plane(Plane::kWorking, context_.run(run).first_chunk);
}

// --- moves ----------------------------------------------------------------------------------------------------------------

/// Whether an update changes anything: with in_backward the report isn't there yet.
Use StateTasks::condition() const {
  if (context_.plan.update_mode != UpdateMode::kInBackward) return {context_.report, Access::kRead, Role::kReport};
  return {context_.global_counts, Access::kRead, Role::kValidCount};
}

/// `move`: what of which chunk. `uses`: from, to and, after an update, its condition: where it does nothing, nothing is moved.
void StateTasks::emit_move(Task move, std::span<const Use> uses) {
  const std::vector<Buffer>& buffers = context_.builder.graph().buffers;
  move.kind = TaskKind::kMove;
  move.lane = lane_between(buffers[uses[0].buffer].tier, buffers[uses[1].buffer].tier);
  context_.builder.add_task(move, uses);
}

// --- gathers --------------------------------------------------------------------------------------------------------------

void StateTasks::plan_ahead() {
  const bool is_flush = context_.kind == GraphKind::kFlush;
  if (context_.kind == GraphKind::kStep && !keeps_gradients()) add_plane(Plane::kGradient);
  if (context_.gathers_working() && !is_flush) plan_gathers();
  if (context_.kind == GraphKind::kStep || is_flush) plan_updates();
}

/// A stay may end and the next one of the same run begin: compute tasks use the stay that covers them, and since a later stay is
/// gathered after the last use of the one before, the latest gathered is always the right one.
void StateTasks::plan_gathers() {
  stays_ = chunks::plan_residency(context_.item_runs, context_.run_elements(), context_.plan.rcache_elements, context_.prefetch_items());
}

void StateTasks::emit_before_item(int at) {
  const bool steps = context_.kind == GraphKind::kStep;
  if (steps && context_.plan.update_mode == UpdateMode::kNextForward) emit_updates_due(at);
  if (steps && context_.plan.update_mode == UpdateMode::kInBackward && at == first_reduced_at_) emit_first_moves_in();
  for (; next_read_ < stays_.size() && read_at(stays_[next_read_]) <= at; ++next_read_) emit_reads_of_stay(stays_[next_read_]);
  for (; next_stay_ < stays_.size() && stays_[next_stay_].gather_at <= at; ++next_stay_)
    emit_gather_of_stay(stays_[next_stay_], context_.items[static_cast<std::size_t>(at)].micro);
}

bool StateTasks::reads_from_disk(int run) const {
  const chunks::Run& r = context_.run(run);
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
    if (home(Plane::kWorking, c) == Tier::kDisk) return true;
  }
  return false;
}

/// The item before which what a stay brings is read where it stands on disk: as far ahead of the gather as that is of its use.
int StateTasks::read_at(const chunks::Residency& stay) const {
  return std::max(0, stay.gather_at - std::max(context_.items_of_segment(), context_.prefetch_items()));
}

/// With next_forward the first stay takes parameters from where their update has left them, on their way to the disk.
void StateTasks::emit_reads_of_stay(const chunks::Residency& stay) {
  const chunks::Run& r = context_.run(stay.run);
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
    if (home(Plane::kWorking, c) != Tier::kDisk) continue;
    if (const BufferId updated = std::exchange(updated_[static_cast<std::size_t>(c)], kNone); updated != kNone) {
      read_ahead_.push_back(updated);
      continue;
    }
    read_ahead_.push_back(stage(Plane::kWorking, c, Tier::kHost, true));
    emit_move({.plane = Plane::kWorking, .chunk = c}, std::array{from(plane(Plane::kWorking, c)), to(read_ahead_.back())});
  }
}

void StateTasks::emit_gather_of_stay(const chunks::Residency& stay, int micro) {
  const chunks::Run& r = context_.run(stay.run);
  const std::int64_t bytes = r.elements * context_.layout.element_bytes(Plane::kWorking);
  const BufferId region = context_.transient(BufferTag::kGathered, Tier::kDevice, stay.run, -1, bytes);
  gathered_[static_cast<std::size_t>(stay.run)] = region;
  // What doesn't stand on the device goes straight to its place in the region; before any gather, which would hold uploads back.
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
    if (home(Plane::kWorking, c) == Tier::kDevice) continue;
    BufferId source = plane(Plane::kWorking, c);
    if (home(Plane::kWorking, c) == Tier::kDisk) {
      source = read_ahead_.front();
      read_ahead_.pop_front();
    }
    emit_move({.plane = Plane::kWorking, .chunk = c, .micro = micro}, std::array{from(source), to(region)});
  }
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
    const Task task{.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .plane = Plane::kWorking, .chunk = c, .micro = micro};
    if (home(Plane::kWorking, c) == Tier::kDevice) {
      context_.builder.add_task(task, std::array{from(plane(Plane::kWorking, c)), to(region)});
    } else {
      context_.builder.add_task(task, std::array{to(region, Access::kReadWrite)});
    }
  }
}

// --- gradients ------------------------------------------------------------------------------------------------------------

void StateTasks::emit_scatter_of_run(int run, int micro, BufferId gradient) {
  const chunks::Run& r = context_.run(run);
  const int zero_stage = context_.plan.zero_stage;
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
    const bool leaves = home(Plane::kGradient, c) != Tier::kDevice;
    const Access adds = micro > 0 ? Access::kReadWrite : Access::kWrite;
    const Task task{.kind = TaskKind::kScatter,
                    .lane = Lane::kScatterComm,
                    .plane = Plane::kGradient,
                    .accumulate = zero_stage >= 2 && micro > 0 && !leaves,
                    .chunk = c,
                    .micro = micro};
    const BufferId target = plane(Plane::kGradient, c);
    if (home(Plane::kGradient, c) == Tier::kDisk) {  // summed over micro-batches on its way, in host memory
      const BufferId sum = emit_read_of_sum(c, micro);
      const BufferId part = stage(Plane::kGradient, c, Tier::kDevice, false);
      context_.builder.add_task(task, std::array{from(gradient), to(part)});
      emit_move({.plane = Plane::kGradient, .accumulate = micro > 0, .chunk = c, .micro = micro}, std::array{from(part), to(sum, adds)});
      emit_write_of_sum(c, micro, sum);
    } else if (leaves) {  // summed over the ranks here, over micro-batches where it stays
      const BufferId part = stage(Plane::kGradient, c, Tier::kDevice, false);
      context_.builder.add_task(task, std::array{from(gradient), to(part)});
      emit_move({.plane = Plane::kGradient, .accumulate = micro > 0, .chunk = c, .micro = micro}, std::array{from(part), to(target, adds)});
    } else if (zero_stage >= 2) {
      context_.builder.add_task(task, std::array{from(gradient), to(target, adds)});
    } else {
      context_.builder.add_task(task, std::array{to(target, Access::kReadWrite)});
    }
    if (zero_stage == 0) {  // every rank updates everything: the reduced slices go back to all
      context_.builder.add_task(
          {.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .plane = Plane::kGradient, .chunk = c, .micro = micro},
          std::array{to(target, Access::kReadWrite)});
    }
    if (micro < context_.accumulation - 1) continue;
    is_reduced_[static_cast<std::size_t>(c)] = true;
    if (wants_gradient_[static_cast<std::size_t>(c)]) emit_move_in(Plane::kGradient, c);
  }
}

/// A buffer in host memory for the gradient with this micro-batch's, and in it the sum of those before. Layer by layer all of a chunk's
/// follow each other, so that the sum stays there; else it comes back from disk.
BufferId StateTasks::emit_read_of_sum(int chunk, int micro) {
  BufferId& sum = sums_[static_cast<std::size_t>(chunk)];
  if (micro > 0 && context_.is_layer_by_layer()) return sum;
  sum = stage(Plane::kGradient, chunk, Tier::kHost, true);
  if (micro == 0) return sum;
  if (behind_.chunk == chunk) emit_write_behind();
  emit_move({.plane = Plane::kGradient, .chunk = chunk, .micro = micro}, std::array{from(plane(Plane::kGradient, chunk)), to(sum)});
  return sum;
}

/// The sum with this micro-batch's, on its way to disk; the whole one's norm while it is still here.
void StateTasks::emit_write_of_sum(int chunk, int micro, BufferId sum) {
  const bool is_last = micro == context_.accumulation - 1;
  if (!is_last && context_.is_layer_by_layer()) return;
  if (is_last) emit_norm(chunk, sum);
  emit_write_behind();
  behind_ = {chunk, micro, sum};
}

void StateTasks::emit_write_behind() {
  if (behind_.chunk < 0) return;
  emit_move({.plane = Plane::kGradient, .chunk = behind_.chunk, .micro = behind_.micro},
            std::array{from(behind_.sum), to(plane(Plane::kGradient, behind_.chunk))});
  behind_ = {};
}

/// Of each chunk where its gradient stands, but for those on disk, whose norms were taken on the way there: those on the device first, so
/// that the lanes take turns once. Sums are integers, in whatever order.
void StateTasks::emit_norm_of_chunks() {
  if (!keeps_gradients()) return;  // each was taken before its update
  emit_write_behind();
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    for (int c = 0; c < static_cast<int>(context_.layout.chunks().size()); ++c) {
      if (context_.layout.trains(context_.chunk(c)) && home(Plane::kGradient, c) == tier) emit_norm(c, plane(Plane::kGradient, c));
    }
  }
}

void StateTasks::emit_norm(int chunk, BufferId gradient) {
  const Lane lane = home(Plane::kGradient, chunk) == Tier::kDevice ? Lane::kCompute : Lane::kHostCompute;
  context_.builder.add_task({.kind = TaskKind::kNorm, .lane = lane, .plane = Plane::kGradient, .chunk = chunk},
                            std::array{from(gradient), to(context_.norm, has_norm_begun_ ? Access::kReadWrite : Access::kWrite)});
  has_norm_begun_ = true;
}

// --- updates --------------------------------------------------------------------------------------------------------------

bool StateTasks::moves(int chunk) const {
  return std::any_of(operands_.begin(), operands_.end(), [&](const Operand& operand) { return is_staged(operand, chunk); });
}

void StateTasks::add_updates_of(int run, int due) {
  const chunks::Run& r = context_.run(run);
  if (!context_.layout.trains(r)) return;
  for (int c = r.first_chunk; c < r.first_chunk + r.chunk_count; ++c) {
    updates_.push_back({c, due});
    if (moves(c)) moved_.push_back(c);
  }
}

void StateTasks::plan_updates() {
  const auto runs = static_cast<int>(context_.layout.runs().size());
  const auto items = static_cast<int>(context_.items.size());
  std::vector<std::pair<int, int>> order;  // (due, run)
  auto add_when_seen = [&order, seen = std::vector<bool>(static_cast<std::size_t>(runs), false)](int run, int due) mutable {
    if (!seen[static_cast<std::size_t>(run)]) order.emplace_back(due, run);
    seen[static_cast<std::size_t>(run)] = true;
  };
  const bool is_flush = context_.kind == GraphKind::kFlush;
  if (is_flush && context_.plan.update_mode != UpdateMode::kNextForward) return;
  if (is_flush || context_.plan.update_mode == UpdateMode::kAtEnd) {
    for (int run = 0; run < runs; ++run) order.emplace_back(items, run);
  } else if (context_.plan.update_mode == UpdateMode::kNextForward) {
    // Before anything reads the run's parameters.
    for (const chunks::Residency& stay : stays_) add_when_seen(stay.run, reads_from_disk(stay.run) ? read_at(stay) : stay.gather_at);
    for (int i = 0; i < items; ++i) {
      for (const int run : context_.item_runs[static_cast<std::size_t>(i)]) add_when_seen(run, std::max(0, i - context_.prefetch_items()));
    }
  } else {
    // Some time after the last backward that adds to the run's gradient, so that nobody waits for its reduction.
    std::vector<int> completed_at(static_cast<std::size_t>(runs), -1);
    for (int i = 0; i < items; ++i) {
      const Item& item = context_.items[static_cast<std::size_t>(i)];
      if (!is_backward(item.phase)) continue;
      for (const int run : context_.trained_runs_of[static_cast<std::size_t>(item.segment)])
        completed_at[static_cast<std::size_t>(run)] = i;
    }
    for (int i = 0; i < items; ++i) {
      for (const int run : context_.trained_runs_of[static_cast<std::size_t>(context_.items[static_cast<std::size_t>(i)].segment)]) {
        if (completed_at[static_cast<std::size_t>(run)] != i) continue;
        if (first_reduced_at_ < 0) first_reduced_at_ = i;
        order.emplace_back(i + std::max(1, context_.prefetch_items()), run);
      }
    }
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [due, run] : order) add_updates_of(run, due);
  // The gradients of these were reduced by an earlier graph.
  if (context_.plan.update_mode == UpdateMode::kNextForward) is_reduced_.assign(is_reduced_.size(), true);
}

void StateTasks::emit_first_moves_in() {
  emit_write_behind();  // an update may read it now
  emit_moves_in(2 + static_cast<std::size_t>(context_.plan.state_prefetch));
}

/// What the first `count` of the updates with moves read, as far as it isn't on its way yet, and room for what they write.
void StateTasks::emit_moves_in(std::size_t count) {
  for (; next_moved_in_ < std::min(count, moved_.size()); ++next_moved_in_) {
    const int chunk = moved_[next_moved_in_];
    for (const Operand& operand : operands_) {
      if (!is_staged(operand, chunk)) continue;
      if (!operand.reads) {
        context_.builder.hold(stage_for_update(operand.plane, chunk));
      } else if (operand.plane == Plane::kGradient && !is_reduced_[static_cast<std::size_t>(chunk)]) {
        wants_gradient_[static_cast<std::size_t>(chunk)] = true;
      } else {
        emit_move_in(operand.plane, chunk);
      }
    }
  }
}

void StateTasks::emit_updates_due(int at) {
  while (has_updates_due(at)) emit_next_update();
}

void StateTasks::emit_updates_left() {
  while (has_updates_left()) emit_next_update();
}

/// The optimizer on a chunk, and what makes its new working parameters whole again where every rank holds them whole. The states of the
/// chunk after those that are fetched ahead are asked for first: then they take bytes of a chunk that is gone, and wait for neither this
/// update nor the way back of what it writes.
void StateTasks::emit_next_update() {
  const int chunk = updates_[next_update_++].chunk;
  const bool is_moved = moves(chunk);
  if (is_moved) {
    ++next_moved_update_;
    emit_moves_in(next_moved_update_ + 1 + static_cast<std::size_t>(context_.plan.state_prefetch));
  }
  if (!keeps_gradients()) emit_norm(chunk, plane(Plane::kGradient, chunk));
  std::vector<Use> uses;
  for (const Operand& operand : operands_) {
    if (!is_staged(operand, chunk)) {
      // A rank writes its own part only, so what stands beside it stays.
      uses.push_back({plane(operand.plane, chunk), operand.writes ? Access::kReadWrite : Access::kRead, operand.role});
      continue;
    }
    const Access access = !operand.writes ? Access::kRead : operand.reads ? Access::kReadWrite : Access::kWrite;
    uses.push_back({staged_[static_cast<std::size_t>(operand.plane)][static_cast<std::size_t>(chunk)], access, operand.role});
  }
  uses.push_back(condition());
  const Lane lane = updates_in(chunk) == Tier::kDevice ? Lane::kCompute : Lane::kHostCompute;
  context_.builder.add_task({.kind = TaskKind::kUpdate, .lane = lane, .chunk = chunk}, uses);
  if (is_moved) emit_moves_out(chunk);
  if (home(Plane::kWorking, chunk) == Tier::kDisk)
    updated_[static_cast<std::size_t>(chunk)] = staged_[static_cast<std::size_t>(Plane::kWorking)][static_cast<std::size_t>(chunk)];
  if (context_.plan.zero_stage == 1 || context_.plan.zero_stage == 2) {
    context_.builder.add_task({.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .plane = Plane::kWorking, .chunk = chunk},
                              std::array{to(plane(Plane::kWorking, chunk), Access::kReadWrite)});
  }
}

void StateTasks::emit_move_in(Plane plane_in, int chunk) {
  emit_move({.plane = plane_in, .chunk = chunk}, std::array{from(plane(plane_in, chunk)), to(stage_for_update(plane_in, chunk))});
}

BufferId StateTasks::stage_for_update(Plane plane_in, int chunk) {
  return staged_[static_cast<std::size_t>(plane_in)][static_cast<std::size_t>(chunk)] =
             stage(plane_in, chunk, Tier::kHost, home(plane_in, chunk) == Tier::kDisk);
}

void StateTasks::emit_moves_out(int chunk) {
  for (const Operand& operand : operands_) {
    if (!operand.writes || !is_staged(operand, chunk)) continue;
    const BufferId staged = staged_[static_cast<std::size_t>(operand.plane)][static_cast<std::size_t>(chunk)];
    emit_move({.plane = operand.plane, .chunk = chunk},
              std::array{from(staged), to(plane(operand.plane, chunk), Access::kReadWrite), condition()});
  }
}

// --- saving ---------------------------------------------------------------------------------------------------------------

void StateTasks::emit_save() {
  struct Saved {
    Plane plane;
    int chunk;
    BufferId buffer;  // kNone: stands on disk
  };
  std::vector<Saved> list;
  for (const Plane p : {Plane::kWorking, Plane::kMaster, Plane::kMoment1, Plane::kMoment2}) {
    for (int c = 0; c < static_cast<int>(context_.layout.chunks().size()); ++c) {
      const chunks::Chunk& chunk = context_.chunk(c);
      const bool is_copy = p == Plane::kWorking && context_.layout.has(Plane::kMaster, chunk);
      if (is_copy || !context_.layout.has(p, chunk)) continue;
      list.push_back({p, c, home(p, c) == Tier::kDisk ? kNone : plane(p, c)});
    }
  }
  std::size_t next_read = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    // What stands on disk is read ahead of its turn.
    for (; next_read < std::min(list.size(), i + 1 + static_cast<std::size_t>(context_.plan.state_prefetch)); ++next_read) {
      Saved& saved = list[next_read];
      if (saved.buffer != kNone) continue;
      saved.buffer = stage(saved.plane, saved.chunk, Tier::kHost, true);
      emit_move({.plane = saved.plane, .chunk = saved.chunk}, std::array{from(plane(saved.plane, saved.chunk)), to(saved.buffer)});
    }
    context_.builder.add_task({.kind = TaskKind::kForeign, .lane = Lane::kDiskWrite, .plane = list[i].plane, .chunk = list[i].chunk},
                              std::array{from(list[i].buffer)});
  }
}

}  // namespace sluice::schedule
