#include "plan/homes.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "schedule/control.hpp"
#include "schedule/place.hpp"

namespace sluice::plan {
namespace {

using chunks::Plane;
using spec::ChunkHomes;
using spec::Tier;

constexpr std::array<Plane, 3> kStatePlanes{Plane::kMaster, Plane::kMoment1, Plane::kMoment2};

std::size_t at(Tier tier) {
  return static_cast<std::size_t>(tier);
}

Tier tier_of(Plane plane, const ChunkHomes& home) {
  return plane == Plane::kWorking ? home.working : plane == Plane::kGradient ? home.gradient : home.states;
}

/// Elements of a chunk that this rank moves and updates.
std::int64_t part_elements(const chunks::Chunk& chunk, const spec::Plan& plan, int ranks) {
  return plan.zero_stage == 0 ? chunk.elements : chunks::largest_shard(chunk.elements, ranks);
}

std::int64_t host_alignment(const spec::Plan& plan) {
  return plan.uses_tier(Tier::kDisk) ? schedule::kDiskAlignment : schedule::kBufferAlignment;
}

/// Host bytes that an update of the chunk stages; `written`: of those that go back to another tier after it; `awaited`: of those that stay
/// until its run is gathered.
struct Staged {
  std::int64_t all = 0;
  std::int64_t written = 0;
  std::int64_t awaited = 0;
  int run = -1;
};
Staged staged_bytes(const chunks::ChunkLayout& layout, const chunks::Chunk& chunk, const ChunkHomes& home, const spec::Plan& plan,
                    int ranks, std::int64_t alignment) {
  Staged staged{.run = chunk.run};
  if (home.states == Tier::kDevice || !layout.trains(chunk)) return staged;
  const std::int64_t part = part_elements(chunk, plan, ranks);
  for (int p = 0; p < chunks::kPlaneCount; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!layout.has(plane, chunk) || tier_of(plane, home) == Tier::kHost) continue;
    const std::int64_t bytes = round_up(part * layout.element_bytes(plane), alignment);
    staged.all += bytes;
    if (plane != Plane::kGradient) staged.written += bytes;
    if (plane == Plane::kWorking && home.working == Tier::kDisk && plan.update_mode == spec::UpdateMode::kNextForward)
      staged.awaited += bytes;
  }
  return staged;
}

/// Of chunks in the order of their updates: one on its way back, one being updated, and those fetched ahead; of those before in the same
/// run what its gather takes from there. Certain is what they write: gradients may come later.
void add_update_staging(HomeBytes& bytes, const chunks::ChunkLayout& layout, const spec::Plan& plan, int ranks) {
  const std::int64_t alignment = host_alignment(plan);
  std::vector<Staged> in_order;
  for (std::size_t c = 0; c < layout.chunks().size(); ++c) {
    const Staged staged = staged_bytes(layout, layout.chunks()[c], plan.home(c), plan, ranks, alignment);
    if (staged.all > 0) in_order.push_back(staged);
  }
  const auto ahead = static_cast<std::size_t>(plan.state_prefetch);
  Staged sum;  // of chunks [k, k + ahead]
  std::int64_t awaited = 0;
  std::size_t fetched = 0;
  for (std::size_t k = 0; k < in_order.size(); ++k) {
    for (; fetched < std::min(in_order.size(), k + 1 + ahead); ++fetched) {
      sum.all += in_order[fetched].all;
      sum.written += in_order[fetched].written;
    }
    awaited = k > 1 && in_order[k - 2].run == in_order[k].run ? awaited + in_order[k - 2].awaited : 0;
    const std::int64_t before = k > 0 ? in_order[k - 1].written : 0;
    bytes.update_staging = std::max(bytes.update_staging, sum.all + awaited + before);
    bytes.update_staging_least = std::max(bytes.update_staging_least, sum.written + before);
    sum.all -= in_order[k].all;
    sum.written -= in_order[k].written;
  }
}

/// Of as many segments as gathers are issued ahead, and the one that is next: what of their working parameters comes from disk. Certain is
/// one run's: others may stay on the device from one use to the next.
void add_read_staging(HomeBytes& staging, const Workbench& bench, const chunks::ChunkLayout& layout, const spec::Plan& plan) {
  std::vector<std::int64_t> of_segment;
  std::vector<bool> seen(layout.runs().size(), false);
  for (const auto& segment : bench.model().segments) {
    std::int64_t bytes = 0;
    for (const int param : segment->params()) {
      const auto r = static_cast<std::size_t>(layout.place(param).run);
      if (seen[r]) continue;
      seen[r] = true;
      const auto first = static_cast<std::size_t>(layout.runs()[r].first_chunk);
      std::int64_t of_run = 0;
      for (std::size_t c = first; c < first + static_cast<std::size_t>(layout.runs()[r].chunk_count); ++c) {
        if (plan.home(c).working != Tier::kDisk) continue;
        const std::int64_t part = part_elements(layout.chunks()[c], plan, bench.ranks());
        of_run += round_up(part * layout.element_bytes(Plane::kWorking), schedule::kDiskAlignment);
      }
      bytes += of_run;
      staging.read_staging_least = std::max(staging.read_staging_least, of_run);
    }
    of_segment.push_back(bytes);
  }
  const auto window = static_cast<std::size_t>(plan.prefetch_segments) + 1;
  std::int64_t sum = 0;
  for (std::size_t s = 0; s < of_segment.size(); ++s) {
    sum += of_segment[s] - (s >= window ? of_segment[s - window] : 0);
    staging.read_staging = std::max(staging.read_staging, sum);
  }
}

/// Gradients on their way to the disk: one that is written and the next one, for which the sum of the micro-batches before is read. Layer
/// by layer the sums of all chunks that a segment completes stay until its last micro-batch.
void add_sum_staging(HomeBytes& staging, const Workbench& bench, const chunks::ChunkLayout& layout, const spec::Plan& plan) {
  std::vector<std::int64_t> of_run(layout.runs().size(), 0);
  std::int64_t largest = 0, count = 0;
  for (std::size_t c = 0; c < plan.homes.size(); ++c) {
    const chunks::Chunk& chunk = layout.chunks()[c];
    if (plan.homes[c].gradient != Tier::kDisk || !layout.trains(chunk)) continue;
    const std::int64_t part = part_elements(chunk, plan, bench.ranks()) * layout.element_bytes(Plane::kGradient);
    const std::int64_t bytes = round_up(part, schedule::kDiskAlignment);
    of_run[static_cast<std::size_t>(chunk.run)] += bytes;
    largest = std::max(largest, bytes);
    ++count;
  }
  staging.sum_staging_least = largest;
  staging.sum_staging = std::min<std::int64_t>(count, 2) * largest;
  if (plan.accumulation == 1 || plan.order == spec::MicroBatchOrder::kDepthFirst) return;
  // A run is complete with the first segment that uses it, the last one of backward.
  std::int64_t most = 0;
  std::vector<bool> seen(of_run.size(), false);
  for (const auto& segment : bench.model().segments) {
    std::int64_t sum = 0;
    for (const int param : segment->params()) {
      const auto r = static_cast<std::size_t>(layout.place(param).run);
      if (!seen[r]) sum += of_run[r];
      seen[r] = true;
    }
    most = std::max(most, sum);
  }
  staging.sum_staging = most + largest;
}

/// Whether gradients stand only from their first part to their update, and if so whether they go while others come: not where they wait for
/// the next micro-batch.
bool are_transient(const spec::Plan& plan) {
  return plan.update_mode == spec::UpdateMode::kInBackward;
}
bool pass_by(const spec::Plan& plan) {
  return are_transient(plan) && (plan.accumulation == 1 || plan.order == spec::MicroBatchOrder::kLayerByLayer);
}

/// Fills in transient gradients. A run's begins with the first segment of backward that adds to it (zero_stage 2 and 3: reduced, with the
/// last), and goes some segments after the last.
void add_transient_gradients(HomeBytes& bytes, const Workbench& bench, const chunks::ChunkLayout& layout, const spec::Plan& plan) {
  using Bytes = std::array<std::int64_t, spec::kTierCount>;
  const model::Model& model = bench.model();
  const std::size_t segments = model.segments.size();
  const auto lag = static_cast<std::size_t>(std::max(1, plan.prefetch_segments));
  std::vector<Bytes> begins(segments), ends(segments);
  std::vector<std::pair<std::size_t, std::size_t>> span(layout.runs().size(), {segments, segments});  // first and last of backward
  for (std::size_t s = segments; s-- > 0;) {
    for (const int param : model.segments[s]->params()) {
      if (!layout.grouping().trains(param)) continue;
      auto& [first, last] = span[static_cast<std::size_t>(layout.place(param).run)];
      if (first == segments) first = s;
      last = s;
    }
  }
  Bytes all{};
  for (std::size_t r = 0; r < span.size(); ++r) {
    const auto& [first, last] = span[r];
    if (first == segments) continue;
    const chunks::Run& run = layout.runs()[r];
    const std::size_t begin = plan.zero_stage >= 2 ? last : first;
    const auto first_chunk = static_cast<std::size_t>(run.first_chunk);
    for (std::size_t c = first_chunk; c < first_chunk + static_cast<std::size_t>(run.chunk_count); ++c) {
      const chunks::Chunk& chunk = layout.chunks()[c];
      const std::int64_t elements = plan.zero_stage >= 2 ? part_elements(chunk, plan, bench.ranks()) : chunk.elements;
      const std::int64_t gradient = elements * layout.element_bytes(Plane::kGradient);
      const std::size_t tier = at(plan.home(c).gradient);
      all[tier] += gradient;
      begins[begin][tier] += gradient;
      if (last > lag) ends[last - lag - 1][tier] += gradient;  // gone before that segment
    }
  }
  if (!pass_by(plan)) {
    bytes.waiting = all;
    return;
  }
  Bytes now{};
  bytes.passing_device.resize(segments);
  for (std::size_t s = segments; s-- > 0;) {
    for (std::size_t tier = 0; tier < now.size(); ++tier) now[tier] += begins[s][tier] - ends[s][tier];
    bytes.passing_device[s] = now[at(Tier::kDevice)];
    bytes.passing_host = std::max(bytes.passing_host, now[at(Tier::kHost)]);
  }
}

std::int64_t control_bytes(const Workbench& bench, const spec::Plan& plan) {
  const std::int64_t alignment = host_alignment(plan);
  std::int64_t bytes = 0;
  for (const std::int64_t each :
       {std::int64_t{sizeof(schedule::Counts)}, std::int64_t{sizeof(schedule::Counts)},
        static_cast<std::int64_t>(sizeof(double)) * plan.accumulation, std::int64_t{sizeof(ops::NormAccumulator)},
        std::int64_t{sizeof(schedule::Report)}, bench.model().spec.vocab * static_cast<std::int64_t>(sizeof(float))})
    bytes += round_up(each, alignment);
  return bytes;
}

/// Bytes of a chunk's planes on the device.
struct ChunkBytes {
  std::int64_t working = 0, gradient = 0, states = 0;
};

class Chooser {
 public:
  Chooser(Workbench& bench, const spec::Plan& plan, const Room& room, const HomeRules& rules)
      : bench_(bench), layout_(bench.layout(plan.chunk_elements)), plan_(plan), room_(room), rules_(rules) {
    plan_.homes.clear();
    const auto bytes = [&](Plane plane, const chunks::Chunk& chunk) {
      if (!layout_.has(plane, chunk)) return std::int64_t{0};
      const std::int64_t elements =
          chunks::is_sharded(plane, plan.zero_stage) ? chunks::largest_shard(chunk.elements, bench.ranks()) : chunk.elements;
      return elements * layout_.element_bytes(plane);
    };
    for (const chunks::Chunk& chunk : layout_.chunks()) {
      ChunkBytes each{bytes(Plane::kWorking, chunk), pass_by(plan) ? 0 : bytes(Plane::kGradient, chunk), 0};
      for (const Plane plane : kStatePlanes) each.states += bytes(plane, chunk);
      all_.working += each.working;
      all_.gradient += each.gradient;
      all_.states += each.states;
      chunks_.push_back(each);
    }
    // Planes that a rank holds whole stand a run at a time.
    for (const chunks::Run& run : layout_.runs()) {
      const auto first = static_cast<std::size_t>(run.first_chunk), count = static_cast<std::size_t>(run.chunk_count);
      if (plan.zero_stage == 0) {
        units_.emplace_back(first, first + count);
      } else {
        for (std::size_t c = first; c < first + count; ++c) units_.emplace_back(c, c + 1);
      }
    }
    std::sort(units_.begin(), units_.end());
    for (std::size_t c = 0; c < chunks_.size(); ++c) single_.emplace_back(c, c + 1);
  }

  std::vector<ChunkHomes> run() && {
    const bool states_leave = rules_.states && *rules_.states != Tier::kDevice;
    const bool working_leaves = rules_.working_leaves || (rules_.working && *rules_.working != Tier::kDevice);
    const bool must = states_leave || working_leaves || rules_.gradients_leave;
    const bool states_stay = rules_.states == Tier::kDevice && !working_leaves;
    const std::int64_t for_states = room_.device - all_.working - all_.gradient;
    if (!must && (states_stay || room_.host <= 0 || for_states >= all_.states)) return {};
    plan_.homes.assign(chunks_.size(), ChunkHomes{});
    leave_device(states_leave, working_leaves, for_states);
    settle_below();
    const bool moves = std::any_of(plan_.homes.begin(), plan_.homes.end(), [](const ChunkHomes& home) { return !(home == ChunkHomes{}); });
    return moves ? std::move(plan_.homes) : std::vector<ChunkHomes>{};
  }

 private:
  bool trains(std::size_t c) const { return layout_.trains(layout_.chunks()[c]); }

  /// One pass over the units in order: those that fit what is left of `budget` stay, for the chunks of the others calls visit(c).
  template <typename Bytes, typename Visit>
  static void beyond(const std::vector<std::pair<std::size_t, std::size_t>>& units, std::int64_t budget, Bytes bytes_of, Visit visit) {
    for (const auto& [begin, end] : units) {
      std::int64_t bytes = 0;
      for (std::size_t c = begin; c < end; ++c) bytes += bytes_of(c);
      const bool stays = bytes <= budget;
      if (stays) budget -= bytes;
      for (std::size_t c = begin; c < end && !stays; ++c) visit(c);
    }
  }

  /// Everything that can't or mustn't stay on the device goes to the host.
  void leave_device(bool states_leave, bool working_leaves, std::int64_t for_states) {
    const auto move_states = [&](std::size_t c) {
      if (trains(c)) plan_.homes[c].states = Tier::kHost;
    };
    const bool may_move_gradients = plan_.zero_stage >= 2;
    const bool may_move_working = plan_.zero_stage == 3 && rules_.working != Tier::kDevice;
    if (!working_leaves && !rules_.gradients_leave && (for_states >= 0 || (!may_move_gradients && !may_move_working))) {
      beyond(
          units_, states_leave ? -1 : for_states, [&](std::size_t c) { return chunks_[c].states; }, move_states);
      return;
    }
    for_all(move_states);
    const std::int64_t for_gradients = room_.device - all_.working - gradient_part();
    const auto move_gradient = [&](std::size_t c) {
      if (trains(c)) plan_.homes[c].gradient = Tier::kHost;
    };
    if (!working_leaves && (for_gradients >= 0 || !may_move_working)) {
      beyond(
          units_, rules_.gradients_leave ? -1 : for_gradients, [&](std::size_t c) { return chunks_[c].gradient; }, move_gradient);
      return;
    }
    if (working_leaves) {  // then the device may have room for gradients
      for (std::size_t c = 0; c < chunks_.size(); ++c) plan_.homes[c].working = Tier::kHost;
      beyond(
          units_, rules_.gradients_leave ? -1 : room_.device - gradient_part(), [&](std::size_t c) { return chunks_[c].gradient; },
          move_gradient);
      return;
    }
    for_all(move_gradient);
    beyond(
        units_, room_.device - gradient_part(), [&](std::size_t c) { return chunks_[c].working; },
        [&](std::size_t c) { plan_.homes[c].working = Tier::kHost; });
  }

  /// From the host to disk, what finds no room there.
  void settle_below() {
    const auto move_states = [&](std::size_t c) {
      if (plan_.homes[c].states == Tier::kHost) plan_.homes[c].states = Tier::kDisk;
    };
    const auto move_working = [&](std::size_t c) {
      if (plan_.homes[c].working != Tier::kHost) return;
      plan_.homes[c].working = Tier::kDisk;
      if (trains(c)) plan_.homes[c].states = Tier::kDisk;
    };
    const auto move_gradient = [&](std::size_t c) {
      if (plan_.homes[c].gradient == Tier::kHost) plan_.homes[c].gradient = Tier::kDisk;
    };
    if (rules_.states == Tier::kDisk) for_all(move_states);
    if (rules_.working == Tier::kDisk) for_all(move_working);
    if (room_.disk <= 0 || rules_.states == Tier::kHost) return;
    if (settles(&ChunkHomes::states, move_states)) return;
    if (rules_.working != Tier::kHost && settles(&ChunkHomes::working, move_working)) return;
    const bool may_move_gradients = plan_.zero_stage >= 2 && !are_transient(plan_);
    if (may_move_gradients) settles(&ChunkHomes::gradient, move_gradient);
  }

  /// Whether the rest finds room on the host once all that stand there have gone to disk by move(c). Then the first ones come back, as far
  /// as there is room: with all of them on disk the staging is the largest it can be.
  template <typename Move>
  bool settles(Tier ChunkHomes::*kind, Move move) {
    if (room_left() >= 0) return true;
    const std::vector<ChunkHomes> before = plan_.homes;
    for_all(move);
    const std::int64_t left = room_left();
    if (left < 0) return false;
    plan_.homes = before;
    beyond(
        single_, left, [&](std::size_t c) { return before[c].*kind == Tier::kHost ? bytes_on_host(c, kind) : 0; }, move);
    return true;
  }

  template <typename Visit>
  void for_all(Visit visit) const {
    for (std::size_t c = 0; c < chunks_.size(); ++c) visit(c);
  }

  std::int64_t bytes_on_host(std::size_t c, Tier ChunkHomes::*kind) const {
    const chunks::Chunk& chunk = layout_.chunks()[c];
    const std::int64_t part = part_elements(chunk, plan_, bench_.ranks());
    const auto of = [&](Plane plane) {
      return layout_.has(plane, chunk) ? round_up(part * layout_.element_bytes(plane), schedule::kDiskAlignment) : 0;
    };
    if (kind == &ChunkHomes::working) return of(Plane::kWorking);
    if (kind == &ChunkHomes::gradient) return of(Plane::kGradient);
    std::int64_t bytes = 0;
    for (const Plane plane : kStatePlanes) bytes += of(plane);
    return bytes;
  }

  /// Of a rank's host room with the homes as they are; negative: missing.
  std::int64_t room_left() const {
    const HomeBytes bytes = home_bytes(bench_, plan_);
    return room_.host - bytes.persistent[at(Tier::kHost)] - bytes.waiting[at(Tier::kHost)] - bytes.passing_host -
           std::max(room_.host_in_pass + bytes.read_staging + bytes.sum_staging, bytes.update_staging);
  }

  std::int64_t gradient_part() const {
    std::int64_t most = 0;
    for (const chunks::Chunk& chunk : layout_.chunks()) {
      if (layout_.trains(chunk)) most = std::max(most, part_elements(chunk, plan_, bench_.ranks()));
    }
    return most * layout_.element_bytes(Plane::kGradient);
  }

  Workbench& bench_;
  const chunks::ChunkLayout& layout_;
  spec::Plan plan_;
  Room room_;
  HomeRules rules_;
  std::vector<ChunkBytes> chunks_;
  ChunkBytes all_;
  // Chunks that leave the device together, [begin, end), and each alone.
  std::vector<std::pair<std::size_t, std::size_t>> units_, single_;
};

}  // namespace

HomeBytes home_bytes(Workbench& bench, const spec::Plan& plan) {
  const chunks::ChunkLayout& layout = bench.layout(plan.chunk_elements);
  const std::int64_t host = host_alignment(plan);
  HomeBytes bytes;
  for (int p = 0; p < chunks::kPlaneCount; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (plane == Plane::kGradient && are_transient(plan)) continue;
    const std::int64_t element = layout.element_bytes(plane);
    const bool is_sharded = chunks::is_sharded(plane, plan.zero_stage);
    for (const chunks::Run& run : layout.runs()) {
      const auto first = static_cast<std::size_t>(run.first_chunk);
      if (!layout.has(plane, layout.chunks()[first])) continue;
      bool is_whole_counted = false;
      for (std::size_t c = first; c < first + static_cast<std::size_t>(run.chunk_count); ++c) {
        const Tier tier = tier_of(plane, plan.home(c));
        const std::int64_t part = part_elements(layout.chunks()[c], plan, bench.ranks()) * element;
        if (tier == Tier::kDevice && !is_sharded) {
          if (!is_whole_counted) bytes.persistent[at(tier)] += round_up(run.elements * element, schedule::kBufferAlignment);
          is_whole_counted = true;
        } else if (tier == Tier::kDevice) {
          bytes.persistent[at(tier)] += round_up(part, schedule::kBufferAlignment);
        } else if (tier == Tier::kHost) {
          bytes.persistent[at(tier)] += round_up(part, host);
        } else {
          const bool is_updated = plane != Plane::kGradient && layout.trains(layout.chunks()[c]);  // written beside what was there
          bytes.persistent[at(tier)] += (is_updated ? 2 : 1) * round_up(part, schedule::kDiskAlignment);
        }
      }
    }
  }
  for (std::size_t c = 0; c < plan.homes.size(); ++c) {
    if (plan.homes[c].gradient == Tier::kDevice || !layout.trains(layout.chunks()[c])) continue;
    const std::int64_t part = part_elements(layout.chunks()[c], plan, bench.ranks()) * layout.element_bytes(Plane::kGradient);
    bytes.gradient_part = std::max(bytes.gradient_part, part);
  }
  if (are_transient(plan)) add_transient_gradients(bytes, bench, layout, plan);
  bytes.persistent[at(Tier::kHost)] += control_bytes(bench, plan);
  if (std::any_of(plan.homes.begin(), plan.homes.end(), [](const ChunkHomes& home) { return home.working == Tier::kDisk; }))
    add_read_staging(bytes, bench, layout, plan);
  add_update_staging(bytes, layout, plan, bench.ranks());
  add_sum_staging(bytes, bench, layout, plan);
  return bytes;
}

std::vector<ChunkHomes> choose_homes(Workbench& bench, const spec::Plan& plan, const Room& room, const HomeRules& rules) {
  return Chooser(bench, plan, room, rules).run();
}

}  // namespace sluice::plan
