#pragma once
// A model with its layout and a plan: what graphs are built from, without any memory behind it.

#include <memory>

#include "chunks/layout.hpp"
#include "model/build.hpp"
#include "model/model.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/build.hpp"
#include "spec/model_spec.hpp"
#include "spec/plan.hpp"
#include "spec/training_spec.hpp"

namespace sluice::testing {

/// Hidden 48, 3 layers, vocabulary 67, so that no shard or chunk divides evenly.
inline spec::ModelSpec tiny_model_without_dropout() {
  spec::ModelSpec model;
  model.name = "tiny";
  model.vocab = 67;
  model.context = 24;
  model.hidden = 48;
  model.layers = 3;
  model.heads = 4;
  model.ffn = 192;
  return model;
}

class GraphInputs {
 public:
  /// The number of ranks is the plan's mesh.data. An rCache of 0 elements becomes the smallest that the plan's prefetch allows.
  GraphInputs(const spec::ModelSpec& spec, const spec::TrainingSpec& training, const spec::Plan& plan, int segments_between_agrees = 0)
      : factory_(parallel::make_unsharded_modules()),
        model_(model::build_model(spec, *factory_)),
        grouping_(optim::group_parameters(model_, training)),
        layout_(model_.params, grouping_, plan.chunk_elements) {
    inputs_.model = &model_;
    inputs_.layout = &layout_;
    inputs_.plan = plan;
    if (plan.activations.empty()) inputs_.plan.activations.assign(model_.segments.size(), spec::Activation::kKeep);
    inputs_.sequence_length = training.batch.sequence_length;
    inputs_.ranks = static_cast<int>(plan.mesh.data);
    inputs_.needs_norm = optim::needs_norm(training);
    inputs_.segments_between_agrees = segments_between_agrees;
    if (plan.rcache_elements == 0) inputs_.plan.rcache_elements = schedule::minimum_rcache_elements(inputs_);
  }
  GraphInputs(const GraphInputs&) = delete;
  GraphInputs& operator=(const GraphInputs&) = delete;

  const model::Model& model() const { return model_; }
  const chunks::ChunkLayout& layout() const { return layout_; }
  const optim::Grouping& grouping() const { return grouping_; }
  const spec::Plan& plan() const { return inputs_.plan; }
  const schedule::BuildInputs& inputs() const { return inputs_; }
  schedule::StepGraph build(schedule::GraphKind kind) const { return schedule::build(kind, inputs_); }

 private:
  std::unique_ptr<model::ModuleFactory> factory_;
  model::Model model_;
  optim::Grouping grouping_;
  chunks::ChunkLayout layout_;
  schedule::BuildInputs inputs_;
};

}  // namespace sluice::testing
