#include "app/data_commands.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/corpora.hpp"
#include "app/session.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/llmc_tokens.hpp"
#include "formats/megatron_tokens.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kShownTokens = 256;  // of the first sample, where neither request nor model says how long one is

/// A request for data, with the model where one is named.
struct DataRequest {
  Configuration configuration;
  std::optional<spec::ModelSpec> model;
};

DataRequest read_request(const Command& command) {
  DataRequest request;
  request.configuration = load_configuration(command.request, std::nullopt, Demand::kNothing);
  if (!request.configuration.preset.empty() || !request.configuration.model_path.empty()) {
    request.model = resolve_model(request.configuration);
    settle_model(request.configuration, *request.model);
  }
  std::int64_t& length = request.configuration.training.batch.sequence_length;
  if (length == 0) length = kShownTokens;
  return request;
}

void print(const std::string& line) {
  std::printf("%s\n", line.c_str());
}

/// "664", "3.77 k (3768)".
std::string exactly(std::int64_t count) {
  return count < 1000 ? cat(count) : cat(format_count(count), " (", count, ")");
}

std::string share(std::int64_t part, std::int64_t whole) {
  const double percent = whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  return cat(exactly(part), ", ", std::round(10 * percent) / 10, " %");
}

Json json_of(const Inspection& found, const data::Preview& preview) {
  const auto known = [](std::int64_t count) { return count >= 0 ? Json(count) : Json(nullptr); };
  Json parts = Json::array();
  for (const data::ShownPart& part : preview.parts) parts.push_back({{"text", part.text}, {"loss", part.is_learned}});
  return {{"kind", found.kind},
          {"shape", found.shape.empty() ? Json(nullptr) : Json(found.shape)},
          {"tokenizer", found.tokenizer},
          {"tokenizer_folder", found.folder.empty() ? Json(nullptr) : Json(found.folder)},
          {"files", found.files},
          {"bytes", found.bytes},
          {"documents", known(found.documents)},
          {"tokens", found.tokens},
          {"tokens_with_loss", found.learned},
          {"longest", known(found.longest)},
          {"documents_with_end", known(found.ended)},
          {"left_out", {{"empty", found.left.empty}, {"not_utf8", found.left.skipped}}},
          {"replaced", found.left.replaced},
          {"first_sample", {{"tokens", preview.tokens}, {"predicted_with_loss", preview.predicted}, {"parts", parts}}}};
}

/// What has been shown may still be nothing to train on: said as `train` would say it.
void refuse_if_useless(const Inspection& found) {
  if (found.tokens > 0 && found.learned == 0) refuse_without_loss("training", found.documents);
}

}  // namespace

int inspect_data_command(const Command& command, const Environment& environment) {
  const DataRequest request = read_request(command);
  const Corpora corpora(request.configuration, request.model ? &*request.model : nullptr);
  const Inspection found = corpora.inspect();
  const data::Preview preview = corpora.first_preview();
  if (command.json) {
    print(json_of(found, preview).dump(1));
    refuse_if_useless(found);
    return 0;
  }
  print(cat("files      ", found.files, ", ", format_bytes(found.bytes), " of ", found.kind,
            found.shape.empty() ? std::string() : cat(" (", found.shape, ")")));
  print(cat("tokenizer  ", found.tokenizer, found.folder.empty() ? std::string() : cat(", of ", found.folder)));
  if (found.documents >= 0) {
    print(cat("documents  ", found.documents, ", the longest of ", counted(found.longest, "token")));
  } else {
    print("documents  unknown: these files don't say where one begins");
  }
  print(cat("tokens     ", exactly(found.tokens)));
  print(cat("with loss  ", share(found.learned, found.tokens)));
  if (found.ended >= 0) print(cat("ends       ", found.ended, " of ", found.documents, " documents end with the token for it"));
  if (found.ended < 0 && !found.shape.empty()) print("ends       the tokenizer names no token for the end of a document");
  if (found.left.empty > 0) print(cat("left out   ", counted(found.left.empty, "empty document")));
  if (found.left.skipped > 0) print(cat("left out   ", counted(found.left.skipped, "document"), " with bytes that aren't UTF-8"));
  if (found.left.replaced > 0) print(cat("replaced   bytes that aren't UTF-8 in ", counted(found.left.replaced, "document")));
  const bool colour = isatty(STDOUT_FILENO) == 1 && value_of(environment, "NO_COLOR").empty() && value_of(environment, "TERM") != "dumb";
  print(describe_sample(preview, colour));
  refuse_if_useless(found);
  return 0;
}

int tokenize_data_command(const Command& command) {
  const DataRequest request = read_request(command);
  const Corpora corpora(request.configuration, request.model ? &*request.model : nullptr);
  const std::filesystem::path output(command.path);
  const bool is_llmc = output.extension() == ".bin";
  const std::string bin = is_llmc                        ? command.path
                          : output.extension() == ".idx" ? std::filesystem::path(output).replace_extension(".bin").string()
                                                         : command.path + ".bin";
  const std::string index = std::filesystem::path(bin).replace_extension(".idx").string();
  if (is_llmc && exists(index)) {
    throw RequestError(cat(bin, ": ", index, " stands beside it and would make it a file of Megatron's; give another name"));
  }
  if (output.has_parent_path()) make_directories(output.parent_path().string());
  std::int64_t documents = 0, tokens = 0;
  const auto write_all = [&](auto& writer) {
    corpora.for_documents([&](std::span<const std::int32_t> document) {
      writer.add(document);
      ++documents;
      tokens += static_cast<std::int64_t>(document.size());
    });
    if (documents == 0) throw RequestError("the data hold no document; give others");
    writer.finish();
  };
  if (is_llmc) {
    formats::LlmcTokensWriter writer(bin, corpora.vocabulary());
    write_all(writer);
  } else {
    formats::MegatronTokensWriter writer(bin, corpora.vocabulary());
    write_all(writer);
  }
  if (command.json) {
    Json files = {bin};
    if (!is_llmc) files.push_back(index);
    print(Json{{"files", files}, {"format", is_llmc ? "llm.c" : "Megatron"}, {"documents", documents}, {"tokens", tokens}}.dump(1));
    return 0;
  }
  print(cat(counted(tokens, "token"), " of ", counted(documents, "document"), " in ", bin,
            is_llmc ? std::string(" (llm.c)") : cat(" and ", index, " (Megatron)")));
  return 0;
}

}  // namespace sluice::app
