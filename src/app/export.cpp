#include "app/export.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "app/run_directory.hpp"
#include "app/session.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/load.hpp"
#include "comm/local/local_communicator.hpp"
#include "formats/config_json.hpp"
#include "formats/hf_names.hpp"
#include "formats/safetensors_writer.hpp"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceElements = 16 << 20;

/// What transformers loads beside config.json and the weights.
constexpr const char* kAlong[] = {
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model",       "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "chat_template.jinja",   "generation_config.json"};

/// A system call's failure as ours.
void check(const std::error_code& error, const char* operation, const fs::path& path) {
  if (error) throw IoError(operation, path.string(), error.value());
}

bool has_tokenizer(const fs::path& folder) {
  return fs::exists(folder / "tokenizer.json") || fs::exists(folder / "tokenizer.model");
}

/// As meant_tokenizer(); `seen`: the runs that began with the weights of one another so far, which may go round.
std::string meant_tokenizer(const std::string& tokenizer, const std::string& model_path, std::vector<fs::path>& seen) {
  if (!tokenizer.empty() || model_path.empty()) return tokenizer;
  fs::path path = fs::absolute(model_path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (fs::exists(path / "config.json") || !fs::is_directory(path)) return model_path;
  const fs::path run = fs::path(checkpoint::locate_checkpoints(path.string()).directory).parent_path(), exported = run / "model";
  if (has_tokenizer(exported)) return exported.string();
  std::string used;
  if (std::find(seen.begin(), seen.end(), run) == seen.end()) {
    seen.push_back(run);
    if (const std::optional<RunRecord> record = RunDirectory(run.string()).read_run()) {
      const nlohmann::json configuration = nlohmann::json::parse(record->configuration);
      const auto text = [&](const char* at) { return configuration.value(nlohmann::json::json_pointer(at), std::string()); };
      used = meant_tokenizer(text("/data/tokenizer"), text("/model/path"), seen);
    }
  }
  if (fs::is_directory(used) || used == "bytes") return used;
  // What the run began with is a preset, or gone: the export took along what there was.
  return fs::exists(exported / "config.json") ? exported.string() : used.empty() ? model_path : used;
}

/// What the run stored its parameters as.
DType trained_dtype(const checkpoint::Manifest& manifest, const std::string& source) {
  const std::string& training = manifest.documents.training;
  return training.empty() ? DType::kF32 : spec::dtype_of(spec::training_spec_from_json(training, source).precision);
}

void write_weights(const ExportRequest& request, const checkpoint::Manifest& manifest, const spec::ModelSpec& model, const fs::path& to,
                   Exported& exported) {
  std::vector<formats::TensorPlace> places;
  for (const checkpoint::ParamInfo& param : manifest.params)
    places.push_back({formats::tensor_name(model, param.name), param.shape, exported.dtype});
  formats::SafetensorsSetWriter writer(to.string(), places);
  const auto self = comm::make_single_rank();
  std::vector<float> values(static_cast<std::size_t>(kPieceElements));
  std::vector<checkpoint::Piece> pieces;
  std::int64_t held = 0;
  // Loading reads manifest and shard headers each time, so small parameters share a call.
  const auto pass_on = [&] {
    checkpoint::load_checkpoint(*self, request.from, manifest.params, pieces);
    for (const checkpoint::Piece& piece : pieces) {
      writer.write(places[static_cast<std::size_t>(piece.region.param)].name, piece.region.flat_begin, piece.region.elements,
                   static_cast<const float*>(piece.data));
    }
    pieces.clear();
    held = 0;
  };
  for (std::size_t p = 0; p < manifest.params.size(); ++p) {
    const std::int64_t elements = manifest.params[p].elements();
    for (std::int64_t begin = 0; begin < elements;) {
      const std::int64_t count = std::min(kPieceElements - held, elements - begin);
      pieces.push_back({"working", checkpoint::flat_region(manifest.params, static_cast<int>(p), begin, count), values.data() + held});
      held += count;
      begin += count;
      if (held == kPieceElements) pass_on();
    }
  }
  if (!pieces.empty()) pass_on();
  writer.finish();
  exported.bytes = writer.bytes();
}

}  // namespace

Exported export_to_hf(const ExportRequest& request) {
  const checkpoint::Manifest manifest = checkpoint::read_manifest(request.from);
  const spec::ModelSpec model = spec::model_spec_from_json(manifest.documents.model, request.from);
  fs::path to = fs::absolute(request.to).lexically_normal();
  if (!to.has_filename()) to = to.parent_path();
  std::error_code error;
  if (fs::exists(to) && !(fs::is_directory(to) && (fs::is_empty(to) || fs::exists(to / "config.json")))) {
    throw RequestError(cat(to.string(), ": stands there and is no model directory; give another place to export to"));
  }
  if (!request.tokenizer.empty() && !fs::is_directory(request.tokenizer)) {
    throw RequestError(cat(request.tokenizer, ": the folder whose tokenizer the run used isn't there; give it as --tokenizer DIR"));
  }
  const fs::path partial = to.string() + ".partial", previous = to.string() + ".previous";
  fs::remove_all(partial, error);
  check(error, "removing", partial);
  fs::create_directories(partial, error);
  check(error, "making", partial);

  Exported exported;
  exported.path = to.string();
  exported.dtype = request.dtype ? *request.dtype : trained_dtype(manifest, request.from);
  write_durably((partial / "config.json").string(), formats::config_from_model_spec(model, exported.dtype));
  write_weights(request, manifest, model, partial, exported);
  for (const char* name : kAlong) {
    const fs::path source = fs::path(request.tokenizer) / name;
    if (request.tokenizer.empty() || !fs::exists(source)) continue;
    fs::copy_file(source, partial / name, error);
    check(error, "copying", source);
    exported.copied.emplace_back(name);
  }

  if (fs::exists(to)) {
    fs::remove_all(previous, error);
    check(error, "removing", previous);
    fs::rename(to, previous, error);
    check(error, "renaming", to);
  }
  fs::rename(partial, to, error);
  check(error, "renaming", partial);
  fs::remove_all(previous, error);
  check(error, "removing", previous);
  return exported;
}

std::string meant_tokenizer(const std::string& tokenizer, const std::string& model_path) {
  std::vector<fs::path> seen;
  return meant_tokenizer(tokenizer, model_path, seen);
}

std::string exported_tokenizer(const std::string& tokenizer, const std::string& model_path) {
  const std::string meant = meant_tokenizer(tokenizer, model_path);
  return meant == "bytes" ? std::string() : meant;
}

std::string describe(const Exported& exported) {
  std::string along;
  for (const std::string& name : exported.copied) along += cat(", ", name);
  return cat("exported to ", exported.path, ": ", format_bytes(exported.bytes), " of weights",
             along.empty() ? ", no tokenizer (a token is a byte, or none is known of the run)" : along);
}

int export_command(const Command& command) {
  ExportRequest request;
  request.from = newest_whole(command.path);
  request.to = command.exporting.output;
  if (!command.exporting.dtype.empty()) request.dtype = dtype_from_name(command.exporting.dtype);
  request.tokenizer = command.exporting.tokenizer;
  if (request.tokenizer.empty()) {
    request.tokenizer = exported_tokenizer({}, request.from);
  } else if (!has_tokenizer(request.tokenizer)) {
    throw RequestError(
        cat("--tokenizer: ", request.tokenizer, ": has neither tokenizer.json nor tokenizer.model; give a directory that has"));
  }
  const Exported exported = export_to_hf(request);
  if (command.json) {
    const nlohmann::ordered_json json{
        {"path", exported.path}, {"bytes", exported.bytes}, {"dtype", name_of(exported.dtype)}, {"files", exported.copied}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("%s\n", describe(exported).c_str());
  }
  return 0;
}

}  // namespace sluice::app
