#include "plan/workbench.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/units.hpp"
#include "chunks/residency.hpp"
#include "model/build.hpp"
#include "parallel/unsharded.hpp"

namespace sluice::plan {
namespace {

using model::Phase;
using model::SegmentKind;
using spec::Activation;

}  // namespace

Workbench::Workbench(const PlanRequest& request)
    : request_(request),
      factory_(parallel::make_unsharded_modules()),
      model_(model::build_model(request.model, *factory_)),
      grouping_(optim::group_parameters(model_, request.training)) {}

int Workbench::ranks_per_node() const {
  return std::min(std::max(1, request_.machine.ranks_per_node), ranks());
}

const chunks::ChunkLayout& Workbench::layout(std::int64_t chunk_elements) {
  auto& layout = layouts_[chunk_elements];
  if (!layout) layout = std::make_unique<chunks::ChunkLayout>(model_.params, grouping_, chunk_elements);
  return *layout;
}

schedule::BuildInputs Workbench::inputs(const spec::Plan& plan) {
  schedule::BuildInputs inputs;
  inputs.model = &model_;
  inputs.layout = &layout(plan.chunk_elements);
  inputs.plan = plan;
  inputs.sequence_length = request_.training.batch.sequence_length;
  inputs.ranks = ranks();
  inputs.document_attention = request_.training.document_attention;
  inputs.needs_norm = optim::needs_norm(request_.training);
  inputs.segments_between_agrees = segments_between_agrees(plan.micro_batch);
  return inputs;
}

std::pair<std::int64_t, std::int64_t> Workbench::rcache_range(std::int64_t chunk_elements, int prefetch) {
  const std::pair key{chunk_elements, prefetch};
  const auto found = ranges_.find(key);
  if (found != ranges_.end()) return found->second;
  spec::Plan plan;
  plan.zero_stage = 3;
  plan.chunk_elements = chunk_elements;
  plan.prefetch_segments = prefetch;
  plan.threads = request_.threads;
  plan.mesh = request_.mesh;
  // Without recomputation neighbouring items differ most, and two micro-batches have every neighbourhood that more have.
  plan.accumulation = 2;
  plan.activations.assign(model_.segments.size(), spec::Activation::kKeep);
  const std::int64_t least = schedule::minimum_rcache_elements(inputs(plan));
  const std::pair range{least, std::max(least, layout(chunk_elements).elements())};
  ranges_.emplace(key, range);
  return range;
}

const Workbench::Gathered& Workbench::gathered(const spec::Plan& plan) {
  const bool all_at_once = plan.order == spec::MicroBatchOrder::kLayerByLayer;
  const auto [found, is_new] =
      gathered_.try_emplace({plan.chunk_elements, plan.rcache_elements, plan.prefetch_segments, all_at_once}, Gathered{});
  Gathered& gathered = found->second;
  if (!is_new) return gathered;
  const chunks::ChunkLayout& whole = layout(plan.chunk_elements);
  const std::size_t segments = model_.segments.size();
  const auto first_trained = static_cast<std::size_t>(schedule::first_trained_segment(model_, grouping_));
  std::vector<std::vector<int>> runs(segments);
  for (std::size_t s = 0; s < segments; ++s) {
    for (const int param : model_.segments[s]->params()) runs[s].push_back(whole.place(param).run);
    std::sort(runs[s].begin(), runs[s].end());
    runs[s].erase(std::unique(runs[s].begin(), runs[s].end()), runs[s].end());
  }
  std::vector<std::int64_t> elements;
  for (const chunks::Run& run : whole.runs()) elements.push_back(run.elements);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  gathered.forward.assign(segments, kMost);
  gathered.backward.assign(segments, kMost);
  // Of the first and the last micro-batch, with nothing and with everything recomputed, the least. Layer by layer a segment's
  // micro-batches follow each other, as one.
  for (const bool recomputes : {false, true}) {
    std::vector<std::pair<std::size_t, bool>> items;  // segment, backward
    for (int micro = 0; micro < (all_at_once ? 1 : 2); ++micro) {
      for (std::size_t s = 0; s < segments; ++s) items.emplace_back(s, s + 1 == segments);
      for (std::size_t s = segments - 1; s-- > first_trained;) {
        if (recomputes) items.emplace_back(s, true);
        items.emplace_back(s, true);
      }
    }
    std::vector<std::vector<int>> uses;
    for (const auto& [s, is_backward] : items) uses.push_back(runs[s]);
    std::vector<std::int64_t> change(items.size() + 1, 0);
    for (const chunks::Residency& stay : chunks::plan_residency(uses, elements, plan.rcache_elements, plan.prefetch_segments)) {
      const std::int64_t bytes = elements[static_cast<std::size_t>(stay.run)] * whole.element_bytes(chunks::Plane::kWorking);
      change[static_cast<std::size_t>(stay.gather_at)] += bytes;
      change[static_cast<std::size_t>(stay.end) + 1] -= bytes;
    }
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      bytes += change[i];
      const auto& [s, is_backward] = items[i];
      std::int64_t& least = (is_backward ? gathered.backward : gathered.forward)[s];
      least = std::min(least, bytes);
    }
  }
  for (std::size_t s = 0; s < segments; ++s) {
    if (gathered.forward[s] == kMost) gathered.forward[s] = 0;
    if (gathered.backward[s] == kMost) gathered.backward[s] = 0;
  }
  return gathered;
}

schedule::Simulation Workbench::simulate(const schedule::StepGraph& graph, const schedule::BuildInputs& inputs) const {
  const std::vector<schedule::Price> prices = schedule::price_tasks(graph, inputs, request_.machine);
  return schedule::simulate(graph, prices, request_.machine, {.ranks = inputs.ranks, .threading = schedule::threading_of(graph)});
}

bool Workbench::agrees(const spec::Plan& plan, const Choices& with) {
  const auto count = [&](Activation activation) { return std::count(plan.activations.begin(), plan.activations.end(), activation); };
  const bool any_recomputed = count(Activation::kRecompute) > 0, any_moved = count(Activation::kHost) + count(Activation::kDisk) > 0;
  const chunks::ChunkLayout& chunks = layout(plan.chunk_elements);
  bool states = true, working = true;
  for (std::size_t c = 0; c < chunks.chunks().size(); ++c) {
    states = states && (!with.states || !chunks.trains(chunks.chunks()[c]) || plan.home(c).states == *with.states);
    working = working && (!with.working || plan.home(c).working == *with.working);
  }
  bool activations = !with.recompute || *with.recompute == any_recomputed;
  if (with.host_activations) activations = *with.host_activations ? any_moved && !any_recomputed : activations && !any_moved;
  return states && working && activations && (!with.zero_stage || *with.zero_stage == plan.zero_stage) &&
         (!with.chunk_elements || *with.chunk_elements == plan.chunk_elements) &&
         (!with.rcache_elements || plan.zero_stage < 3 || *with.rcache_elements == plan.rcache_elements) &&
         (!with.prefetch_segments || *with.prefetch_segments == plan.prefetch_segments) &&
         (!with.update_mode || *with.update_mode == plan.update_mode) && (!with.order || *with.order == plan.order);
}

int Workbench::segments_between_agrees(std::int64_t micro_batch) {
  const auto found = between_agrees_.find(micro_batch);
  if (found != between_agrees_.end()) return found->second;
  constexpr double kApart = 1.0;  // seconds
  const schedule::PriceList list(request_.machine, ranks(), request_.threads);
  const model::Shape shape{micro_batch, request_.training.batch.sequence_length};
  double longest = 0, sum = 0;
  std::map<std::pair<SegmentKind, Phase>, double> known;
  for (const auto& segment : model_.segments) {
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kForwardBackward}) {
      const bool is_head = segment->has_phase(Phase::kForwardBackward);
      if (!segment->has_phase(phase) || (is_head && phase == Phase::kForward)) continue;
      const auto [it, is_new] = known.try_emplace({segment->kind(), phase}, 0);
      if (is_new) it->second = list.alone_seconds(list.compute(model_, grouping_, *segment, phase, shape, true));
      longest = std::max(longest, it->second);
      sum += it->second;
    }
  }
  const int between = sum <= kApart ? 0 : std::max(1, static_cast<int>(kApart / longest));
  between_agrees_.emplace(micro_batch, between);
  return between;
}

double reduced_seconds(Workbench& bench, const spec::Plan& plan) {
  const auto seconds_of = [&](std::int64_t micros) {
    spec::Plan reduced = plan;
    reduced.accumulation = micros;
    const schedule::BuildInputs inputs = bench.inputs(reduced);
    return bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs).seconds;
  };
  // The first micro-batches differ, and where buffers stand may alternate from one to the next: the slope is that of two.
  if (plan.accumulation <= kReducedMicroBatches + 2) return seconds_of(plan.accumulation);
  const double few = seconds_of(kReducedMicroBatches), more = seconds_of(kReducedMicroBatches + 2);
  return few + static_cast<double>(plan.accumulation - kReducedMicroBatches) * (more - few) / 2;
}

}  // namespace sluice::plan
