#pragma once
// From model, layout and plan to step graphs. Every strategy is a choice made here; the executor knows none.

#include <array>
#include <cstdint>

#include "chunks/layout.hpp"
#include "model/model.hpp"
#include "schedule/graph.hpp"
#include "spec/plan.hpp"

namespace sluice::schedule {

struct BuildInputs {
  const model::Model* model = nullptr;
  const chunks::ChunkLayout* layout = nullptr;
  spec::Plan plan;
  std::int64_t sequence_length = 0;
  int ranks = 1;                    // of the ZeRO group, the mesh's data axis
  bool document_attention = false;  // tokens come with the starts of their documents
  bool needs_norm = false;          // updates wait for the global norm (optim::needs_norm)
  int segments_between_agrees = 0;  // further agrees inside a micro-batch, when segments are long; 0: none
};

/// The graph, placed. Frozen parameters have no gradient, update or norm, and segments before the first that trains no backward. All graphs
/// of one BuildInputs share their persistent buffers' numbers and offsets. Rows of kGenerate: 1, of the others plan.micro_batch. Throws
/// OutOfMemory when plan.rcache_elements is too small, LogicError when the plan contradicts itself (in_backward where updates need the
/// norm, activations of another number of segments, layer_by_layer with zero_stage 0 or 1, homes that break the rules of spec::ChunkHomes).
StepGraph build(GraphKind kind, const BuildInputs& inputs);

/// What all graphs of a run take of a rank together.
struct SetBytes {
  std::array<std::int64_t, spec::kTierCount> arenas{};  // of each tier's arena: the most of any graph
  std::int64_t bookkeeping = 0;                         // of main memory beside the arenas: graphs, and what the executor keeps of them
};

/// `step`: of kStep, built from the same inputs.
SetBytes bytes_of_set(const StepGraph& step, const BuildInputs& inputs);

/// The smallest plan.rcache_elements that `build` accepts for zero_stage 3.
std::int64_t minimum_rcache_elements(const BuildInputs& inputs);

/// The first segment with a parameter that is trained: those before it need no gradient of their input.
int first_trained_segment(const model::Model& model, const optim::Grouping& grouping);

/// Bytes one micro-batch's tokens take in the tokens buffer: sample ids (i64), inputs, targets and, with document_attention, document
/// starts (i32), in this order.
std::int64_t token_bytes(std::int64_t rows, std::int64_t sequence_length, bool document_attention);

}  // namespace sluice::schedule
