#pragma once
// A model is parameters and segments, the units of compute: a segment is cut wherever a collective may have to happen.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "ops/context.hpp"
#include "ops/dropout.hpp"
#include "spec/model_spec.hpp"

namespace sluice::model {

enum class Init : std::uint8_t { kZeros, kOnes, kNormal };

/// A parameter by its global name (transformers' name without the family's prefix, as "h.0.attn.c_attn.weight") and shape.
struct ParamSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  Init init = Init::kZeros;
  double init_std = 0;
  bool matrix = false;         // two or more dimensions: decays under DecayOn::kMatrices
  std::int64_t zero_row = -1;  // kNormal: this row starts as zeros (a token table's padding); -1: none
  std::int64_t elements() const;
};

/// Elements [first, first + count) of the parameter as training from scratch begins: a function of seed, name and index alone.
void initialise(const ops::Context& ops, const ParamSpec& param, std::uint64_t seed, std::int64_t first, std::int64_t count, float* values);

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

/// How a phase takes a parameter that is stored in 16 bits: widened to f32 before the call, as it is stored, or not at all.
enum class Intake : std::uint8_t { kWidened, kStored, kUnused };

/// What the step tells every segment; device memory of the executor, the same for all tasks of a step.
struct StepView {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  bool training = true;
  float loss_scale = 0;  // d loss / d (one token's loss): 1 / valid tokens of the step over all ranks and micro-batches, times the
                         // scale of fp16's gradients
};

/// One call of a segment. Pointers are into planned buffers; absent ones are null. All f32, also where what stands between calls
/// (parameters, x, y, d, saved) is stored in 16 bits: who calls widens it before and rounds it after.
struct SegmentCall {
  const ops::Context* ops = nullptr;
  Shape shape;
  StepView step;
  const std::int32_t* inputs = nullptr;           // [rows, sequence] token ids (embedding)
  const std::int32_t* targets = nullptr;          // [rows, sequence], ops::kIgnoredTarget where nothing is predicted (head)
  const std::int64_t* sample_ids = nullptr;       // [rows] global sample of each row
  ops::DocumentStarts document_starts = nullptr;  // [rows, sequence] where attention and positions restart at documents, else null
  std::span<const float* const> params;           // working parameters, in the order of Segment::params()
  std::span<float* const> grads;                  // their gradients (backward phases); null for frozen parameters: not computed
  std::span<const std::uint8_t> accumulate;       // per gradient: 1 = add to it, 0 = overwrite it whole
  const float* x = nullptr;                       // input activation [tokens, C] (all but embedding)
  float* y = nullptr;                             // output activation [tokens, C] (forward, all but head)
  float* d = nullptr;                             // backward: d loss / d y on entry, d loss / d x on return, in place (embedding: consumed;
                                                  // head: written, d loss / d x)
  std::byte* saved = nullptr;                     // [saved_bytes] written by forward or recompute, read by backward
  std::byte* workspace = nullptr;                 // [workspace_bytes(phase)] contents undefined before and after
  double* loss_sum = nullptr;                     // head: the micro-batch's summed token loss, overwritten
  float* logits = nullptr;                        // kLogits: [rows, vocab] of the token at `position` of each row
  std::int64_t position = 0;                      // kLogits

  // What stands between calls is stored as this. Where it isn't f32, parameters of Intake::kStored are here and null in `params`.
  DType storage = DType::kF32;
  std::span<const std::uint16_t* const> stored_params;
  std::byte* widening = nullptr;  // [widening_bytes(phase)] contents undefined before and after
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
  /// All f32, so that it can be stored in 16 bits; `saved_exact_bytes` at its end must keep f32 (a log-sum-exp, say).
  virtual std::int64_t saved_bytes(const Shape& shape) const = 0;
  virtual std::int64_t saved_exact_bytes(const Shape& /*shape*/) const { return 0; }
  /// Of parameter `index` of params(). What is taken as stored comes in SegmentCall::stored_params where storage isn't f32.
  virtual Intake intake(Phase /*phase*/, std::size_t /*index*/) const { return Intake::kWidened; }
  /// Scratch that a phase needs for what it takes as stored; none where storage is f32.
  virtual std::int64_t widening_bytes(Phase /*phase*/) const { return 0; }
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

/// Model FLOPs of one step's forward and backward for `tokens` tokens in rows of `sequence`: 6 N + 12 L H D T per token with H heads of
/// width D (Chowdhery et al. 2022, "PaLM", appendix B; recompute not counted), N without the position table and T at most the sliding
/// window. Throws RequestError for an unknown family.
double model_flops(const spec::ModelSpec& spec, std::int64_t tokens, std::int64_t sequence);

}  // namespace sluice::model
