#include "plan/bounds.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include "base/units.hpp"
#include "plan/homes.hpp"
#include "schedule/place.hpp"
#include "schedule/staging.hpp"

namespace sluice::plan {
namespace {

using chunks::Plane;
using model::Phase;
using schedule::kBufferAlignment;
using schedule::Lane;
using schedule::Resource;
using spec::Activation;
using spec::Tier;

constexpr std::int64_t kFloat = sizeof(float);

bool moves(Activation activation) {
  return activation == Activation::kHost || activation == Activation::kDisk;
}

std::int64_t aligned(std::int64_t bytes) {
  return round_up(bytes, kBufferAlignment);
}

std::int64_t padded(std::int64_t bytes) {
  return round_up(bytes, schedule::kDiskAlignment);
}

std::size_t at(Tier tier) {
  return static_cast<std::size_t>(tier);
}

}  // namespace

/// What is alive at the worst moment: `forward(s)` and `backward(s)` beside what segment s itself and those before it save.
template <typename Forward, typename Backward>
std::int64_t MemoryBound::most_of_segments(const Activations& activations, Forward forward, Backward backward) const {
  std::int64_t most = 0, kept = 0;
  for (std::size_t s = 0; s < saved_bytes.size(); ++s) {
    const bool is_kept = activations[s] == Activation::kKeep;
    const std::int64_t own = is_kept && s + 1 < saved_bytes.size() ? stack * saved_bytes[s] : saved_bytes[s];
    // Its own saved tensors stand in its backward and, unless they stay in staging, in its forward, kept or not.
    const bool in_forward = is_kept || moves(activations[s]) || forward_stores_saved;
    most = std::max(most, kept + std::max((in_forward ? own : 0) + forward(s), own + backward(s)));
    if (is_kept) kept += own;
  }
  return of_homes.persistent[at(Tier::kDevice)] + of_homes.waiting[at(Tier::kDevice)] + most;
}

std::int64_t MemoryBound::bytes(const Activations& activations) const {
  const auto backward = [&](std::size_t s) {
    const std::int64_t passing = of_homes.passing_device.empty() ? 0 : of_homes.passing_device[s];
    return backward_bytes[s] + returning(activations, s) + passing;
  };
  return rcache_bytes + of_homes.gradient_part +
         most_of_segments(
             activations, [&](std::size_t s) { return forward_bytes[s]; }, backward);
}

std::int64_t MemoryBound::least_bytes(const Activations& activations) const {
  const auto there = [](const std::vector<std::int64_t>& each, std::size_t s) { return each.empty() ? 0 : each[s]; };
  return most_of_segments(
      activations, [&](std::size_t s) { return forward_bytes[s] + there(gathered.forward, s); },
      [&](std::size_t s) { return backward_bytes[s] - there(uncertain_bytes, s) + there(gathered.backward, s); });
}

/// On their way back while segment s runs backward: those of the items that follow.
std::int64_t MemoryBound::returning(const Activations& activations, std::size_t s) const {
  std::int64_t bytes = 0;
  int ahead = returns_ahead;
  if (stack > 1) return moves(activations[s]) ? std::min<std::int64_t>(ahead, stack - 1) * saved_bytes[s] : 0;
  while (s-- > 0 && ahead > 0) {
    ahead -= activations[s] == Activation::kRecompute ? 2 : 1;
    if (ahead >= 0 && moves(activations[s])) bytes += saved_bytes[s];
  }
  return bytes;
}

std::int64_t MemoryBound::host_bytes(const Activations& activations) const {
  const auto [there, through] = activations_off_device(activations);
  // On its way to disk or back, the next ones behind it.
  const std::int64_t in_pass = token_bytes + there + (1 + returns_ahead) * through + of_homes.read_staging + of_homes.sum_staging;
  // Updates beside a pass begin before, or end after, most of its activations are there.
  return of_homes.persistent[at(Tier::kHost)] + of_homes.waiting[at(Tier::kHost)] + of_homes.passing_host +
         std::max(in_pass, of_homes.update_staging);
}

std::int64_t MemoryBound::least_host_bytes(const Activations& activations) const {
  const auto [there, through] = activations_off_device(activations);
  const std::int64_t in_pass = token_bytes + std::max({there, through, of_homes.read_staging_least, of_homes.sum_staging_least});
  return of_homes.persistent[at(Tier::kHost)] + of_homes.waiting[at(Tier::kHost)] + std::max(in_pass, of_homes.update_staging_least);
}

/// Of what segments save: bytes that stand in host memory, and the most that a segment sends through it to disk.
std::pair<std::int64_t, std::int64_t> MemoryBound::activations_off_device(const Activations& activations) const {
  std::int64_t there = 0, through = 0;
  for (std::size_t s = 0; s < saved_bytes.size(); ++s) {
    if (activations[s] == Activation::kHost) there += stack * saved_bytes[s];
    if (activations[s] == Activation::kDisk) through = std::max(through, padded(saved_bytes[s]));
  }
  return {there, through};
}

std::int64_t MemoryBound::disk_bytes(const Activations& activations) const {
  std::int64_t bytes = of_homes.persistent[at(Tier::kDisk)];
  for (std::size_t s = 0; s < saved_bytes.size(); ++s) {
    if (activations[s] == Activation::kDisk) bytes += stack * padded(saved_bytes[s]);
  }
  return bytes;
}

void MemoryBound::set_homes(Workbench& bench, const spec::Plan& plan) {
  of_homes = home_bytes(bench, plan);
  returns_ahead = std::max(1, plan.prefetch_segments);
  if (plan.zero_stage != 3) return;
  rcache_bytes = plan.rcache_elements * bench.layout(plan.chunk_elements).element_bytes(Plane::kWorking);
  gathered = bench.gathered(plan);
}

MemoryBound memory_bound(Workbench& bench, const spec::Plan& plan) {
  const model::Model& model = bench.model();
  const chunks::ChunkLayout& layout = bench.layout(plan.chunk_elements);
  const model::Shape shape{plan.micro_batch, bench.request().training.batch.sequence_length};
  const schedule::PriceList list(bench.request().machine, bench.ranks(), plan.threads);
  const std::size_t segments = model.segments.size();
  const auto first_trained = static_cast<std::size_t>(schedule::first_trained_segment(model, layout.grouping()));
  const DType storage = layout.storage();
  const std::int64_t activation = aligned(schedule::stored_activation_bytes(model, shape, storage));
  MemoryBound bound;
  bound.forward_stores_saved = storage == DType::kF32;
  bound.stack = plan.order == spec::MicroBatchOrder::kLayerByLayer ? plan.accumulation : 1;
  bound.token_bytes = schedule::token_bytes(shape.rows, shape.sequence, bench.request().training.document_attention) * plan.accumulation;
  bound.set_homes(bench, plan);
  bound.uncertain_bytes.resize(segments);

  // Gradients of a micro-batch stand whole from the first segment of backward that touches their run to the last; layer by layer
  // those of all micro-batches do, but within one segment one after the other.
  std::vector<std::int64_t> gradient_begins(segments, 0), gradient_ends(segments, 0);
  if (plan.zero_stage >= 2) {
    constexpr std::size_t kUnused = static_cast<std::size_t>(-1);
    std::vector<std::size_t> first(layout.runs().size(), kUnused), last(layout.runs().size(), kUnused);
    for (std::size_t s = segments; s-- > 0;) {
      for (const int param : model.segments[s]->params()) {
        if (!layout.grouping().trains(param)) continue;
        const auto run = static_cast<std::size_t>(layout.place(param).run);
        if (first[run] == kUnused) first[run] = s;
        last[run] = s;
      }
    }
    for (std::size_t r = 0; r < layout.runs().size(); ++r) {
      if (first[r] == kUnused) continue;
      const std::int64_t bytes = aligned(layout.runs()[r].elements * kFloat) * (first[r] == last[r] ? 1 : bound.stack);
      gradient_begins[first[r]] += bytes;
      gradient_ends[last[r]] += bytes;
      if (first[r] != last[r]) bound.uncertain_bytes[first[r]] += bytes - bytes / bound.stack;
    }
  }

  bound.forward_bytes.resize(segments);
  bound.backward_bytes.resize(segments);
  bound.saved_bytes.resize(segments);
  bound.recompute_seconds.assign(segments, 0);
  std::map<model::SegmentKind, double> seconds_of_kind;
  std::int64_t gradients = 0;
  for (std::size_t s = segments; s-- > 0;) {
    const model::Segment& segment = *model.segments[s];
    const bool is_head = s + 1 == segments;
    const bool has_backward = s >= first_trained;
    // Inputs of this segment and of those before that have a backward; the embedding's is no activation.
    const std::size_t first_input = std::max<std::size_t>(1, first_trained);
    const auto inputs = static_cast<std::int64_t>(has_backward ? s + 1 - std::min(s + 1, first_input) : std::min<std::size_t>(s, 1)) *
                        activation * bound.stack;
    const auto scratch = [&](Phase phase) {
      return aligned(segment.workspace_bytes(phase, shape, plan.threads)) +
             aligned(schedule::make_staging(model, segment, phase, shape, storage, true).bytes);
    };
    gradients += gradient_begins[s];
    bound.forward_bytes[s] = is_head ? 0 : inputs + bound.stack * activation + scratch(Phase::kForward);
    const std::int64_t saved = aligned(schedule::stored_saved_bytes(segment, shape, storage));
    if (!has_backward && !is_head) {
      if (bound.forward_stores_saved) bound.forward_bytes[s] += saved;
      continue;
    }
    // As a micro-batch's gradient of an activation comes its input goes.
    if (is_head) bound.uncertain_bytes[s] += (bound.stack - 1) * activation;
    bound.backward_bytes[s] = inputs + bound.stack * activation + gradients + scratch(is_head ? Phase::kForwardBackward : Phase::kBackward);
    gradients -= gradient_ends[s];
    bound.saved_bytes[s] = saved;
    if (!segment.has_phase(Phase::kRecompute)) continue;
    const auto [it, is_new] = seconds_of_kind.try_emplace(segment.kind(), 0);
    if (is_new) it->second = list.alone_seconds(list.compute(model, layout.grouping(), segment, Phase::kRecompute, shape, true));
    bound.recompute_seconds[s] = it->second;
  }
  return bound;
}

Activations least_given_up(const MemoryBound& memory, std::int64_t bytes, Activation to) {
  std::vector<std::size_t> order;
  for (std::size_t s = 0; s < memory.saved_bytes.size(); ++s) {
    const bool may = to == Activation::kRecompute ? memory.recompute_seconds[s] > 0 : s + 1 < memory.saved_bytes.size();
    if (memory.saved_bytes[s] > 0 && may) order.push_back(s);
  }
  const auto worth = [&](std::size_t s) { return static_cast<double>(memory.saved_bytes[s]) / memory.recompute_seconds[s]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return worth(a) != worth(b) ? worth(a) > worth(b) : a > b; });
  const auto first_of_order = [&](std::size_t count) {
    Activations activations(memory.saved_bytes.size(), Activation::kKeep);
    for (std::size_t i = 0; i < count; ++i) activations[order[i]] = to;
    return activations;
  };
  // More of that never needs more bytes, so the least count is found by halving.
  std::size_t few = 0, many = order.size();
  while (few < many) {
    const std::size_t middle = (few + many) / 2;
    if (memory.bytes(first_of_order(middle)) <= bytes) {
      many = middle;
    } else {
      few = middle + 1;
    }
  }
  return first_of_order(few);
}

double seconds_bound(Workbench& bench, const spec::Plan& plan) {
  const model::Model& whole = bench.model();
  const chunks::ChunkLayout& layout = bench.layout(plan.chunk_elements);
  const model::Shape shape{plan.micro_batch, bench.request().training.batch.sequence_length};
  const schedule::PriceList list(bench.request().machine, bench.ranks(), plan.threads);
  const double micros = static_cast<double>(plan.accumulation);
  std::array<double, schedule::kLaneCount> lanes{};
  std::array<double, schedule::kSharedResourceCount> wanted{};
  const auto lane_at = [](Lane lane) { return static_cast<std::size_t>(lane); };
  const auto charge = [&](Lane lane, const schedule::Price& price, double times) {
    // Latencies of tasks in flight pass side by side.
    const double latency = schedule::is_asynchronous(lane) ? price.latency_seconds : 0;
    lanes[lane_at(lane)] += times * (list.alone_seconds(price) - latency);
    for (int r = 0; r < schedule::kSharedResourceCount; ++r)
      wanted[static_cast<std::size_t>(r)] += times * schedule::amount_of(price, static_cast<Resource>(r));
  };
  const bool communicates = bench.ranks() > 1;
  bool moves_anything = false;
  const auto move = [&](Lane lane, std::int64_t bytes, double times) {
    moves_anything = true;
    charge(lane, list.move(lane, bytes, false), times);
  };
  const auto first_trained = static_cast<std::size_t>(schedule::first_trained_segment(whole, layout.grouping()));
  // Segments of a kind are alike but for what of them is frozen.
  std::map<std::tuple<model::SegmentKind, Phase, bool, std::vector<bool>>, schedule::Price> known;
  for (std::size_t s = 0; s < whole.segments.size(); ++s) {
    const model::Segment& segment = *whole.segments[s];
    std::vector<bool> trained;
    for (const int param : segment.params()) trained.push_back(layout.grouping().trains(param));
    const bool has_backward = s >= first_trained;
    for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kForwardBackward}) {
      if (!segment.has_phase(phase)) continue;
      if (phase == Phase::kForward && segment.has_phase(Phase::kForwardBackward)) continue;  // the head
      if (phase == Phase::kRecompute && (!plan.recomputes(s) || !has_backward)) continue;
      if (phase == Phase::kBackward && !has_backward) continue;
      const std::tuple key{segment.kind(), phase, phase != Phase::kForward || (!plan.recomputes(s) && has_backward), trained};
      auto it = known.find(key);
      if (it == known.end())
        it = known.emplace(key, list.compute(whole, layout.grouping(), segment, phase, shape, std::get<bool>(key))).first;
      charge(Lane::kCompute, it->second, micros);
    }
    if (!moves(plan.activations[s]) || !has_backward || s + 1 == whole.segments.size()) continue;
    const std::int64_t saved = schedule::stored_saved_bytes(segment, shape, layout.storage());
    if (saved == 0) continue;
    move(Lane::kDownload, saved, micros);
    move(Lane::kUpload, saved, micros);
    if (plan.activations[s] != Activation::kDisk) continue;
    move(Lane::kDiskWrite, padded(saved), micros);
    move(Lane::kDiskRead, padded(saved), micros);
  }
  double passes = 1;
  if (plan.zero_stage == 3) {  // but for the working parameters that stay from one pass to the next
    const double kept = std::min(1.0, static_cast<double>(plan.rcache_elements) / static_cast<double>(layout.elements()));
    passes = 1 + (1 - kept) * (plan.order == spec::MicroBatchOrder::kLayerByLayer ? 1 : 2 * micros - 1);
  }
  // Chunks of one size and home are alike, trained or frozen.
  std::map<std::tuple<std::int64_t, bool, Tier, Tier, Tier>, double> alike;
  for (std::size_t c = 0; c < layout.chunks().size(); ++c) {
    const chunks::Chunk& chunk = layout.chunks()[c];
    const spec::ChunkHomes home = plan.home(c);
    alike[{chunk.elements, layout.trains(chunk), home.working, home.gradient, home.states}] += 1;
  }
  for (const auto& [chunk, count] : alike) {
    const auto& [elements, is_trained, working, gradient, states] = chunk;
    const std::int64_t part = plan.zero_stage == 0 ? elements : chunks::largest_shard(elements, bench.ranks());
    const std::int64_t working_bytes = part * layout.element_bytes(Plane::kWorking);
    if (plan.zero_stage == 3) {
      charge(Lane::kGatherComm, list.gather(elements, layout.element_bytes(Plane::kWorking), working == Tier::kDevice), count * passes);
      if (working != Tier::kDevice) move(Lane::kUpload, working_bytes, count * passes);
      // With next_forward the first pass takes them from where they were updated.
      const double updated = is_trained && plan.update_mode == spec::UpdateMode::kNextForward ? 1 : 0;
      if (working == Tier::kDisk) move(Lane::kDiskRead, padded(working_bytes), count * (passes - updated));
    }
    if (!is_trained) continue;  // gathered for its uses, and that is all
    const bool on_host = states != Tier::kDevice;
    charge(on_host ? Lane::kHostCompute : Lane::kCompute, list.update(part, layout.grouping(), on_host), count);
    const bool norm_on_host = gradient != Tier::kDevice;
    charge(norm_on_host ? Lane::kHostCompute : Lane::kCompute, list.norm(chunks::largest_shard(elements, bench.ranks()), norm_on_host),
           count);
    if (communicates || plan.zero_stage >= 2)  // else in place
      charge(Lane::kScatterComm, list.scatter(elements, false), count * (plan.zero_stage >= 2 ? micros : 1));
    // ZeRO 0 gathers reduced gradients, 1 and 2 working parameters.
    if (plan.zero_stage < 3) {
      const Plane plane = plan.zero_stage == 0 ? Plane::kGradient : Plane::kWorking;
      charge(Lane::kGatherComm, list.gather(elements, layout.element_bytes(plane), false), count);
    }
    if (norm_on_host) move(Lane::kDownload, part * kFloat, count * micros);
    if (gradient == Tier::kDisk) {  // layer by layer the sum over micro-batches goes there once, else there and back with each
      const double sums = plan.order == spec::MicroBatchOrder::kLayerByLayer ? 1 : micros;
      move(Lane::kDiskWrite, padded(part * kFloat), count * sums);
      move(Lane::kDiskRead, padded(part * kFloat), count * (sums - 1));
    }
    if (!on_host) continue;
    // What the update reads or writes elsewhere.
    const auto fetch = [&, count = count](Plane plane, Tier home, bool reads, bool writes) {
      const std::int64_t bytes = part * layout.element_bytes(plane);
      if (home == Tier::kDevice && reads) move(Lane::kDownload, bytes, count);
      if (home == Tier::kDevice && writes) move(Lane::kUpload, bytes, count);
      if (home == Tier::kDisk && reads) move(Lane::kDiskRead, padded(bytes), count);
      if (home == Tier::kDisk && writes) move(Lane::kDiskWrite, padded(bytes), count);
    };
    fetch(Plane::kGradient, gradient, true, false);
    fetch(Plane::kWorking, working, !layout.has_master(), true);
    if (layout.has_master()) fetch(Plane::kMaster, states, true, true);
    for (int moment = 0; moment < layout.grouping().moments; ++moment) fetch(Plane::kMoment1, states, true, true);
  }
  if (!communicates && !moves_anything) return std::accumulate(lanes.begin(), lanes.end(), 0.0);
  const schedule::Capacities& have = list.capacities();
  double most = schedule::disk_seconds(list, wanted[static_cast<std::size_t>(Resource::kDiskRead)],
                                       wanted[static_cast<std::size_t>(Resource::kDiskWrite)]);
  for (const double lane : lanes) most = std::max(most, lane);
  for (std::size_t r = 0; r < schedule::kSharedResourceCount; ++r) most = std::max(most, wanted[r] / have[r]);
  return most;
}

}  // namespace sluice::plan
