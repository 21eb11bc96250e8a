#pragma once
#include "app/command_line.hpp"
#include "app/environment.hpp"

namespace sluice::app {

/// `train`: the main job on every rank; starts MPI unless --dry-run. Returns the exit code, the same on all ranks; faults of one
/// rank end the job.
int train_command(const Command& command, const Environment& environment);

}  // namespace sluice::app
