#include "app/inspect_commands.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "app/session.hpp"
#include "app/weights.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/load.hpp"
#include "comm/local/local_communicator.hpp"
#include "formats/byte_tokenizer.hpp"
#include "train/generate.hpp"
#include "train/loop.hpp"

namespace sluice::app {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

/// Byte tokens print as text only once a character's last byte is there; a terminal can wait that long.
class TextOut {
 public:
  void add(std::int32_t token) {
    if (token < 0 || token > 255) return;
    pending_ += static_cast<char>(token);
    const auto lead = static_cast<unsigned char>(pending_[0]);
    const std::size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (pending_.size() >= want) flush();
  }
  void flush() {
    std::fwrite(pending_.data(), 1, pending_.size(), stdout);
    std::fflush(stdout);
    pending_.clear();
  }

 private:
  std::string pending_;
};

}  // namespace

int list_checkpoints_command(const Command& command) {
  const std::vector<checkpoint::Entry> entries = checkpoint::list_checkpoints(checkpoint::locate_checkpoints(command.path).directory);
  print(command.json ? checkpoint::to_json(entries) : checkpoint::describe(entries));
  const bool damaged =
      std::any_of(entries.begin(), entries.end(), [](const checkpoint::Entry& e) { return e.state == checkpoint::State::kDamaged; });
  return static_cast<int>(damaged ? ExitCode::kFormat : ExitCode::kFinished);
}

int show_checkpoint_command(const Command& command) {
  const checkpoint::Manifest manifest = checkpoint::read_manifest(newest_whole(command.path));
  print(command.json ? checkpoint::summary_json(manifest) : checkpoint::describe(manifest));
  return 0;
}

int verify_checkpoint_command(const Command& command) {
  const checkpoint::Location location = checkpoint::locate_checkpoints(command.path);
  std::vector<std::string> paths;
  if (location.path) {
    paths.push_back(*location.path);
  } else {
    for (const checkpoint::Entry& entry : checkpoint::list_checkpoints(location.directory)) {
      if (entry.state != checkpoint::State::kIncomplete) paths.push_back(entry.path);
    }
  }
  if (paths.empty()) throw RequestError(cat(command.path, ": holds no checkpoint"));
  bool whole = true;
  std::string list;
  for (const std::string& path : paths) {
    const checkpoint::Verification verification = checkpoint::verify_checkpoint(path, !command.quick);
    whole = whole && verification.whole();
    if (command.json) {
      list += cat(list.empty() ? "" : ",\n", checkpoint::to_json(verification));
    } else {
      print(checkpoint::describe(verification));
    }
  }
  if (command.json) print(cat("[", list, "]"));
  return static_cast<int>(whole ? ExitCode::kFinished : ExitCode::kFormat);
}

int generate_command(const Command& command) {
  const GenerateOptions& wanted = command.generate;
  Configuration configuration;
  configuration.model_path = wanted.model;
  const spec::ModelSpec model = resolve_model(configuration);
  std::vector<std::int32_t> prompt;
  for (const std::int64_t token : wanted.prompt_tokens) prompt.push_back(static_cast<std::int32_t>(token));
  const bool bytes = model.vocab == formats::kByteVocabulary;
  if (prompt.empty()) {
    if (!bytes)
      throw RequestError(cat(wanted.model, ": its vocabulary of ", model.vocab, " tokens isn't the byte vocabulary of ",
                             formats::kByteVocabulary, "; give --prompt-tokens"));
    prompt = formats::encode_bytes(wanted.prompt);
    if (prompt.empty()) prompt.push_back(formats::kEndOfDocument);  // what stands before a document's first byte
  }
  for (const std::int32_t token : prompt) {
    if (token < 0 || token >= model.vocab) throw RequestError(cat("prompt token ", token, " is outside the vocabulary of ", model.vocab));
  }
  const auto world = comm::make_single_rank();
  const auto device = device::make_cpu_device();
  train::EngineSetup setup;
  setup.model = model;
  setup.training.batch = {1, 1, 1, model.context};
  setup.plan.threads = threads_per_rank(wanted.threads, 1, device::read_cpu_facts().cores, device::read_cpu_facts());
  setup.plan.chunk_elements = 1 << 22;
  setup.plan.recompute.assign(static_cast<std::size_t>(2 * model.layers + 2), 0);
  setup.group = world.get();
  setup.device = device.get();
  train::Engine engine(setup);
  if (std::filesystem::exists(std::filesystem::path(wanted.model) / "config.json")) {
    load_weights(engine, wanted.model);
  } else {
    std::vector<train::HeldPiece> parameters;
    for (const train::HeldPiece& piece : engine.held_pieces()) {
      if (piece.plane == chunks::Plane::kWorking) parameters.push_back(piece);
    }
    checkpoint::load_checkpoint(*world, newest_whole(wanted.model), train::param_infos(engine.model()),
                                train::checkpoint_pieces(engine.model(), parameters));
  }
  train::GenerateOptions options;
  options.max_tokens = wanted.max_new_tokens;
  options.temperature = wanted.temperature;
  options.top_k = wanted.top_k;
  options.seed = wanted.seed;
  options.stop_token = bytes ? formats::kEndOfDocument : -1;
  TextOut out;
  if (bytes && !command.json) {
    std::fputs(wanted.prompt.c_str(), stdout);
    std::fflush(stdout);
  }
  std::vector<std::int32_t> drawn;
  train::generate(engine, model.context, prompt, options, [&](std::int32_t token) {
    drawn.push_back(token);
    if (bytes && !command.json) out.add(token);
  });
  out.flush();
  if (command.json || !bytes) {
    std::string list;
    for (const std::int32_t token : drawn) list += cat(list.empty() ? "" : ", ", token);
    print(command.json ? cat("{\"tokens\": [", list, "]}") : list);
  } else {
    std::fputc('\n', stdout);
  }
  return 0;
}

}  // namespace sluice::app
