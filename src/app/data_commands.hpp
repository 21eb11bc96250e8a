#pragma once
// The `data` verbs: what a corpus holds, and token files made of it. No MPI.

#include "app/command_line.hpp"
#include "app/environment.hpp"

namespace sluice::app {

/// `data inspect`: files, documents, tokens, loss mask and the first sample. Reads all of the data. Returns the exit code.
int inspect_data_command(const Command& command, const Environment& environment);
/// `data tokenize`: the documents as token files. --output NAME.bin: llm.c's; NAME or NAME.idx: Megatron's NAME.bin and NAME.idx.
int tokenize_data_command(const Command& command);

}  // namespace sluice::app
