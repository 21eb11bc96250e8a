#pragma once
// What the user wrote about arithmetic: batch, optimizer, schedule, seed. Fixed by the user, never by the planner, but for
// the micro-batch where it was left free.

#include <cstdint>
#include <string>

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

enum class ScheduleKind { kConstant, kLinear, kCosine };

/// Learning rate of applied step t (0-based): see optim/schedule.hpp for the formulas.
struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  double warmup_start = 0.0;      // rate at t = 0 of a warm-up
  std::int64_t warmup_steps = 0;  // linear warm-up to `peak`
  std::int64_t total_steps = 0;   // of linear and cosine, warm-up included
  double final_ratio = 0.0;       // cosine and linear end at final_ratio * peak
  std::int64_t delay_steps = 0;   // step t has the rate of step max(0, t - delay_steps): 1 for DeepSpeed's schedulers
  friend bool operator==(const ScheduleSpec&, const ScheduleSpec&) = default;
};

enum class DecayOn { kMatrices, kAll };

/// AdamW (Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2).
struct OptimizerSpec {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  DecayOn decay_on = DecayOn::kMatrices;
  double gradient_clipping = 1.0;  // max global norm; 0: none
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

struct TrainingSpec {
  BatchSpec batch;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  std::uint64_t seed = 1;
  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

std::string to_json(const MeshSpec& mesh);
std::string to_json(const TrainingSpec& training);
MeshSpec mesh_spec_from_json(const std::string& text, const std::string& source);
TrainingSpec training_spec_from_json(const std::string& text, const std::string& source);

}  // namespace sluice::spec
