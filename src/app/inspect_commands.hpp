#pragma once
// The verbs that look at a run from outside: no MPI, no engine but for generation.

#include "app/command_line.hpp"

namespace sluice::app {

/// `checkpoint list|show|verify`: print, and return the exit code (4 where something is damaged).
int list_checkpoints_command(const Command& command);
int show_checkpoint_command(const Command& command);
int verify_checkpoint_command(const Command& command);
/// `generate`: text that follows a prompt, from a run directory, a checkpoint or a Hugging Face directory.
int generate_command(const Command& command);

}  // namespace sluice::app
