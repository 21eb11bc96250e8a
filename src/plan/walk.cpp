#include "plan/walk.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::plan {
namespace {

using spec::Activation;
using spec::MicroBatchOrder;
using spec::Tier;
using spec::UpdateMode;

constexpr std::int64_t kLeastChunk = 64 << 10;  // elements: 256 KiB in f32

std::size_t at(Tier tier) {
  return static_cast<std::size_t>(tier);
}

bool leaves(const std::optional<Tier>& tier) {
  return tier && *tier != Tier::kDevice;
}

constexpr std::int64_t kNoRoom = std::numeric_limits<std::int64_t>::min() / 2;  // too little for anything

}  // namespace

std::int64_t sum_of(const Candidate::TierBytes& bytes) {
  return bytes[0] + bytes[1] + bytes[2];
}

std::int64_t distance_of(const Candidate::TierBytes& missing) {
  return 16 * missing[at(Tier::kDevice)] + 4 * missing[at(Tier::kHost)] + missing[at(Tier::kDisk)];
}

int tiers_used(const spec::Plan& plan) {
  return plan.uses_tier(Tier::kDisk) ? 2 : plan.uses_tier(Tier::kHost) ? 1 : 0;
}

bool knows_copies(const spec::MachineSpec& machine) {
  return machine.device_flops <= 0 || (machine.upload_bytes_per_second > 0 && machine.download_bytes_per_second > 0);
}

bool leaves_device(const Choices& choices) {
  return leaves(choices.states) || leaves(choices.working) || choices.host_activations.value_or(false);
}

std::vector<std::int64_t> Walk::chunk_sizes() const {
  const model::Model& whole = bench_.model();
  std::int64_t total = 0, half_block = 0;
  for (const model::ParamSpec& param : whole.params) total += round_up(param.elements(), chunks::kBlock);
  for (const auto& segment : whole.segments) {
    if (segment->layer() < 0) continue;
    std::int64_t elements = 0;
    for (const int param : segment->params())
      elements += round_up(whole.params[static_cast<std::size_t>(param)].elements(), chunks::kBlock);
    half_block = std::max(half_block, elements);
  }
  if (request_.pins.chunk_elements)
    return {std::clamp<std::int64_t>(round_up(*request_.pins.chunk_elements, chunks::kBlock), chunks::kBlock, total)};
  // A half-block spans at most about four chunks; a chunk holds at most about four half-blocks.
  std::set<std::int64_t> sizes;
  for (const double scale : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(half_block) * scale);
    sizes.insert(std::min(total, round_up(std::max(wanted, kLeastChunk), chunks::kBlock)));
  }
  return {sizes.begin(), sizes.end()};
}

std::vector<UpdateMode> Walk::update_modes() const {
  const bool needs_norm = optim::needs_norm(request_.training);
  if (request_.pins.update_mode) {
    if (*request_.pins.update_mode == UpdateMode::kInBackward && request_.training.precision == spec::Precision::kFp16) {
      throw RequestError(
          "pinned update mode in_backward: precision is fp16, which must know before the first update that no gradient has overflowed; "
          "unpin it or train in bf16 or fp32");
    }
    if (*request_.pins.update_mode == UpdateMode::kInBackward && needs_norm) {
      throw RequestError(cat("pinned update mode in_backward: gradient_clipping is ", request_.training.optimizer.gradient_clipping,
                             ", expected 0, since clipping needs the norm of all gradients before the first update; unpin it or set "
                             "gradient_clipping to 0"));
    }
    return {*request_.pins.update_mode};
  }
  if (needs_norm) return {UpdateMode::kAtEnd, UpdateMode::kNextForward};
  return {UpdateMode::kAtEnd, UpdateMode::kInBackward, UpdateMode::kNextForward};
}

bool Walk::may_leave() const {
  return pins_leave() || (request_.budget.host_bytes > 0 && knows_copies(request_.machine));
}

bool Walk::may_move_activations() const {
  return may_leave() && !request_.pins.recompute && !request_.pins.host_activations;
}

bool Walk::pins_leave() const {
  return leaves_device(request_.pins);
}

/// With one rank zero_stage 2 and 3 serve only to let gradients and working parameters leave the device.
bool Walk::only_to_leave(int zero_stage) const {
  const Choices& pins = request_.pins;
  return request_.mesh.data == 1 && zero_stage > 0 && !pins.zero_stage && !leaves(pins.working) &&
         pins.order != MicroBatchOrder::kLayerByLayer;
}

std::vector<int> Walk::zero_stages() const {
  const Choices& pins = request_.pins;
  if (pins.zero_stage) {
    SLUICE_CHECK(*pins.zero_stage >= 0 && *pins.zero_stage <= 3, "zero_stage ", *pins.zero_stage);
    return {*pins.zero_stage};
  }
  if (leaves(pins.working)) return {3};
  if (pins.order == MicroBatchOrder::kLayerByLayer) return {2, 3};
  if (request_.mesh.data > 1) return {0, 1, 2, 3};
  // Nothing to shard over: the other stages only copy more, unless something leaves the device.
  if (!may_leave() || pins.states == Tier::kDevice) return {0};
  if (pins.working == Tier::kDevice) return {0, 2};
  return {0, 2, 3};
}

/// Layer by layer gains where parameters are gathered, and costs the activations of all micro-batches.
std::vector<MicroBatchOrder> Walk::orders(int zero_stage, std::int64_t accumulation) const {
  if (request_.pins.order) return {*request_.pins.order};
  if (zero_stage == 3 && accumulation > 1) return {MicroBatchOrder::kDepthFirst, MicroBatchOrder::kLayerByLayer};
  return {MicroBatchOrder::kDepthFirst};
}

std::vector<int> Walk::prefetches(int zero_stage, UpdateMode mode) const {
  if (request_.pins.prefetch_segments) return {std::max(0, *request_.pins.prefetch_segments)};
  if (zero_stage < 3 && mode == UpdateMode::kAtEnd) return {1};  // nothing is issued ahead
  return {0, 1, 2};
}

void Walk::add_to(std::deque<Candidate>& candidates) {
  const auto micros = micro_batches(request_.training.batch, request_.mesh.data);
  const std::vector<std::int64_t> chunks = chunk_sizes();
  for (const int stage : zero_stages()) {
    for (const auto& [micro, accumulation] : micros) {
      for (const std::int64_t chunk : chunks) {
        for (const UpdateMode mode : update_modes()) {
          for (const int prefetch : prefetches(stage, mode)) {
            for (const MicroBatchOrder order : orders(stage, accumulation)) {
              spec::Plan plan;
              plan.zero_stage = stage;
              plan.chunk_elements = chunk;
              plan.prefetch_segments = prefetch;
              plan.micro_batch = micro;
              plan.accumulation = accumulation;
              plan.update_mode = mode;
              plan.order = order;
              plan.activations.assign(bench_.model().segments.size(), Activation::kKeep);
              plan.threads = request_.threads;
              plan.mesh = request_.mesh;
              if (only_to_leave(stage) && keeps_all_at_stage_0(plan)) continue;
              add_with_rcaches(plan, candidates);
            }
          }
        }
      }
    }
  }
  SLUICE_CHECK(!candidates.empty(), "no candidates");
}

void Walk::add_with_rcaches(spec::Plan plan, std::deque<Candidate>& candidates) {
  if (plan.zero_stage < 3) return add(plan, candidates);
  const auto [least, whole] = bench_.rcache_range(plan.chunk_elements, plan.prefetch_segments);
  if (request_.pins.rcache_elements) {
    plan.rcache_elements = std::clamp(round_up(*request_.pins.rcache_elements, chunks::kBlock), least, whole);
    return add(plan, candidates);
  }
  // What the budget leaves when nothing is recomputed is worth a try, too, and what it leaves when all leaves that may.
  plan.rcache_elements = least;
  const std::int64_t span = whole - least;
  std::set<std::int64_t> sizes{least, least + span / 4, least + span / 2, whole};
  const auto add_fill = [&, least = least](const MemoryBound& memory) {
    const std::int64_t room = (room_of_rank({}).device - memory.bytes(plan.activations)) /
                              bench_.layout(plan.chunk_elements).element_bytes(chunks::Plane::kWorking);
    const std::int64_t fill = room - room / 50;
    if (fill > span / 50 && fill < span) sizes.insert(least + fill);
  };
  add_fill(bounded_memory(plan));
  if (may_leave()) {
    spec::Plan moved = plan;
    moved.homes = homes_of_all(moved);
    add_fill(bounded_memory(moved));
  }
  for (const std::int64_t elements : sizes) {
    plan.rcache_elements = elements == whole ? whole : elements / chunks::kBlock * chunks::kBlock;
    if (plan.rcache_elements >= least) add(plan, candidates);
  }
}

/// The candidates of a plan whose activations and homes are to be chosen: all kept on the device if there is room, else each relief that
/// may be the cheapest.
void Walk::add(const spec::Plan& plan, std::deque<Candidate>& candidates) {
  const std::size_t before = candidates.size();
  const auto add_with = [&](Relief relief) {
    Candidate candidate{.plan = plan, .relief = relief};
    const bool fits = fit(candidate, {});
    candidate.is_tight = !fits;
    candidate.fits = fits || may_fit(candidate);
    const bool is_known = candidates.size() > before && candidates.back().plan == candidate.plan;
    if (!is_known) candidates.push_back(std::move(candidate));
    return fits;
  };
  if (!pins_leave() && !only_to_leave(plan.zero_stage)) {
    const bool fits = add_with(Relief::kRecompute);
    const Activations& activations = candidates.back().plan.activations;
    const bool keeps = std::all_of(activations.begin(), activations.end(), [](Activation each) { return each == Activation::kKeep; });
    if (!may_leave() || (fits && (keeps || request_.pins.recompute))) return;
    add_with(Relief::kLeave);
    if (may_move_activations()) add_with(Relief::kMoveAndLeave);
    if (fits) return;
  } else {
    add_with(Relief::kLeave);
    if (may_move_activations()) add_with(Relief::kMoveAndLeave);
  }
  add_with(Relief::kRecomputeAndLeave);
}

Room Walk::room_of_rank(const Room& spare) const {
  const std::int64_t ranks = bench_.ranks_per_node();
  return {request_.budget.device_bytes - request_.machine.unplanned_bytes - spare.device, request_.budget.host_bytes / ranks - spare.host,
          request_.budget.disk_bytes / ranks - spare.disk};
}

MemoryBound Walk::bounded_memory(const spec::Plan& plan) {
  const bool all_at_once = plan.order == MicroBatchOrder::kLayerByLayer;
  const std::array<std::int64_t, 4> key{plan.zero_stage, plan.chunk_elements, plan.micro_batch, all_at_once ? 1 : 0};
  auto found = memories_.find(key);
  if (found == memories_.end()) found = memories_.emplace(key, memory_bound(bench_, plan)).first;
  MemoryBound memory = found->second;
  memory.set_homes(bench_, plan);
  return memory;
}

HomeRules Walk::home_rules(const spec::Plan& plan) const {
  HomeRules rules{.states = request_.pins.states, .working = request_.pins.working};
  rules.gradients_leave = only_to_leave(plan.zero_stage) && plan.zero_stage == 2;
  rules.working_leaves = only_to_leave(plan.zero_stage) && plan.zero_stage == 3;
  return rules;
}

/// Homes where all that may leave the device has left it.
std::vector<spec::ChunkHomes> Walk::homes_of_all(const spec::Plan& plan) {
  return choose_homes(bench_, plan, {.device = kNoRoom, .host = std::numeric_limits<std::int64_t>::max() / 2}, home_rules(plan));
}

bool Walk::keeps_all_at_stage_0(spec::Plan plan) {
  plan.zero_stage = 0;
  plan.order = MicroBatchOrder::kDepthFirst;
  return bounded_memory(plan).bytes(plan.activations) <= room_of_rank({}).device;
}

bool Walk::fit(Candidate& c, const Room& spare) {
  spec::Plan& plan = c.plan;
  const bool leaves = c.relief != Relief::kRecompute;
  plan.homes.clear();
  MemoryBound memory = bounded_memory(plan);
  Room room = room_of_rank(spare);
  // The rCache is rarely full when the rest is at its most: placement decides.
  room.device += memory.rcache_bytes / 20;
  const Choices& pins = request_.pins;
  if (c.relief == Relief::kLeaveAsGiven) {
    // as they are
  } else if (pins.host_activations.value_or(false)) {
    plan.activations = least_given_up(memory, kNoRoom, Activation::kHost);
  } else if (pins.recompute) {
    plan.activations =
        *pins.recompute ? least_given_up(memory, kNoRoom, Activation::kRecompute) : Activations(plan.activations.size(), Activation::kKeep);
  } else if (c.relief == Relief::kRecompute) {
    plan.activations = least_given_up(memory, room.device, Activation::kRecompute);
  } else if (c.relief == Relief::kRecomputeAndLeave) {
    plan.activations = least_given_up(memory, kNoRoom, Activation::kRecompute);
  } else {
    plan.homes = homes_of_all(plan);
    memory.set_homes(bench_, plan);
    plan.activations = least_given_up(memory, room.device, c.relief == Relief::kMoveAndLeave ? Activation::kHost : Activation::kRecompute);
    plan.homes.clear();
    memory.set_homes(bench_, plan);
  }
  if (leaves) {
    Room for_homes = room;
    for_homes.device -=
        memory.bytes(plan.activations) - memory.of_homes.persistent[at(Tier::kDevice)] - memory.of_homes.waiting[at(Tier::kDevice)];
    for_homes.host_in_pass = memory.host_bytes(plan.activations) - memory.of_homes.persistent[at(Tier::kHost)];
    for_homes.disk -= memory.disk_bytes(plan.activations);
    plan.homes = choose_homes(bench_, plan, for_homes, home_rules(plan));
    memory.set_homes(bench_, plan);
  }
  c.expected = {memory.bytes(plan.activations) - memory.rcache_bytes / 20, memory.host_bytes(plan.activations),
                memory.disk_bytes(plan.activations)};
  c.missing = missing_bytes(plan, c.expected, room_of_rank(spare));
  return sum_of(c.missing) == 0;
}

bool Walk::may_fit(const Candidate& c) {
  spec::Plan plan = c.plan;
  plan.homes.clear();
  MemoryBound memory = bounded_memory(plan);
  const Choices& pins = request_.pins;
  const bool is_free = c.relief != Relief::kLeaveAsGiven && c.relief != Relief::kMoveAndLeave;
  if (is_free && !pins.recompute && !pins.host_activations.value_or(false))
    plan.activations = least_given_up(memory, kNoRoom, Activation::kRecompute);
  const Room room = room_of_rank({});
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max() / 2;
  if (c.relief != Relief::kRecompute) {
    // No more than must leaves the device, and where there is a disk all of that goes there.
    Room most{.device = room.device - memory.least_bytes(plan.activations) + memory.of_homes.persistent[at(Tier::kDevice)] +
                        memory.of_homes.waiting[at(Tier::kDevice)],
              .host = has_disk() ? 1 : kAll,
              .disk = has_disk() ? kAll : 0};
    plan.homes = choose_homes(bench_, plan, most, home_rules(plan));
    memory.set_homes(bench_, plan);
  }
  const Candidate::TierBytes least{memory.least_bytes(plan.activations), memory.least_host_bytes(plan.activations), 0};
  return sum_of(missing_bytes(plan, least, room)) == 0;
}

Candidate::TierBytes Walk::missing_bytes(const spec::Plan& plan, const Candidate::TierBytes& needed, const Room& room) const {
  const auto beyond = [&](Tier tier, std::int64_t given) { return std::max<std::int64_t>(0, needed[at(tier)] - given); };
  const std::int64_t ranks = bench_.ranks_per_node();
  const bool is_host_limited = request_.budget.host_bytes > 0 || tiers_used(plan) > 0;
  return {beyond(Tier::kDevice, room.device), is_host_limited ? beyond(Tier::kHost, room.host) * ranks : 0,
          beyond(Tier::kDisk, room.disk) * ranks};
}

}  // namespace sluice::plan
