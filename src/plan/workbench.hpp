#pragma once
// What the search works on: the model, its chunk layouts, and the graphs and prices made of them.

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "chunks/layout.hpp"
#include "model/model.hpp"
#include "model/modules.hpp"
#include "optim/policy.hpp"
#include "plan/search.hpp"
#include "schedule/build.hpp"
#include "schedule/simulate.hpp"

namespace sluice::plan {

/// Makes the model and each layout once. Not thread-safe.
class Workbench {
 public:
  explicit Workbench(const PlanRequest& request);  // which outlives it

  int ranks() const { return static_cast<int>(request_.mesh.data); }
  int ranks_per_node() const;
  const PlanRequest& request() const { return request_; }
  const model::Model& model() const { return model_; }
  const chunks::ChunkLayout& layout(std::int64_t chunk_elements);
  schedule::BuildInputs inputs(const spec::Plan& plan);
  /// The least rCache that works for any recomputation and accumulation, and that of the whole model.
  std::pair<std::int64_t, std::int64_t> rcache_range(std::int64_t chunk_elements, int prefetch);
  /// Bytes of gathered working parameters that are certainly there while a segment runs forward and backward, with that rCache.
  struct Gathered {
    std::vector<std::int64_t> forward, backward;
  };
  const Gathered& gathered(const spec::Plan& plan);
  schedule::Simulation simulate(const schedule::StepGraph& graph, const schedule::BuildInputs& inputs) const;
  /// Whether a plan is what the choices say.
  bool agrees(const spec::Plan& plan, const Choices& with);
  /// Agrees inside a micro-batch, for BuildInputs: how many segments take about a second; 0 where a micro-batch takes less.
  int segments_between_agrees(std::int64_t micro_batch);

 private:
  const PlanRequest& request_;
  std::unique_ptr<model::ModuleFactory> factory_;
  model::Model model_;
  optim::Grouping grouping_;
  std::map<std::int64_t, std::unique_ptr<chunks::ChunkLayout>> layouts_;
  std::map<std::pair<std::int64_t, int>, std::pair<std::int64_t, std::int64_t>> ranges_;
  std::map<std::tuple<std::int64_t, std::int64_t, int, bool>, Gathered> gathered_;
  std::map<std::int64_t, int> between_agrees_;
};

/// The seconds of a step of `plan` from reduced graphs of three and of five micro-batches, linear beyond. The depth isn't reduced: where
/// chunks begin and end in the layers, and which of them stay in the rCache, doesn't repeat from layer to layer, and graphs of
/// a few layers were up to 50 % off where communication isn't hidden.
inline constexpr std::int64_t kReducedMicroBatches = 3;
double reduced_seconds(Workbench& bench, const spec::Plan& plan);

}  // namespace sluice::plan
