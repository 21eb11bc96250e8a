#pragma once
#include "app/command_line.hpp"

namespace sluice::app {

/// `generate`: what follows a prompt, by a run directory's newest whole checkpoint, a checkpoint or a Hugging Face directory, with its own
/// tokenizer. Prints text as it is drawn; with token ids as prompt, or with --json, ids.
int generate_command(const Command& command);

}  // namespace sluice::app
