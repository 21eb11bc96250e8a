#pragma once
// What was typed, as a value.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/configuration.hpp"

namespace sluice::app {

enum class Verb : std::uint8_t {
  kText,  // --help, --version: print Command::text and end
  kTrain,
  kProfile,
  kPlan,
  kConfigCheck,
  kCheckpointList,
  kCheckpointShow,
  kCheckpointVerify,
  kCheckpointExport,
  kDataInspect,
  kDataTokenize,
  kGenerate,
  kDoctor,
};

struct GenerateOptions {
  std::string model;   // a run directory, a checkpoint or a model directory
  std::string prompt;  // text, perhaps empty; or
  std::vector<std::int64_t> prompt_tokens;
  std::int64_t max_new_tokens = 64;
  double temperature = 1.0;  // 0: always the most likely token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;        // 1: all
  bool chat = false;         // the prompt is what a user says, put into the model's chat template
  std::uint64_t seed = 1;
  std::int64_t threads = 0;  // 0: the affinity's cores
};

struct ExportOptions {
  std::string to = "hf";  // the one format there is
  std::string output;     // the directory to be made
  std::string dtype;      // "f32", "bf16", "f16"; empty: what the run trained in
  std::string tokenizer;  // a directory whose tokenizer goes along; empty: that of the model the run began with
};

struct Command {
  Verb verb = Verb::kText;
  std::string text;
  ConfigurationRequest request;                // train, profile, plan, config check
  std::vector<std::string> request_words;      // the words that say it, for advice that repeats them
  std::optional<std::int64_t> ranks;           // --ranks: to plan for, where MPI does not say (plan, config check, train --dry-run)
  std::optional<std::int64_t> ranks_per_node;  // likewise; absent: all on one node
  std::string machine;                         // plan: a machine file or a name, instead of this machine's profile
  std::string path;    // checkpoint verbs: a run directory, its checkpoints or one of them; data tokenize: the files to be written
  bool quick = false;  // checkpoint verify: sizes and structure only
  bool json = false;
  std::vector<std::string> nvme_paths;  // doctor
  GenerateOptions generate;
  ExportOptions exporting;
};

/// `arguments` without the program's name. Throws RequestError for what can't be understood: one line with the nearest known word and
/// where help is. Reads no file but to see whether --model names a folder.
Command parse_command_line(const std::vector<std::string>& arguments, const std::string& version);

}  // namespace sluice::app
