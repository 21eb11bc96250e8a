// What 16-bit storage halves and what it adds, to the byte.

#include "schedule/staging.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/units.hpp"
#include "schedule/place.hpp"
#include "support/graph_inputs.hpp"

namespace sluice::schedule {
namespace {

using chunks::Plane;
using testing::GraphInputs;

GraphInputs inputs_of(spec::Precision precision, int stage, int ranks, bool recompute) {
  spec::TrainingSpec training;
  training.batch.sequence_length = 16;
  training.precision = precision;
  spec::Plan plan;
  plan.zero_stage = stage;
  plan.mesh.data = ranks;
  plan.micro_batch = 3;
  plan.accumulation = 2;
  plan.chunk_elements = 5120;
  plan.activations.assign(8, recompute ? spec::Activation::kRecompute : spec::Activation::kKeep);
  return {testing::tiny_model_without_dropout(), training, plan};
}

/// Bytes of all buffers by tag.
std::map<BufferTag, std::int64_t> bytes_of(const StepGraph& graph) {
  std::map<BufferTag, std::int64_t> bytes;
  for (const Buffer& buffer : graph.buffers) bytes[buffer.tag] += buffer.bytes;
  return bytes;
}

TEST(Storage, HalvesWhatIsStored) {
  for (const spec::Precision precision : {spec::Precision::kBf16, spec::Precision::kFp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 3}) {
        SCOPED_TRACE(std::string(name_of(precision)) + ", zero_stage " + std::to_string(stage) + ", ranks " + std::to_string(ranks));
        const GraphInputs wide = inputs_of(spec::Precision::kFp32, stage, ranks, false), narrow = inputs_of(precision, stage, ranks, false);
        auto in_f32 = bytes_of(wide.build(GraphKind::kStep)), in_16 = bytes_of(narrow.build(GraphKind::kStep));
        for (const BufferTag tag : {BufferTag::kWorking, BufferTag::kGathered, BufferTag::kActivation, BufferTag::kActivationGradient}) {
          EXPECT_EQ(2 * in_16[tag], in_f32[tag]) << name_of(tag);
        }
        for (const BufferTag tag : {BufferTag::kGradient, BufferTag::kMoments, BufferTag::kMicroGradient, BufferTag::kTokens})
          EXPECT_EQ(in_16[tag], in_f32[tag]) << name_of(tag);
        // The master is one f32 plane, sharded like a moment.
        EXPECT_EQ(in_f32[BufferTag::kMaster], 0);
        EXPECT_EQ(2 * in_16[BufferTag::kMaster], in_16[BufferTag::kMoments]);
        std::int64_t saved = 0;  // of the two micro-batches
        const model::Shape shape{3, 16};
        for (const auto& segment : narrow.model().segments) {
          const std::int64_t exact = segment->saved_exact_bytes(shape);
          const std::int64_t stored = round_up((segment->saved_bytes(shape) - exact) / 2, kBufferAlignment) + exact;
          EXPECT_EQ(stored_saved_bytes(*segment, shape, dtype_of(precision)), stored);
          saved += 2 * stored;
        }
        EXPECT_EQ(in_16[BufferTag::kSaved], saved);
        EXPECT_EQ(
            in_f32[BufferTag::kSaved], saved + [&] {
              std::int64_t more = 0;
              for (const auto& segment : wide.model().segments)
                more += 2 * (segment->saved_bytes(shape) - stored_saved_bytes(*segment, shape, dtype_of(precision)));
              return more;
            }());
      }
    }
  }
}

TEST(Storage, KeepsAnAttentionsLogSumExpExact) {
  const GraphInputs inputs = inputs_of(spec::Precision::kBf16, 0, 1, false);
  const model::Shape shape{3, 16};
  for (const auto& segment : inputs.model().segments) {
    // A f32 for each of 4 heads and 48 tokens.
    const std::int64_t expected = segment->kind() == model::SegmentKind::kAttention ? 4 * 48 * 4 : 0;
    EXPECT_EQ(segment->saved_exact_bytes(shape), expected) << segment->name();
  }
}

TEST(Storage, OfRecomputedSegmentsIsWrittenByTheirRecomputationAlone) {
  const GraphInputs keep = inputs_of(spec::Precision::kBf16, 0, 1, false), recompute = inputs_of(spec::Precision::kBf16, 0, 1, true);
  EXPECT_EQ(bytes_of(keep.build(GraphKind::kStep))[BufferTag::kSaved], bytes_of(recompute.build(GraphKind::kStep))[BufferTag::kSaved]);
  const StepGraph graph = recompute.build(GraphKind::kStep);
  for (const Task& task : graph.tasks) {
    const bool forward = task.kind == TaskKind::kCompute && task.phase == model::Phase::kForward;
    EXPECT_FALSE(forward && graph.use_of(task, Role::kSaved) != nullptr);
  }
  EXPECT_EQ(bytes_of(keep.build(GraphKind::kEvaluate))[BufferTag::kSaved], 0);
}

TEST(Staging, HoldsWhatASegmentSees) {
  const GraphInputs inputs = inputs_of(spec::Precision::kBf16, 0, 1, false);
  const model::Model& model = inputs.model();
  const model::Shape shape{3, 16};
  const std::int64_t activation = 48 * 48 * 4;
  for (const auto& segment : model.segments) {
    for (const model::Phase phase : {model::Phase::kForward, model::Phase::kRecompute, model::Phase::kBackward,
                                     model::Phase::kForwardBackward, model::Phase::kLogits}) {
      if (!segment->has_phase(phase)) continue;
      SCOPED_TRACE(segment->name() + " " + std::string(name_of(phase)));
      EXPECT_EQ(make_staging(model, *segment, phase, shape, DType::kF32, true).bytes, 0);
      const Staging staging = make_staging(model, *segment, phase, shape, DType::kBF16, true);
      const bool embeds = segment->kind() == model::SegmentKind::kEmbedding, head = segment->kind() == model::SegmentKind::kHead;
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < segment->params().size(); ++i) {
        const bool widened = segment->intake(phase, i) == model::Intake::kWidened;
        EXPECT_EQ(staging.params[i] >= 0, widened);
        if (widened) bytes += round_up(model.params[static_cast<std::size_t>(segment->params()[i])].elements() * 4, kBufferAlignment);
      }
      bytes += embeds ? 0 : activation;                                                                       // x
      bytes += phase == model::Phase::kForward && !head ? activation : 0;                                     // y
      bytes += phase == model::Phase::kBackward || phase == model::Phase::kForwardBackward ? activation : 0;  // d
      bytes += segment->saved_bytes(shape) + segment->widening_bytes(phase);
      EXPECT_EQ(staging.bytes, bytes);
    }
  }
}

}  // namespace
}  // namespace sluice::schedule
