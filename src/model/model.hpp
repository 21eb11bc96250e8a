#pragma once
// A model is parameters and segments, the units of compute: a segment is cut wherever a collective may have to happen.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/context.hpp"
#include "ops/dropout.hpp"
#include "spec/model_spec.hpp"

namespace sluice::model {

enum class Init : std::uint8_t { kZeros, kOnes, kNormal };

/// A parameter by its global name (transformers' name without the "transformer." prefix, as "h.0.attn.c_attn.weight") and shape.
struct ParamSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  Init init = Init::kZeros;
  double init_std = 0;
  bool matrix = false;  // two or more dimensions: decays under DecayOn::kMatrices
  std::int64_t elements() const;
};

/// Rows (sequences) and tokens per row of the activations a segment sees on this rank.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  std::int64_t tokens() const { return rows * sequence; }
};

enum class SegmentKind : std::uint8_t { kEmbedding, kAttention, kMlp, kHead };
std::string_view name_of(SegmentKind kind);  // "embedding", "attention", "mlp", "head"

/// kForwardBackward: the head, which computes its gradients along with the loss. kLogits: the head in generation.
enum class Phase : std::uint8_t { kForward, kRecompute, kBackward, kForwardBackward, kLogits };
std::string_view name_of(Phase phase);

/// Work of one phase, for the roofline where nothing was measured.
struct Work {
  double flops = 0;         // multiply and add counted apart
  double memory_bytes = 0;  // read and written, ideal caches
};

/// What the step tells every segment; device memory of the executor, the same for all tasks of a step.
struct StepView {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  bool training = true;
  float loss_scale = 0;  // d loss / d (one token's loss): 1 / valid tokens of the step over all ranks and micro-batches
};

/// One call of a segment. Pointers are into planned buffers; absent ones are null. All f32.
struct SegmentCall {
  const ops::Context* ops = nullptr;
  Shape shape;
  StepView step;
  const std::int32_t* inputs = nullptr;      // [rows, sequence] token ids (embedding)
  const std::int32_t* targets = nullptr;     // [rows, sequence], ops::kIgnoredTarget where nothing is predicted (head)
  const std::int64_t* sample_ids = nullptr;  // [rows] global sample of each row
  std::span<const float* const> params;      // working parameters, in the order of Segment::params()
  std::span<float* const> grads;             // their gradients (backward phases)
  std::span<const std::uint8_t> accumulate;  // per gradient: 1 = add to it, 0 = overwrite it whole
  const float* x = nullptr;                  // input activation [tokens, C] (all but embedding)
  float* y = nullptr;                        // output activation [tokens, C] (forward, all but head)
  float* d = nullptr;                        // backward: d loss / d y on entry, d loss / d x on return, in place (embedding: consumed;
                                             // head: written, d loss / d x)
  std::byte* saved = nullptr;                // [saved_bytes] written by forward or recompute, read by backward
  std::byte* workspace = nullptr;            // [workspace_bytes(phase)] contents undefined before and after
  double* loss_sum = nullptr;                // head: the micro-batch's summed token loss, overwritten
  float* logits = nullptr;                   // kLogits: [rows, vocab] of the token at `position` of each row
  std::int64_t position = 0;                 // kLogits
};

/// Stateless: sizes and code, no weights, so a model of any size can be built for planning.
class Segment {
 public:
  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  virtual ~Segment() = default;
  virtual SegmentKind kind() const = 0;
  virtual std::int64_t layer() const = 0;  // -1: embedding, head
  virtual std::string name() const = 0;    // "embedding", "layer 3 attention", ...
  /// Indices into Model::params, in the order the calls expect.
  virtual std::span<const int> params() const = 0;
  virtual bool has_phase(Phase phase) const = 0;
  virtual std::int64_t saved_bytes(const Shape& shape) const = 0;
  virtual std::int64_t workspace_bytes(Phase phase, const Shape& shape, int threads) const = 0;
  virtual Work work(Phase phase, const Shape& shape) const = 0;
  /// Runs one phase; returns when done (cpu). The same bits for recompute as for forward.
  virtual void run(Phase phase, const SegmentCall& call) const = 0;
};

struct Model {
  spec::ModelSpec spec;
  std::vector<ParamSpec> params;                   // in first-use order
  std::vector<std::unique_ptr<Segment>> segments;  // embedding, (attention, mlp) x layers, head
  std::int64_t parameter_count() const;
  /// Bytes of the activation between two segments.
  std::int64_t activation_bytes(const Shape& shape) const;
};

/// Model FLOPs of one step's forward and backward for `tokens` tokens in rows of `sequence`: 6 N + 12 L C T per token
/// (Chowdhery et al. 2022, "PaLM", appendix B; recompute not counted), N without the position table.
double model_flops(const spec::ModelSpec& spec, std::int64_t tokens, std::int64_t sequence);

}  // namespace sluice::model
