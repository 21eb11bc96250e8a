#include "plan/workbench.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/units.hpp"
#include "model/gpt2.hpp"
#include "parallel/unsharded.hpp"

namespace sluice::plan {
namespace {

using model::Phase;
using model::SegmentKind;

/// Layers after which packing repeats: parameters fill whole chunks there, or nearly.
std::int64_t chunk_period(const model::Model& model, std::int64_t chunk_elements) {
  std::int64_t layer_elements = 0;
  for (const auto& segment : model.segments) {
    if (segment->layer() != 0) continue;
    for (const int param : segment->params()) layer_elements += model.params[static_cast<std::size_t>(param)].elements();
  }
  const double chunks_per_layer = static_cast<double>(layer_elements) / static_cast<double>(chunk_elements);
  constexpr std::int64_t kLongest = 8;
  std::int64_t best = 1;
  double least_misfit = 1;
  for (std::int64_t layers = 1; layers <= kLongest; ++layers) {
    const double chunks = chunks_per_layer * static_cast<double>(layers);
    const double misfit = chunks < 0.9 ? 1 : std::abs(chunks - std::round(chunks)) / chunks;
    if (misfit < least_misfit - 0.02) {
      least_misfit = misfit;
      best = layers;
    }
  }
  return least_misfit < 1 ? best : kLongest;
}

}  // namespace

Workbench::Workbench(const PlanRequest& request) : request_(request), factory_(parallel::make_unsharded_modules()) {}

int Workbench::ranks_per_node() const { return std::min(std::max(1, request_.machine.ranks_per_node), ranks()); }

Workbench::Depth& Workbench::depth(std::int64_t layers) {
  const auto found = depths_.find(layers);
  if (found != depths_.end()) return found->second;
  spec::ModelSpec spec = request_.model;
  spec.layers = layers;
  Depth made{model::build_model(spec, *factory_), {}, {}};
  made.grouping = optim::group_parameters(made.model.params, request_.training.optimizer);
  return depths_.emplace(layers, std::move(made)).first->second;
}

const model::Model& Workbench::model(std::int64_t layers) { return depth(layers).model; }

const chunks::ChunkLayout& Workbench::layout(std::int64_t layers, std::int64_t chunk_elements) {
  Depth& d = depth(layers);
  auto& layout = d.layouts[chunk_elements];
  if (!layout) layout = std::make_unique<chunks::ChunkLayout>(d.model.params, d.grouping, chunk_elements);
  return *layout;
}

schedule::BuildInputs Workbench::inputs(std::int64_t layers, const spec::Plan& plan) {
  schedule::BuildInputs inputs;
  inputs.model = &model(layers);
  inputs.layout = &layout(layers, plan.chunk_elements);
  inputs.plan = plan;
  inputs.sequence_length = request_.training.batch.sequence_length;
  inputs.ranks = ranks();
  inputs.clips = request_.training.optimizer.gradient_clipping > 0;
  inputs.segments_between_agrees = segments_between_agrees(plan.micro_batch);
  return inputs;
}

std::pair<std::int64_t, std::int64_t> Workbench::rcache_range(std::int64_t layers, std::int64_t chunk_elements, int prefetch) {
  const std::array<std::int64_t, 3> key{layers, chunk_elements, prefetch};
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
  plan.recompute.assign(model(layers).segments.size(), 0);
  const std::int64_t least = schedule::minimum_rcache_elements(inputs(layers, plan));
  const std::pair range{least, std::max(least, layout(layers, chunk_elements).elements())};
  ranges_.emplace(key, range);
  return range;
}

std::int64_t Workbench::rcache_at(std::int64_t layers, std::int64_t chunk_elements, int prefetch, double part) {
  const auto [least, whole] = rcache_range(layers, chunk_elements, prefetch);
  if (part >= 1) return whole;
  const auto more = static_cast<std::int64_t>(part * static_cast<double>(whole - least));
  return least + more / chunks::kBlock * chunks::kBlock;
}

schedule::Simulation Workbench::simulate(const schedule::StepGraph& graph, const schedule::BuildInputs& inputs) const {
  const std::vector<schedule::Price> prices = schedule::price_tasks(graph, inputs, request_.machine);
  return schedule::simulate(graph, prices, request_.machine, {.ranks = inputs.ranks});
}

int Workbench::segments_between_agrees(std::int64_t micro_batch) {
  const auto found = between_agrees_.find(micro_batch);
  if (found != between_agrees_.end()) return found->second;
  constexpr double kApart = 1.0;  // seconds
  const schedule::PriceList list(request_.machine, ranks(), request_.threads);
  const model::Shape shape{micro_batch, request_.training.batch.sequence_length};
  const model::Model& whole = model();
  double longest = 0, sum = 0;
  std::map<std::pair<SegmentKind, Phase>, double> known;
  for (const auto& segment : whole.segments) {
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kForwardBackward}) {
      const bool is_head = segment->has_phase(Phase::kForwardBackward);
      if (!segment->has_phase(phase) || (is_head && phase == Phase::kForward)) continue;
      const auto [it, is_new] = known.try_emplace({segment->kind(), phase}, 0);
      if (is_new) it->second = list.alone_seconds(list.compute(*segment, whole.spec.hidden, phase, shape));
      longest = std::max(longest, it->second);
      sum += it->second;
    }
  }
  const int between = sum <= kApart ? 0 : std::max(1, static_cast<int>(kApart / longest));
  between_agrees_.emplace(micro_batch, between);
  return between;
}

double reduced_seconds(Workbench& bench, const spec::Plan& plan, double rcache_part) {
  const std::int64_t layers = bench.layers();
  const model::Model& whole = bench.model();
  const std::int64_t period = chunk_period(whole, plan.chunk_elements);
  const std::int64_t few_layers = round_up(kReducedLayers, period), more_layers = 2 * few_layers;
  const bool reduces_layers = layers > more_layers;
  const bool reduces_micros = plan.accumulation > kReducedMicroBatches;

  const auto seconds_of = [&](std::int64_t depth, std::int64_t micros, const std::vector<std::uint8_t>& recompute) {
    spec::Plan small = plan;
    small.accumulation = micros;
    small.recompute = recompute;
    if (depth != layers && plan.zero_stage == 3) small.rcache_elements = bench.rcache_at(depth, plan.chunk_elements, plan.prefetch_segments, rcache_part);
    const schedule::BuildInputs inputs = bench.inputs(depth, small);
    return bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs).seconds;
  };
  const auto over_micros = [&](std::int64_t depth, const std::vector<std::uint8_t>& recompute) {
    if (!reduces_micros) return seconds_of(depth, plan.accumulation, recompute);
    const double most = seconds_of(depth, kReducedMicroBatches, recompute);
    const double less = seconds_of(depth, kReducedMicroBatches - 1, recompute);
    return most + static_cast<double>(plan.accumulation - kReducedMicroBatches) * (most - less);
  };
  if (!reduces_layers) return over_micros(layers, plan.recompute);

  // Segments recompute in the same places, relative to the depth.
  const auto at_depth = [&](std::int64_t depth) {
    std::vector<std::uint8_t> recompute;
    for (const auto& segment : bench.model(depth).segments) {
      const auto alike = std::find_if(whole.segments.begin(), whole.segments.end(), [&](const auto& other) {
        return other->kind() == segment->kind() && other->layer() == (segment->layer() < 0 ? -1 : segment->layer() * layers / depth);
      });
      recompute.push_back(plan.recompute[static_cast<std::size_t>(alike - whole.segments.begin())]);
    }
    return over_micros(depth, recompute);
  };
  const double less = at_depth(few_layers), more = at_depth(more_layers);
  return less + static_cast<double>(layers - few_layers) / static_cast<double>(more_layers - few_layers) * (more - less);
}

}  // namespace sluice::plan
