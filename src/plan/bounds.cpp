#include "plan/bounds.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/units.hpp"
#include "schedule/place.hpp"
#include "schedule/staging.hpp"

namespace sluice::plan {
namespace {

using chunks::Plane;
using model::Phase;
using schedule::kBufferAlignment;

constexpr std::int64_t kFloat = sizeof(float);

std::int64_t aligned(std::int64_t bytes) {
  return round_up(bytes, kBufferAlignment);
}

std::int64_t persistent_bytes(const chunks::ChunkLayout& layout, int zero_stage, int ranks) {
  std::int64_t bytes = 0;
  for (int p = 0; p < chunks::kPlaneCount; ++p) {
    const auto plane = static_cast<Plane>(p);
    const std::int64_t element = layout.element_bytes(plane);
    for (const chunks::Run& run : layout.runs()) {
      const auto first = static_cast<std::size_t>(run.first_chunk);
      if (!layout.has(plane, layout.chunks()[first])) continue;
      if (!chunks::is_sharded(plane, zero_stage)) {
        bytes += aligned(run.elements * element);
        continue;
      }
      for (std::size_t c = first; c < first + static_cast<std::size_t>(run.chunk_count); ++c)
        bytes += aligned(chunks::largest_shard(layout.chunks()[c].elements, ranks) * element);
    }
  }
  return bytes;
}

}  // namespace

std::int64_t MemoryBound::bytes(const Activations& activations) const {
  std::int64_t most = 0, kept = 0;
  const auto is_kept = [&](std::size_t s) { return activations[s] == spec::Activation::kKeep; };
  for (std::size_t s = 0; s < saved_bytes.size(); ++s) {
    // Its own saved tensors stand in its backward and, unless they stay in staging, in its forward, kept or not.
    const std::int64_t in_forward = is_kept(s) || forward_stores_saved ? saved_bytes[s] : 0;
    most = std::max(most, kept + std::max(in_forward + forward_bytes[s], saved_bytes[s] + backward_bytes[s]));
    if (is_kept(s)) kept += saved_bytes[s];
  }
  return persistent_bytes + rcache_bytes + most;
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
  bound.persistent_bytes = persistent_bytes(layout, plan.zero_stage, bench.ranks());
  if (plan.zero_stage == 3) bound.rcache_bytes = plan.rcache_elements * layout.element_bytes(Plane::kWorking);

  // Gradients of a micro-batch stand whole from the first segment of backward that touches their run to the last.
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
      gradient_begins[first[r]] += aligned(layout.runs()[r].elements * kFloat);
      gradient_ends[last[r]] += aligned(layout.runs()[r].elements * kFloat);
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
    const auto inputs =
        static_cast<std::int64_t>(has_backward ? s + 1 - std::min(s + 1, first_input) : std::min<std::size_t>(s, 1)) * activation;
    const auto scratch = [&](Phase phase) {
      return aligned(segment.workspace_bytes(phase, shape, plan.threads)) +
             aligned(schedule::make_staging(model, segment, phase, shape, storage, true).bytes);
    };
    gradients += gradient_begins[s];
    bound.forward_bytes[s] = is_head ? 0 : inputs + activation + scratch(Phase::kForward);
    const std::int64_t saved = aligned(schedule::stored_saved_bytes(segment, shape, storage));
    if (!has_backward && !is_head) {
      if (bound.forward_stores_saved) bound.forward_bytes[s] += saved;
      continue;
    }
    bound.backward_bytes[s] = inputs + activation + gradients + scratch(is_head ? Phase::kForwardBackward : Phase::kBackward);
    gradients -= gradient_ends[s];
    bound.saved_bytes[s] = saved;
    if (!segment.has_phase(Phase::kRecompute)) continue;
    const auto [it, is_new] = seconds_of_kind.try_emplace(segment.kind(), 0);
    if (is_new) it->second = list.alone_seconds(list.compute(model, layout.grouping(), segment, Phase::kRecompute, shape, true));
    bound.recompute_seconds[s] = it->second;
  }
  return bound;
}

Activations least_recompute(const MemoryBound& memory, std::int64_t bytes) {
  std::vector<std::size_t> order;
  for (std::size_t s = 0; s < memory.saved_bytes.size(); ++s) {
    if (memory.saved_bytes[s] > 0 && memory.recompute_seconds[s] > 0) order.push_back(s);
  }
  const auto worth = [&](std::size_t s) { return static_cast<double>(memory.saved_bytes[s]) / memory.recompute_seconds[s]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return worth(a) != worth(b) ? worth(a) > worth(b) : a > b; });
  const auto first_of_order = [&](std::size_t count) {
    Activations activations(memory.saved_bytes.size(), spec::Activation::kKeep);
    for (std::size_t i = 0; i < count; ++i) activations[order[i]] = spec::Activation::kRecompute;
    return activations;
  };
  // More recomputation never needs more bytes, so the least count is found by halving.
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
  const auto at = [](schedule::Resource r) { return static_cast<std::size_t>(r); };
  double caller = 0, gathers = 0, scatters = 0, core_seconds = 0, memory_bytes = 0, comm_thread = 0, link_bytes = 0;
  const auto charge = [&](double& lane, const schedule::Price& price, double times) {
    lane += times * list.alone_seconds(price);
    core_seconds += times * price.core_seconds;
    memory_bytes += times * price.memory_bytes;
    comm_thread += times * price.comm_thread_seconds;
    link_bytes += times * price.link_bytes;
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
      charge(caller, it->second, micros);
    }
  }
  double kept_part = 1;  // of the working parameters that stay from one pass to the next
  if (plan.zero_stage == 3) kept_part = std::min(1.0, static_cast<double>(plan.rcache_elements) / static_cast<double>(layout.elements()));
  // Chunks of one size are alike, trained or frozen.
  std::map<std::pair<std::int64_t, bool>, double> chunk_sizes;
  for (const chunks::Chunk& chunk : layout.chunks()) chunk_sizes[{chunk.elements, layout.trains(chunk)}] += 1;
  for (const auto& [size, count] : chunk_sizes) {
    const auto [elements, is_trained] = size;
    if (!is_trained) {  // gathered for its uses, and that is all
      if (plan.zero_stage == 3) charge(gathers, list.gather(elements, layout.element_bytes(Plane::kWorking), true), count);
      continue;
    }
    const std::int64_t shard = chunks::largest_shard(elements, bench.ranks());
    charge(caller, list.update(plan.zero_stage == 0 ? elements : shard, layout.grouping()), count);
    charge(caller, list.norm(shard), count);
    charge(scatters, list.scatter(elements, false), count * (plan.zero_stage >= 2 ? micros : 1));
    const double passes = plan.zero_stage == 3 ? 1 + (1 - kept_part) * (2 * micros - 1) : 1;
    // ZeRO 0 gathers reduced gradients, the others working parameters.
    const std::int64_t element = layout.element_bytes(plan.zero_stage == 0 ? Plane::kGradient : Plane::kWorking);
    charge(gathers, list.gather(elements, element, plan.zero_stage == 3), count * passes);
  }
  if (bench.ranks() == 1) return plan.zero_stage == 3 ? caller + gathers : caller;  // the others have nothing to move
  const schedule::Capacities& have = list.capacities();
  return std::max({caller, gathers, scatters, core_seconds / have[at(schedule::Resource::kCores)],
                   memory_bytes / have[at(schedule::Resource::kMemory)], comm_thread / have[at(schedule::Resource::kCommThread)],
                   link_bytes / have[at(schedule::Resource::kLink)]});
}

}  // namespace sluice::plan
