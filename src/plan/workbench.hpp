#pragma once
// What the search works on: the model at several depths, its chunk layouts, and the graphs and prices made of them.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "chunks/layout.hpp"
#include "model/model.hpp"
#include "model/modules.hpp"
#include "optim/policy.hpp"
#include "plan/search.hpp"
#include "schedule/build.hpp"
#include "schedule/simulate.hpp"

namespace sluice::plan {

/// Makes each model and layout once. Not thread-safe.
class Workbench {
 public:
  explicit Workbench(const PlanRequest& request);

  std::int64_t layers() const { return request_.model.layers; }
  int ranks() const { return static_cast<int>(request_.mesh.data); }
  int ranks_per_node() const;
  const PlanRequest& request() const { return request_; }
  const model::Model& model(std::int64_t layers);
  const model::Model& model() { return model(layers()); }
  const chunks::ChunkLayout& layout(std::int64_t layers, std::int64_t chunk_elements);
  schedule::BuildInputs inputs(std::int64_t layers, const spec::Plan& plan);
  /// The least rCache that works for any recomputation and accumulation, and that of the whole model.
  std::pair<std::int64_t, std::int64_t> rcache_range(std::int64_t layers, std::int64_t chunk_elements, int prefetch);
  /// Elements that are `part` (0 to 1) of the way between the two.
  std::int64_t rcache_at(std::int64_t layers, std::int64_t chunk_elements, int prefetch, double part);
  schedule::Simulation simulate(const schedule::StepGraph& graph, const schedule::BuildInputs& inputs) const;
  /// Agrees inside a micro-batch, for BuildInputs: how many segments take about a second; 0 where a micro-batch takes less.
  int segments_between_agrees(std::int64_t micro_batch);

 private:
  struct Depth {
    model::Model model;
    optim::Grouping grouping;
    std::map<std::int64_t, std::unique_ptr<chunks::ChunkLayout>> layouts;
  };
  Depth& depth(std::int64_t layers);

  const PlanRequest& request_;
  std::unique_ptr<model::ModuleFactory> factory_;
  std::map<std::int64_t, Depth> depths_;
  std::map<std::array<std::int64_t, 3>, std::pair<std::int64_t, std::int64_t>> ranges_;
  std::map<std::int64_t, int> between_agrees_;
};

/// The step of `plan` in seconds from graphs of few layers and micro-batches: linear in both beyond `kReducedLayers` (plus a period
/// of whole chunks) and three micro-batches. `rcache_part` is that of rcache_at. A model or a step that is small enough
/// is simulated whole.
inline constexpr std::int64_t kReducedLayers = 1000;
inline constexpr std::int64_t kReducedMicroBatches = 3;
double reduced_seconds(Workbench& bench, const spec::Plan& plan, double rcache_part);

}  // namespace sluice::plan
