#include "plan/bounds.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/units.hpp"
#include "schedule/place.hpp"

namespace sluice::plan {
namespace {

using chunks::Plane;
using model::Phase;
using schedule::kBufferAlignment;

constexpr std::int64_t kFloat = sizeof(float);

std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, kBufferAlignment); }

std::int64_t persistent_bytes(const chunks::ChunkLayout& layout, int zero_stage, int ranks) {
  std::int64_t bytes = 0;
  for (int p = 0; p < chunks::kPlaneCount; ++p) {
    if (chunks::is_sharded(static_cast<Plane>(p), zero_stage)) {
      for (const chunks::Chunk& chunk : layout.chunks()) bytes += aligned(chunks::largest_shard(chunk.elements, ranks) * kFloat);
    } else {
      for (const chunks::Run& run : layout.runs()) bytes += aligned(run.elements * kFloat);
    }
  }
  return bytes;
}

}  // namespace

std::int64_t MemoryBound::bytes(const std::vector<std::uint8_t>& recompute) const {
  std::int64_t sum = persistent_bytes + activation_bytes + always_saved_bytes + short_lived_bytes;
  for (std::size_t s = 0; s < saved_bytes.size(); ++s) {
    if (recompute[s] == 0) sum += saved_bytes[s];
  }
  return sum;
}

MemoryBound memory_bound(Workbench& bench, const spec::Plan& plan) {
  const model::Model& whole = bench.model();
  const chunks::ChunkLayout& layout = bench.layout(bench.layers(), plan.chunk_elements);
  const model::Shape shape{plan.micro_batch, bench.request().training.batch.sequence_length};
  const schedule::PriceList list(bench.request().machine, bench.ranks(), plan.threads);
  const int segments = static_cast<int>(whole.segments.size());
  const std::int64_t activation = aligned(whole.activation_bytes(shape));
  MemoryBound bound;
  bound.persistent_bytes = persistent_bytes(layout, plan.zero_stage, bench.ranks());
  bound.activation_bytes = activation * (segments - 1);
  bound.saved_bytes.assign(whole.segments.size(), 0);
  bound.recompute_seconds.assign(whole.segments.size(), 0);
  std::map<model::SegmentKind, double> recompute_seconds;
  for (std::size_t s = 0; s < whole.segments.size(); ++s) {
    const model::Segment& segment = *whole.segments[s];
    const std::int64_t saved = aligned(segment.saved_bytes(shape));
    if (!segment.has_phase(Phase::kRecompute)) {
      bound.always_saved_bytes += saved;
      continue;
    }
    bound.saved_bytes[s] = saved;
    const auto [it, is_new] = recompute_seconds.try_emplace(segment.kind(), 0);
    if (is_new) it->second = list.alone_seconds(list.compute(segment, whole.spec.hidden, Phase::kRecompute, shape));
    bound.recompute_seconds[s] = it->second;
  }

  // Gradients of a micro-batch stand whole from the first segment of backward that touches their run to the last.
  std::vector<std::int64_t> gradient_change(whole.segments.size() + 1, 0);  // by place in backward
  if (plan.zero_stage >= 2) {
    std::vector<int> first(layout.runs().size(), -1), last(layout.runs().size(), -1);
    for (int place = 0; place < segments; ++place) {
      for (const int param : whole.segments[static_cast<std::size_t>(segments - 1 - place)]->params()) {
        const auto run = static_cast<std::size_t>(layout.place(param).run);
        if (first[run] < 0) first[run] = place;
        last[run] = place;
      }
    }
    for (std::size_t r = 0; r < layout.runs().size(); ++r) {
      if (first[r] < 0) continue;
      const std::int64_t bytes = aligned(layout.runs()[r].elements * kFloat);
      gradient_change[static_cast<std::size_t>(first[r])] += bytes;
      gradient_change[static_cast<std::size_t>(last[r]) + 1] -= bytes;
    }
  }
  std::int64_t gradients = 0;
  for (int s = 0; s < segments; ++s) {  // forward
    const model::Segment& segment = *whole.segments[static_cast<std::size_t>(s)];
    if (s < segments - 1) bound.short_lived_bytes = std::max(bound.short_lived_bytes, aligned(segment.workspace_bytes(Phase::kForward, shape, plan.threads)));
  }
  for (int place = 0; place < segments; ++place) {  // backward
    gradients += gradient_change[static_cast<std::size_t>(place)];
    const model::Segment& segment = *whole.segments[static_cast<std::size_t>(segments - 1 - place)];
    const Phase phase = place == 0 ? Phase::kForwardBackward : Phase::kBackward;
    const std::int64_t bytes = gradients + activation + aligned(segment.workspace_bytes(phase, shape, plan.threads));
    bound.short_lived_bytes = std::max(bound.short_lived_bytes, bytes);
  }
  if (plan.zero_stage == 3) bound.short_lived_bytes += plan.rcache_elements * kFloat;
  return bound;
}

std::vector<std::uint8_t> least_recompute(const MemoryBound& memory, std::int64_t bytes) {
  std::vector<std::uint8_t> recompute(memory.saved_bytes.size(), 0);
  std::int64_t over = memory.bytes(recompute) - bytes;
  if (over <= 0) return recompute;
  std::vector<std::size_t> order;
  for (std::size_t s = 0; s < memory.saved_bytes.size(); ++s) {
    if (memory.saved_bytes[s] > 0) order.push_back(s);
  }
  const auto worth = [&](std::size_t s) { return static_cast<double>(memory.saved_bytes[s]) / std::max(memory.recompute_seconds[s], 1e-12); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return worth(a) != worth(b) ? worth(a) > worth(b) : a > b; });
  // What is recomputed stands beside everything else once, while its segment's backward runs.
  std::int64_t beside = 0;
  for (const std::size_t s : order) {
    if (over + beside <= 0) break;
    recompute[s] = 1;
    over -= memory.saved_bytes[s];
    beside = std::max(beside, memory.saved_bytes[s]);
  }
  return recompute;
}

double seconds_bound(Workbench& bench, const spec::Plan& plan) {
  const model::Model& whole = bench.model();
  const chunks::ChunkLayout& layout = bench.layout(bench.layers(), plan.chunk_elements);
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
  std::map<std::pair<model::SegmentKind, Phase>, schedule::Price> known;
  for (std::size_t s = 0; s < whole.segments.size(); ++s) {
    const model::Segment& segment = *whole.segments[s];
    for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kForwardBackward}) {
      if (!segment.has_phase(phase)) continue;
      if (phase == Phase::kForward && segment.has_phase(Phase::kForwardBackward)) continue;  // the head
      if (phase == Phase::kRecompute && plan.recompute[s] == 0) continue;
      auto it = known.find({segment.kind(), phase});
      if (it == known.end()) it = known.emplace(std::pair{segment.kind(), phase}, list.compute(segment, whole.spec.hidden, phase, shape)).first;
      charge(caller, it->second, micros);
    }
  }
  double kept_part = 1;  // of the working parameters that stay from one pass to the next
  if (plan.zero_stage == 3) kept_part = std::min(1.0, static_cast<double>(plan.rcache_elements) / static_cast<double>(layout.elements()));
  // Chunks of one size are alike.
  std::map<std::int64_t, double> chunk_sizes;
  for (const chunks::Chunk& chunk : layout.chunks()) chunk_sizes[chunk.elements] += 1;
  for (const auto& [elements, count] : chunk_sizes) {
    const std::int64_t shard = chunks::largest_shard(elements, bench.ranks());
    charge(caller, list.update(plan.zero_stage == 0 ? elements : shard), count);
    charge(caller, list.norm(shard), count);
    charge(scatters, list.scatter(elements, false), count * (plan.zero_stage >= 2 ? micros : 1));
    const double passes = plan.zero_stage == 3 ? 1 + (1 - kept_part) * (2 * micros - 1) : 1;
    charge(gathers, list.gather(elements, plan.zero_stage == 3), count * passes);
  }
  if (bench.ranks() == 1) return plan.zero_stage == 3 ? caller + gathers : caller;  // the others have nothing to move
  const schedule::Capacities& have = list.capacities();
  return std::max({caller, gathers, scatters, core_seconds / have[at(schedule::Resource::kCores)], memory_bytes / have[at(schedule::Resource::kMemory)],
                   comm_thread / have[at(schedule::Resource::kCommThread)], link_bytes / have[at(schedule::Resource::kLink)]});
}

}  // namespace sluice::plan
