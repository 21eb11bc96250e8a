#pragma once
// What the parts of the builder share: internal to build.cpp, compute_tasks.cpp and state_tasks.cpp.

#include <cstdint>
#include <vector>

#include "schedule/build.hpp"
#include "schedule/control.hpp"

namespace sluice::schedule {

/// One compute task to be emitted.
struct Item {
  int segment;
  int micro;
  model::Phase phase;
};

inline bool is_backward(model::Phase phase) {
  return phase == model::Phase::kBackward || phase == model::Phase::kForwardBackward;
}

/// The inputs of one graph, and the buffers that tasks of every kind touch.
struct BuildContext {
  /// Throws LogicError when the plan contradicts itself.
  BuildContext(GraphKind graph_kind, const BuildInputs& inputs);
  BuildContext(const BuildContext&) = delete;
  BuildContext& operator=(const BuildContext&) = delete;
  ~BuildContext() = default;

  bool trains(int param) const { return layout.grouping().trains(param); }
  bool gathers_working() const { return plan.zero_stage == 3; }
  bool is_layer_by_layer() const { return plan.order == spec::MicroBatchOrder::kLayerByLayer; }
  /// plan.prefetch_segments in items: layer by layer a segment is as many of them as there are micro-batches.
  int prefetch_items() const { return plan.prefetch_segments * items_of_segment(); }
  int items_of_segment() const { return is_layer_by_layer() ? accumulation : 1; }
  int segments() const { return static_cast<int>(model.segments.size()); }
  const model::Segment& segment(int s) const { return *model.segments[static_cast<std::size_t>(s)]; }
  const chunks::Run& run(int r) const { return layout.runs()[static_cast<std::size_t>(r)]; }
  const chunks::Chunk& chunk(int c) const { return layout.chunks()[static_cast<std::size_t>(c)]; }
  std::vector<std::int64_t> run_elements() const;

  BufferId persistent(BufferTag tag, spec::Tier tier, std::int32_t index, std::int64_t bytes) {
    return builder.add_buffer({.tag = tag, .tier = tier, .persistent = true, .index = index, .bytes = bytes});
  }
  /// On disk, with room for `bytes` twice.
  BufferId persistent_halves(BufferTag tag, std::int32_t index, std::int64_t bytes) {
    return builder.add_buffer(
        {.tag = tag, .tier = spec::Tier::kDisk, .persistent = true, .halves = true, .index = index, .bytes = 2 * bytes});
  }
  BufferId transient(BufferTag tag, spec::Tier tier, std::int32_t index, std::int32_t micro, std::int64_t bytes) {
    return builder.add_buffer({.tag = tag, .tier = tier, .persistent = false, .index = index, .micro = micro, .bytes = bytes});
  }
  void check_homes() const;
  /// The control buffers, after those of all planes.
  void add_control();

  const BuildInputs& in;
  const spec::Plan& plan;
  const model::Model& model;
  const chunks::ChunkLayout& layout;
  GraphKind kind;
  GraphBuilder builder;
  int first_trained;  // segment: those before it have no backward
  model::Shape shape;
  int accumulation = 1;
  std::vector<std::vector<int>> runs_of;          // per segment, distinct
  std::vector<std::vector<int>> trained_runs_of;  // those of them that are trained
  std::vector<Item> items;                        // all compute tasks, in order
  std::vector<std::vector<int>> item_runs;        // the runs that each reads
  BufferId local_counts = kNone, global_counts = kNone, loss = kNone, norm = kNone, report = kNone, logits = kNone;
  BufferId tokens = kNone;  // once the load is emitted
};

}  // namespace sluice::schedule
