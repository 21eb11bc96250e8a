#pragma once
// The parts of a configuration, one source file each. They are read in the order they stand here, since later ones build on what
// earlier ones found.

#include <cstdint>
#include <optional>

#include "app/configuration.hpp"
#include "app/configuration_keys.hpp"

namespace sluice::app {

/// One request being read: its keys, what they mean so far, and what later parts must know.
struct Reading {
  KeyTree& keys;
  Examination& result;
  Configuration& config;              // of the result
  std::optional<std::int64_t> ranks;  // of the run, where known
  std::optional<double> learning_rate;
  bool rate_is_settled = false;  // by a scheduler with rates of its own, or already reported as missing

  bool has_optimizer_block() const { return keys.has("optimizer"); }
};

/// Every Trainer name by its rule: those that are another name of a key become that key.
void read_trainer_names(Reading& reading);  // configuration_trainer.cpp
/// Every key by its rule: reports each, refuses what is unknown, mistyped, or would change results.
void weigh_keys(Reading& reading);  // configuration_weigh.cpp
/// model, init, trainable, sequence_length, data, steps and epochs, seed.
void read_run(Reading& reading);  // configuration_run.cpp
/// fp16, bf16, data_types.
void read_precision(Reading& reading);  // configuration_precision.cpp
/// DeepSpeed's three batch numbers.
void read_batch(Reading& reading);  // configuration_batch.cpp
/// optimizer, gradient_clipping, weight_decay_on.
void read_optimizer(Reading& reading);  // configuration_optimizer.cpp
/// scheduler, or sluice.schedule, or the Trainer's names; the learning rate with them.
void read_schedule(Reading& reading);  // configuration_schedule.cpp
/// zero_optimization, activation_checkpointing, aio; memory, threads, plan and pins.
void read_placement(Reading& reading);  // configuration_placement.cpp
/// output, resume, checkpoints, evaluation, printing, and what only this run is told.
void read_output(Reading& reading);  // configuration_output.cpp

}  // namespace sluice::app
