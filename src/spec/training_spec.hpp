#pragma once
// What the user wrote about arithmetic: batch, optimizer, schedule, seed. Fixed by the user, never by the planner, but for
// the micro-batch where it was left free.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace sluice::spec {

/// Axis sizes of the process mesh, in rank order (data outermost). Tensor, sequence and pipeline are 1 until they land.
struct MeshSpec {
  std::int64_t data = 1;
  std::int64_t pipeline = 1;
  std::int64_t tensor = 1;
  std::int64_t sequence = 1;
  std::int64_t ranks() const { return data * pipeline * tensor * sequence; }
  friend bool operator==(const MeshSpec&, const MeshSpec&) = default;
};

/// global_batch = micro_batch * accumulation * mesh.data, in sequences of `sequence_length` tokens.
struct BatchSpec {
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;   // 0: the planner chooses a divisor
  std::int64_t accumulation = 0;  // 0: follows from the others
  std::int64_t sequence_length = 0;
  friend bool operator==(const BatchSpec&, const BatchSpec&) = default;
};

enum class ScheduleKind {
  kConstant,
  kLinear,
  kCosine,
  kPolynomial,
  kDeepSpeedCosine,  // WarmupCosineLR
  kOneCycle,         // OneCycle
  kRangeTest,        // LRRangeTest
};
enum class WarmupShape { kLinear, kLog };

/// DeepSpeed's OneCycle: up from min_rate to the peak, down again, then decay.
struct OneCycleSpec {
  double min_rate = 0.0;
  std::int64_t first_steps = 2000;   // going up
  std::int64_t second_steps = 2000;  // going down; 0: none
  std::int64_t first_stairs = 0;     // 0: a straight line
  std::int64_t second_stairs = 0;
  double decay_rate = 0.0;       // per decay_steps, once the cycle is over
  std::int64_t decay_steps = 0;  // 0: no decay
  friend bool operator==(const OneCycleSpec&, const OneCycleSpec&) = default;
};

/// DeepSpeed's LRRangeTest: up from min_rate for ever.
struct RangeTestSpec {
  double min_rate = 1e-3;
  std::int64_t step_size = 2000;
  double step_rate = 1.0;  // every step_size steps add step_rate * min_rate
  bool staircase = false;
  friend bool operator==(const RangeTestSpec&, const RangeTestSpec&) = default;
};

/// Learning rate of applied step t (0-based): see optim/schedule.hpp for the formulas.
struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  double warmup_start = 0.0;      // rate at t = 0 of a warm-up
  std::int64_t warmup_steps = 0;  // warm-up to `peak`
  std::int64_t total_steps = 0;   // of those that end, warm-up included
  double final_ratio = 0.0;       // they end at final_ratio * peak
  std::int64_t delay_steps = 0;   // step t has the rate of step max(0, t - delay_steps): 1 for DeepSpeed's WarmupLR and WarmupDecayLR
  WarmupShape warmup_shape = WarmupShape::kLinear;
  double power = 1.0;        // of kPolynomial
  OneCycleSpec one_cycle;    // of kOneCycle
  RangeTestSpec range_test;  // of kRangeTest
  friend bool operator==(const ScheduleSpec&, const ScheduleSpec&) = default;
};

enum class DecayOn { kMatrices, kAll };

enum class OptimizerKind {
  kAdamW,  // Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2
  kAdam,   // Kingma & Ba 2015, algorithm 1, weight decay added to the gradient (DeepSpeed's adam_w_mode false)
  kSgd,    // torch.optim.SGD: weight decay added to the gradient, momentum, dampening, Nesterov
  kLion,   // Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2; decoupled weight decay
};

std::string_view name_of(OptimizerKind kind);  // "adamw", "adam", "sgd", "lion"

/// beta1, beta2: of Adam and Lion. eps: of Adam. momentum and what follows: of SGD.
struct OptimizerSpec {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  DecayOn decay_on = DecayOn::kMatrices;
  double gradient_clipping = 1.0;  // max global norm; 0: none
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.0;  // 0: plain SGD
  double dampening = 0.0;
  bool nesterov = false;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

/// How working parameters, activations and what is saved for backward are stored. Products, gradients, the master parameters and
/// the moments are f32 in each.
enum class Precision : std::uint8_t { kFp32, kBf16, kFp16 };
std::string_view name_of(Precision precision);  // "fp32", "bf16", "fp16"
/// The storage dtype.
DType dtype_of(Precision precision);

/// How the loss is scaled with Precision::kFp16, by DeepSpeed's rule (optim/loss_scale.hpp) and with its defaults.
struct LossScaleSpec {
  double fixed = 0;                     // this scale throughout; 0: dynamic
  int initial_power = 16;               // dynamic: starts at 2^initial_power
  std::int64_t window = 1000;           // clean steps until the scale doubles
  int hysteresis = 2;                   // overflows until the scale halves
  bool consecutive_hysteresis = false;  // a clean step restores the hysteresis
  double min_scale = 1;                 // an overflow here ends the run
  friend bool operator==(const LossScaleSpec&, const LossScaleSpec&) = default;
};

/// Where a run stands with it.
struct LossScaleState {
  double scale = 1;
  int hysteresis = 1;            // overflows left until the scale halves
  std::int64_t clean_steps = 0;  // since the start or the last overflow
  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

struct TrainingSpec {
  BatchSpec batch;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  std::uint64_t seed = 1;
  Precision precision = Precision::kFp32;
  LossScaleSpec loss_scale;
  std::vector<std::string> trainable;  // regular expressions (ECMAScript); a parameter whose name none finds is frozen. Empty: all train
  bool skips_overflow = false;         // bf16: a step whose loss or gradients aren't finite changes nothing, as fp16's always do
  bool document_attention = false;     // rows hold several documents, at each of which attention and positions restart
  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

std::string to_json(const MeshSpec& mesh);
std::string to_json(const TrainingSpec& training);
MeshSpec mesh_spec_from_json(const std::string& text, const std::string& source);
TrainingSpec training_spec_from_json(const std::string& text, const std::string& source);

}  // namespace sluice::spec
