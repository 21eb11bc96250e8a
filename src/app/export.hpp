#pragma once
// A checkpoint as the Hugging Face directory that other programs load.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "base/dtype.hpp"

namespace sluice::app {

struct ExportRequest {
  std::string from;            // a checkpoint's directory
  std::string to;              // the directory to be made
  std::string tokenizer;       // a directory whose tokenizer and generation settings go along; empty: none
  std::optional<DType> dtype;  // of the weights: kF32, kBF16 or kF16; absent: what the run trained in
};

struct Exported {
  std::string path;
  DType dtype = DType::kF32;        // of the weights
  std::int64_t bytes = 0;           // of the weights
  std::vector<std::string> copied;  // names of the files that went along
};

/// Writes config.json, the weights and what goes along, 64 MiB at a time, into a directory beside `to` which
/// then takes its name: what stood there is whole until the new one is, and is then removed. Every byte read is checked. Local; waits for
/// the disk. Throws FormatError for a damaged checkpoint, RequestError where `to` holds something that isn't an export, IoError.
Exported export_to_hf(const ExportRequest& request);

/// What tokenizer a request means by sluice.data.tokenizer and sluice.model.path: a folder, which may hold none, "bytes", or nothing where
/// neither is given. Of a run (or one of its checkpoints) it is the one its export holds, else the one its run.json says it used. Throws
/// FormatError for a damaged run.json.
std::string meant_tokenizer(const std::string& tokenizer, const std::string& model_path);

/// The folder whose tokenizer a run's export takes along; empty where it used none.
std::string exported_tokenizer(const std::string& tokenizer, const std::string& model_path);

/// "exported to runs/demo/model: 513 MiB of weights, tokenizer.json, tokenizer_config.json".
std::string describe(const Exported& exported);

/// `checkpoint export`: the newest whole checkpoint of a run, or the one named.
int export_command(const Command& command);

}  // namespace sluice::app
