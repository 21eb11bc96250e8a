#pragma once
// The verbs that look at checkpoints from outside: no MPI, no engine.

#include "app/command_line.hpp"

namespace sluice::app {

/// `checkpoint list|show|verify`: print, and return the exit code (4 where something is damaged).
int list_checkpoints_command(const Command& command);
int show_checkpoint_command(const Command& command);
int verify_checkpoint_command(const Command& command);

}  // namespace sluice::app
