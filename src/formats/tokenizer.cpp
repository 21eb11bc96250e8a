#include "formats/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/sentencepiece_tokenizer.hpp"
#include "formats/tokenizer_json.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestTokenizer = 256 * kMiB;
constexpr std::int64_t kLargestConfig = 64 * kMiB;  // of files that list added tokens and chat templates

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// A file's object; null where there is no such file.
json read_object(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  const std::string text = read_text(path.string(), kLargestConfig);
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(path.string(), problem);
  json value = json::parse(text);
  if (!value.is_object()) throw FormatError(path.string(), cat("found ", shown(value), ", expected an object {...}"));
  return value;
}

[[noreturn]] void mistyped(const std::string& source, const std::string& key, const json& value, const char* expected) {
  throw FormatError(source, cat("key \"", key, "\": found ", shown(value), ", expected ", expected));
}

/// A special token: its text, or an object with its content. Absent, null and false (of old files) name none.
std::optional<std::string> read_token(const json& file, const std::string& source, const char* key) {
  const auto at = file.find(key);
  if (at == file.end() || at->is_null() || *at == false) return std::nullopt;
  const json& value = at->is_object() && at->contains("content") ? at->at("content") : *at;
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    mistyped(source, key, *at, "a token's text, or an object with its \"content\"");
  return value.get<std::string>();
}

std::optional<bool> read_flag(const json& file, const std::string& source, const char* key) {
  const auto at = file.find(key);
  if (at == file.end() || at->is_null()) return std::nullopt;
  if (!at->is_boolean()) mistyped(source, key, *at, "true or false");
  return at->get<bool>();
}

/// added_tokens_decoder: {"32000": {"content": ..., "lstrip": ..., ...}}.
std::vector<AddedToken> read_added_decoder(const json& list, const std::string& source) {
  const std::string name = "added_tokens_decoder";
  if (!list.is_object()) mistyped(source, name, list, "an object {id: token}");
  std::vector<AddedToken> tokens;
  for (const auto& [id, value] : list.items()) {
    const std::string key = cat(name, '.', id);
    const bool is_number = !id.empty() && id.size() <= 9 && std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) mistyped(source, key, json(id), "a token id as key");
    if (!value.is_object()) mistyped(source, key, value, "an object with \"content\"");
    const std::optional<std::string> content = read_token(value, source, "content");
    if (!content) mistyped(source, key, value, "an object with \"content\"");
    const auto flag = [&, &token = value](const char* flag_key) { return read_flag(token, source, flag_key).value_or(false); };
    tokens.push_back({.id = std::stoi(id),
                      .content = *content,
                      .single_word = flag("single_word"),
                      .lstrip = flag("lstrip"),
                      .rstrip = flag("rstrip"),
                      .normalized = flag("normalized"),
                      .special = flag("special")});
  }
  return tokens;
}

/// added_tokens.json: {"<pad>": 32000}.
std::vector<AddedToken> read_added_tokens(const json& file, const std::string& source, const std::vector<std::string>& special) {
  std::vector<AddedToken> tokens;
  for (const auto& [content, id] : file.items()) {
    if (content.empty() || !id.is_number_unsigned() || id.get<std::uint64_t>() >= std::numeric_limits<std::int32_t>::max()) {
      mistyped(source, content, id, "a token's text and its id");
    }
    const bool is_special = std::find(special.begin(), special.end(), content) != special.end();
    tokens.push_back({.id = id.get<std::int32_t>(), .content = content, .normalized = !is_special, .special = is_special});
  }
  return tokens;
}

/// The first id where a list stands (chat models stop at several tokens).
std::optional<std::int64_t> read_end_id(const json& file, const std::string& source) {
  const auto at = file.find("eos_token_id");
  if (at == file.end() || at->is_null()) return std::nullopt;
  const json& value = at->is_array() && !at->empty() ? at->front() : *at;
  if (!value.is_number_integer()) mistyped(source, "eos_token_id", *at, "a token id or a list of them");
  return value.get<std::int64_t>();
}

SpecialTokens read_special_tokens(const std::filesystem::path& directory) {
  SpecialTokens tokens;
  std::vector<std::string> special;
  bool lists_added = false;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string source = (directory / name).string();
    const json file = read_object(source);
    if (file.is_null()) continue;
    for (const auto& [key, target] :
         {std::pair("bos_token", &tokens.begin), std::pair("eos_token", &tokens.end), std::pair("unk_token", &tokens.unknown)}) {
      if (*target) continue;
      *target = read_token(file, source, key);
      if (*target) tokens.source = source;
      if (*target) special.push_back(**target);
    }
    for (const char* key : {"pad_token", "sep_token", "cls_token", "mask_token"}) {
      if (const std::optional<std::string> token = read_token(file, source, key)) special.push_back(*token);
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const auto at = file.find(key);
      if (at == file.end() || !at->is_array()) continue;
      for (const json& each : *at) {
        if (each.is_string()) special.push_back(each.get<std::string>());
      }
    }
    if (const auto at = file.find("added_tokens_decoder"); at != file.end() && !at->is_null()) {
      tokens.added = read_added_decoder(*at, source);
      lists_added = true;
    }
    if (const std::optional<bool> adds = read_flag(file, source, "add_bos_token")) tokens.adds_begin = *adds;
    if (const std::optional<bool> legacy = read_flag(file, source, "legacy")) tokens.legacy = legacy;
    if (const auto at = file.find("tokenizer_class"); at != file.end() && at->is_string()) tokens.tokenizer_class = at->get<std::string>();
  }
  if (!lists_added) {
    const std::string source = (directory / "added_tokens.json").string();
    if (const json file = read_object(source); !file.is_null()) tokens.added = read_added_tokens(file, source, special);
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (tokens.end || tokens.end_id) break;
    tokens.end_id_source = (directory / name).string();
    if (const json file = read_object(tokens.end_id_source); !file.is_null()) tokens.end_id = read_end_id(file, tokens.end_id_source);
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& directory) {
  const std::filesystem::path folder(directory);
  const std::string json_path = (folder / "tokenizer.json").string();
  const std::string model_path = (folder / "tokenizer.model").string();
  const bool has_json = std::filesystem::exists(json_path);
  const bool has_model = std::filesystem::exists(model_path);
  if (!has_json && !has_model) return nullptr;
  const SpecialTokens special = read_special_tokens(folder);
  if (has_json) {
    const std::string text = read_text(json_path, kLargestTokenizer);
    if (!has_model || tokenizer_json_model(text) != "Unigram") return tokenizer_from_json(text, json_path, special);
  }
  return tokenizer_from_sentencepiece(read_text(model_path, kLargestTokenizer), model_path, special);
}

std::string decode_for_show(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, bool skip_special) {
  const auto try_decode = [&](std::span<const std::int32_t> some) -> std::optional<std::string> {
    try {
      return tokenizer.decode(some, skip_special);
    } catch (const RequestError&) {
      return std::nullopt;
    }
  };
  if (std::optional<std::string> whole = try_decode(ids)) return *std::move(whole);
  std::string text;
  std::size_t begin = 0;  // of ids that are known and not yet in the text
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (try_decode(ids.subspan(i, 1))) continue;
    text += tokenizer.decode(ids.subspan(begin, i - begin), skip_special) + "\xEF\xBF\xBD";
    begin = i + 1;
  }
  return text + tokenizer.decode(ids.subspan(begin), skip_special);
}

}  // namespace sluice::formats
