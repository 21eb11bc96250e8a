#include "formats/tokenizer_json.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/bpe.hpp"
#include "formats/tokenizer_stages.hpp"
#include "formats/tokenizer_unicode.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

using nlohmann::json;

/// GPT-2's pattern (encoder.py), which ByteLevel brings along.
constexpr const char* kByteLevelPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// One object of the file: every key is asked for by name, and one that nobody asked for is refused.
class Part {
 public:
  Part(const json& value, std::string path, const std::string& source) : value_(value), path_(std::move(path)), source_(source) {
    if (!value.is_object()) mistyped("", value, "an object {...}");
  }

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& key) const { return path_.empty() ? key : key.empty() ? path_ : cat(path_, '.', key); }

  /// Null where it is absent or null itself.
  const json* find(const char* key) {
    known_.insert(key);
    const auto at = value_.find(key);
    return at == value_.end() || at->is_null() ? nullptr : &*at;
  }
  const json& require(const char* key) {
    const json* found = find(key);
    if (found == nullptr) throw FormatError(source_, cat("key ", in_quotes(path_of(key)), " is missing"));
    return *found;
  }
  std::string text(const char* key) { return text_of(key, require(key)); }
  std::optional<std::string> text_if(const char* key) {
    const json* found = find(key);
    return found == nullptr ? std::nullopt : std::optional(text_of(key, *found));
  }
  bool flag(const char* key, std::optional<bool> otherwise) {
    const json* found = find(key);
    if (found == nullptr && otherwise) return *otherwise;
    const json& value = require(key);
    if (!value.is_boolean()) mistyped(key, value, "true or false");
    return value.get<bool>();
  }
  std::int64_t count(const char* key) {
    const json& value = require(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 1'000'000) mistyped(key, value, "a whole number, 0 to 1000000");
    return value.get<std::int64_t>();
  }
  const json& list(const char* key) {
    const json& value = require(key);
    if (!value.is_array()) mistyped(key, value, "a list [...]");
    return value;
  }
  /// A string of one character.
  std::string character(const char* key) {
    std::string text = this->text(key);
    if (text.empty() || utf8_bytes(text[0]) != text.size()) mistyped(key, json(text), "one character");
    return text;
  }
  /// Takes keys without a look at them.
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }
  void finish() const {
    for (const auto& [key, value] : value_.items()) {
      if (known_.contains(key)) continue;
      throw RequestError(
          cat(source_, ": key ", in_quotes(path_of(key)), " (", shown(value), ") is unknown and may change the ids of tokens"));
    }
  }

  [[noreturn]] void mistyped(const std::string& key, const json& value, const char* expected) const {
    throw FormatError(source_, cat("key ", in_quotes(path_of(key)), ": found ", shown(value), ", expected ", expected));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    throw RequestError(cat(source_, ": ", path_, ": ", what, " is not supported"));
  }

 private:
  std::string text_of(const char* key, const json& value) const {
    if (!value.is_string()) mistyped(key, value, "a text \"...\"");
    return value.get<std::string>();
  }

  const json& value_;
  std::string path_;
  const std::string& source_;
  std::unordered_set<std::string> known_;
};

/// {"String": ...} or {"Regex": ...}.
Pattern read_pattern(Part& owner, const std::string& source) {
  Part part(owner.require("pattern"), owner.path_of("pattern"), source);
  const std::optional<std::string> regex = part.text_if("Regex");
  const std::optional<std::string> literal = part.text_if("String");
  part.finish();
  if (regex.has_value() == literal.has_value()) {
    throw FormatError(source, cat("key \"", part.path(), "\": expected one of \"Regex\" and \"String\""));
  }
  if (regex) return {.literal = "", .regex = std::make_shared<const TokenizerRegex>(*regex, source, part.path() + ".Regex")};
  if (literal->empty()) part.unsupported("a pattern without a character");
  return {.literal = *literal, .regex = nullptr};
}

/// Reads `part` with `read_one`, or where it is a Sequence its members under `members`, into `out`. Depth is bounded by json_problem().
template <typename ReadOne>
void read_sequence(const json& value, const std::string& path, const std::string& source, const char* members, const ReadOne& read_one) {
  Part part(value, path, source);
  const std::string type = part.text("type");
  if (type != "Sequence") return read_one(part, type);
  const json& list = part.list(members);
  part.finish();
  for (std::size_t i = 0; i < list.size(); ++i) {
    read_sequence(list[i], cat(path, '.', members, '[', i, ']'), source, members, read_one);
  }
}

std::vector<Normalizer> read_normalizers(const json& value, const std::string& source) {
  std::vector<Normalizer> stages;
  if (value.is_null()) return stages;
  read_sequence(value, "normalizer", source, "normalizers", [&](Part& part, const std::string& type) {
    Normalizer stage;
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      stage.kind = Normalizer::Kind::kForm;
      stage.form = type == "NFC"    ? NormalForm::kNfc
                   : type == "NFD"  ? NormalForm::kNfd
                   : type == "NFKC" ? NormalForm::kNfkc
                                    : NormalForm::kNfkd;
    } else if (type == "Lowercase") {
      stage.kind = Normalizer::Kind::kLowercase;
    } else if (type == "Replace") {
      stage.kind = Normalizer::Kind::kReplace;
      stage.pattern = read_pattern(part, source);
      stage.content = part.text("content");
    } else if (type == "Prepend") {
      stage.kind = Normalizer::Kind::kPrepend;
      stage.content = part.text("prepend");
    } else if (type == "Strip") {
      stage.kind = Normalizer::Kind::kStrip;
      stage.strips_left = part.flag("strip_left", std::nullopt);
      stage.strips_right = part.flag("strip_right", std::nullopt);
    } else {
      part.unsupported(cat("the normalizer ", in_quotes(type)));
    }
    part.finish();
    stages.push_back(std::move(stage));
  });
  return stages;
}

SplitBehavior read_behavior(Part& part, std::optional<SplitBehavior> otherwise) {
  const std::optional<std::string> name = part.text_if("behavior");
  if (!name && otherwise) return *otherwise;
  const std::string& text = name ? *name : part.text("behavior");
  if (text == "Removed") return SplitBehavior::kRemoved;
  if (text == "Isolated") return SplitBehavior::kIsolated;
  if (text == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (text == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (text == "Contiguous") return SplitBehavior::kContiguous;
  part.mistyped("behavior", json(text), "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/// What a Metaspace object says; its two spellings of the scheme are of older and newer files.
PrependScheme read_scheme(Part& part) {
  const std::optional<std::string> name = part.text_if("prepend_scheme");
  const bool adds = part.flag("add_prefix_space", true);
  if (name && *name != "always" && *name != "first" && *name != "never") {
    part.mistyped("prepend_scheme", json(*name), "always, first or never");
  }
  if (!adds && name && *name != "never") {
    part.mistyped("add_prefix_space", json(false), "true, since prepend_scheme isn't \"never\"");
  }
  if (!adds || name == "never") return PrependScheme::kNever;
  return name == "first" ? PrependScheme::kFirst : PrependScheme::kAlways;
}

std::vector<PreTokenizer> read_pre_tokenizers(const json& value, const std::string& source) {
  std::vector<PreTokenizer> stages;
  if (value.is_null()) return stages;
  read_sequence(value, "pre_tokenizer", source, "pretokenizers", [&](Part& part, const std::string& type) {
    PreTokenizer stage;
    if (type == "ByteLevel") {
      stage.kind = PreTokenizer::Kind::kByteLevel;
      stage.adds_prefix_space = part.flag("add_prefix_space", std::nullopt);
      if (part.flag("use_regex", true)) {
        stage.pattern.regex = std::make_shared<const TokenizerRegex>(kByteLevelPattern, source, part.path());
      }
      part.ignore({"trim_offsets"});
    } else if (type == "Split") {
      stage.kind = PreTokenizer::Kind::kSplit;
      stage.pattern = read_pattern(part, source);
      stage.behavior = read_behavior(part, std::nullopt);
      stage.inverts = part.flag("invert", std::nullopt);
    } else if (type == "Digits") {
      stage.kind = PreTokenizer::Kind::kDigits;
      stage.behavior = part.flag("individual_digits", std::nullopt) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    } else if (type == "Punctuation") {
      stage.kind = PreTokenizer::Kind::kPunctuation;
      stage.behavior = read_behavior(part, SplitBehavior::kIsolated);
    } else if (type == "Whitespace") {
      stage.kind = PreTokenizer::Kind::kWhitespace;
    } else if (type == "WhitespaceSplit") {
      stage.kind = PreTokenizer::Kind::kWhitespaceSplit;
    } else if (type == "Metaspace") {
      stage.kind = PreTokenizer::Kind::kMetaspace;
      stage.replacement = part.character("replacement");
      stage.scheme = read_scheme(part);
      stage.splits = part.flag("split", true);
      part.ignore({"str_rep"});
    } else {
      part.unsupported(cat("the pre-tokenizer ", in_quotes(type)));
    }
    part.finish();
    stages.push_back(std::move(stage));
  });
  return stages;
}

std::vector<Decoder> read_decoders(const json& value, const std::string& source) {
  std::vector<Decoder> stages;
  if (value.is_null()) return stages;
  read_sequence(value, "decoder", source, "decoders", [&](Part& part, const std::string& type) {
    Decoder stage;
    if (type == "ByteLevel") {
      stage.kind = Decoder::Kind::kByteLevel;
      part.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "Replace") {
      stage.kind = Decoder::Kind::kReplace;
      const Pattern pattern = read_pattern(part, source);
      if (pattern.regex) part.unsupported("a decoder that replaces by a regular expression");
      stage.literal = pattern.literal;
      stage.content = part.text("content");
    } else if (type == "ByteFallback") {
      stage.kind = Decoder::Kind::kByteFallback;
    } else if (type == "Fuse") {
      stage.kind = Decoder::Kind::kFuse;
    } else if (type == "Strip") {
      stage.kind = Decoder::Kind::kStrip;
      stage.literal = part.character("content");
      stage.start = static_cast<std::size_t>(part.count("start"));
      stage.stop = static_cast<std::size_t>(part.count("stop"));
    } else if (type == "Metaspace") {
      stage.kind = Decoder::Kind::kMetaspace;
      stage.literal = part.character("replacement");
      stage.strips_first = read_scheme(part) != PrependScheme::kNever;
      part.ignore({"str_rep", "split"});
    } else {
      part.unsupported(cat("the decoder ", in_quotes(type)));
    }
    part.finish();
    stages.push_back(std::move(stage));
  });
  return stages;
}

/// The id of the token that a post-processor puts before a text.
std::optional<std::int64_t> read_begin(const json& value, const std::string& source) {
  std::optional<std::int64_t> begin;
  if (value.is_null()) return begin;
  read_sequence(value, "post_processor", source, "processors", [&](Part& part, const std::string& type) {
    if (type == "ByteLevel") {
      part.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
      return part.finish();
    }
    if (type != "TemplateProcessing") part.unsupported(cat("the post-processor ", in_quotes(type)));
    const json& pieces = part.list("single");
    const json& tokens = part.require("special_tokens");
    part.ignore({"pair"});
    part.finish();
    std::vector<std::int64_t> before;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Part piece(pieces[i], cat(part.path(), ".single[", i, ']'), source);
      if (piece.find("Sequence") != nullptr) break;
      Part named(piece.require("SpecialToken"), piece.path_of("SpecialToken"), source);
      const std::string name = named.text("id");
      Part all(tokens, part.path_of("special_tokens"), source);
      Part token(all.require(name.c_str()), all.path_of(name), source);
      for (const json& id : token.list("ids")) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
          token.mistyped("ids", id, "the id of a token");
        }
        before.push_back(id.get<std::int64_t>());
      }
    }
    if (before.size() > 1 || (begin && !before.empty())) part.unsupported("more than one token before a text");
    if (!before.empty()) begin = before.front();
  });
  return begin;
}

std::int32_t read_id(const json& value, const std::string& path, const std::string& source) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= std::numeric_limits<std::int32_t>::max()) {
    throw FormatError(source, cat("key ", in_quotes(path), ": found ", shown(value), ", expected a token id, 0 to 2147483646"));
  }
  return value.get<std::int32_t>();
}

BpeSettings read_model(const json& value, const std::string& source) {
  Part part(value, "model", source);
  // Files of old versions name no type; merges tell a BPE model from the others.
  const std::optional<std::string> type = part.text_if("type");
  if (type ? *type != "BPE" : part.find("merges") == nullptr) {
    throw RequestError(cat(source, ": the model ", type ? in_quotes(*type) : std::string("without a type"),
                           " is not supported; supported is BPE", type == "Unigram" ? ", and Unigram through a tokenizer.model" : ""));
  }
  BpeSettings settings;
  settings.source = source;
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!part.text_if(key).value_or("").empty()) part.unsupported(cat(key, " that isn't empty"));
  }
  if (const json* dropout = part.find("dropout"); dropout != nullptr && *dropout != 0.0) part.unsupported("\"dropout\"");
  settings.unknown = part.text_if("unk_token");
  settings.fuses_unknown = part.flag("fuse_unk", false);
  settings.byte_fallback = part.flag("byte_fallback", false);
  settings.ignores_merges = part.flag("ignore_merges", false);

  const json& vocabulary = part.require("vocab");
  if (!vocabulary.is_object()) part.mistyped("vocab", vocabulary, "an object {token: id}");
  std::unordered_map<std::int32_t, const std::string*> tokens;
  tokens.reserve(vocabulary.size());
  settings.vocabulary.reserve(vocabulary.size());
  for (const auto& [token, value_of_token] : vocabulary.get_ref<const json::object_t&>()) {
    const std::int32_t id = read_id(value_of_token, cat("model.vocab.", token), source);
    const auto [other, is_new] = tokens.emplace(id, &token);
    if (!is_new) {
      throw FormatError(source, cat("model.vocab: ", in_quotes(*other->second), " and ", in_quotes(token), " have the same id, ", id));
    }
    settings.vocabulary.emplace_back(token, id);
  }

  const json& merges = part.list("merges");
  settings.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const json& merge = merges[i];
    const auto refuse = [&](const char* expected) { part.mistyped(cat("merges[", i, ']'), merge, expected); };
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse("two tokens with one space between");
      settings.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      settings.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      refuse("two tokens, as \"a b\" or [\"a\", \"b\"]");
    }
  }
  part.finish();
  return settings;
}

/// The ids that the library gives to the added tokens: a token of the model keeps its own, any other gets the next free number. A file
/// that says otherwise would be read otherwise there than it says.
std::vector<AddedToken> read_added_tokens(const json& value, const Bpe& model, const std::string& source) {
  std::vector<AddedToken> tokens;
  if (value.is_null()) return tokens;
  if (!value.is_array()) throw FormatError(source, cat("key \"added_tokens\": found ", shown(value), ", expected a list [...]"));
  std::unordered_set<std::string> contents;
  auto next = static_cast<std::int64_t>(model.size());
  for (std::size_t i = 0; i < value.size(); ++i) {
    Part part(value[i], cat("added_tokens[", i, ']'), source);
    AddedToken token{.id = read_id(part.require("id"), part.path_of("id"), source),
                     .content = part.text("content"),
                     .single_word = part.flag("single_word", std::nullopt),
                     .lstrip = part.flag("lstrip", std::nullopt),
                     .rstrip = part.flag("rstrip", std::nullopt),
                     .normalized = part.flag("normalized", std::nullopt),
                     .special = part.flag("special", std::nullopt)};
    part.finish();
    if (token.content.empty()) part.mistyped("content", json(""), "at least one character");
    if (!contents.insert(token.content).second)
      throw FormatError(source, cat(part.path(), ": ", in_quotes(token.content), " stands there twice"));
    const std::int64_t id = model.id_of(token.content).value_or(static_cast<std::int32_t>(std::min<std::int64_t>(next, 0x7FFFFFFF)));
    if (id == next && !model.id_of(token.content)) ++next;
    if (id != token.id) {
      throw FormatError(source, cat(part.path(), ": ", in_quotes(token.content), " has id ", token.id, ", but ",
                                    model.id_of(token.content) ? "model.vocab gives it " : "the next id behind the vocabulary is ", id));
    }
    if (!model.id_of(token.content) && model.token_of(token.id) != nullptr) {
      throw FormatError(source,
                        cat(part.path(), ": id ", token.id, " is that of ", in_quotes(*model.token_of(token.id)), " in model.vocab"));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// The ids of words that came before. One per thread, forgotten when full.
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 64;  // bytes; longer ones hardly come again

  std::optional<std::span<const std::int32_t>> find(std::string_view word) {
    slot_ = std::hash<std::string_view>()(word) & (slots_.size() - 1);
    for (; slots_[slot_].length != 0; slot_ = (slot_ + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[slot_];
      if (slot.length == word.size() && std::string_view(text_).substr(slot.text, slot.length) == word) {
        return std::span<const std::int32_t>(ids_).subspan(slot.ids, slot.count);
      }
    }
    return std::nullopt;
  }
  /// `word` is what find() just didn't.
  void insert(std::string_view word, std::span<const std::int32_t> ids) {
    if (++used_ > slots_.size() / 2) {
      clear();
      find(word);
      ++used_;
    }
    slots_[slot_] = {static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(ids_.size()),
                     static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
    text_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

 private:
  struct Slot {
    std::uint32_t text = 0;
    std::uint32_t ids = 0;
    std::uint16_t length = 0;  // 0: free
    std::uint16_t count = 0;
  };
  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    text_.clear();
    ids_.clear();
    used_ = 0;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << 17);
  std::string text_;
  std::vector<std::int32_t> ids_;
  std::size_t used_ = 0;
  std::size_t slot_ = 0;
};

struct Scratch {
  Bpe::Scratch bpe;
  StageScratch stages;
  WordCache cache;
  Pieces pieces;
};

/// Scratches that wait for the next call, so that threads keep caches without sharing one.
class ScratchPool {
 public:
  class Lease {
   public:
    Lease(ScratchPool& pool, std::unique_ptr<Scratch> scratch) : pool_(pool), scratch_(std::move(scratch)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(scratch_));
    }
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  Lease acquire() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      idle_.reserve(idle_.capacity() + 1);  // so that giving it back needs no memory
      return {*this, std::make_unique<Scratch>()};
    }
    std::unique_ptr<Scratch> scratch = std::move(idle_.back());
    idle_.pop_back();
    return {*this, std::move(scratch)};
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const json& file, const std::string& source, const SpecialTokens& special)
      : source_(source), model_(read_model(member(file, "model"), source)) {
    const json& version = member(file, "version");
    if (!version.is_null() && version != "1.0") {
      throw RequestError(cat(source, ": key \"version\": found ", shown(version), ", supported is \"1.0\""));
    }
    normalizers_ = read_normalizers(member(file, "normalizer"), source);
    pre_tokenizers_ = read_pre_tokenizers(member(file, "pre_tokenizer"), source);
    decoders_ = read_decoders(member(file, "decoder"), source);
    has_decoder_ = !member(file, "decoder").is_null();
    const bool is_positional = std::any_of(pre_tokenizers_.begin(), pre_tokenizers_.end(), [](const PreTokenizer& stage) {
      return stage.kind == PreTokenizer::Kind::kMetaspace && stage.scheme == PrependScheme::kFirst;
    });
    const bool has_form = std::any_of(normalizers_.begin(), normalizers_.end(),
                                      [](const Normalizer& stage) { return stage.kind == Normalizer::Kind::kForm; });
    if (is_positional && has_form) {
      throw RequestError(
          cat(source, ": pre_tokenizer: Metaspace with prepend_scheme \"first\" behind a Unicode normalizer is not supported"));
    }
    words_are_bytes_ = !pre_tokenizers_.empty() && pre_tokenizers_.back().kind == PreTokenizer::Kind::kByteLevel;

    added_ = read_added_tokens(member(file, "added_tokens"), model_, source);
    mark_special(special);
    build_finders();
    const std::optional<std::int64_t> template_begin = read_begin(member(file, "post_processor"), source);
    if (template_begin) {
      begin_ = existing(*template_begin, source, "post_processor");
    } else if (special.adds_begin && special.begin) {
      begin_ = id_of(*special.begin);
    }
    if (special.end) {
      end_ = id_of(*special.end);
    } else if (special.end_id) {
      end_ = existing(*special.end_id, special.end_id_source, "eos_token_id");
    }
    fingerprint_ = fingerprint_of(file);
  }

  std::string kind() const override { return "bpe"; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::optional<std::int32_t> end_of_document() const override { return end_; }
  std::optional<std::int32_t> begin_of_document() const override { return begin_; }
  std::uint64_t fingerprint() const override { return fingerprint_; }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const auto found = added_ids_.find(std::string(token));
    return found != added_ids_.end() ? std::optional(found->second) : model_.id_of(token);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
      throw RequestError(cat("the text is not UTF-8 at its byte ", bad));
    }
    const ScratchPool::Lease lease = pool_.acquire();
    Scratch& scratch = *lease;
    for (const AddedPart& part : raw_finder_->split(text)) {
      if (part.token >= 0) {
        out.push_back(raw_ids_[static_cast<std::size_t>(part.token)]);
        continue;
      }
      Section section{std::string(text.substr(part.begin, part.end - part.begin)), part.begin == 0 ? utf8_bytes(text[0]) : 0};
      for (const Normalizer& stage : normalizers_) normalize(stage, section, scratch.stages);
      encode_section(std::move(section), scratch, out);
    }
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (const auto added = added_texts_.find(ids[i]); added != added_texts_.end()) {
        if (!skip_special || !special_ids_.contains(ids[i])) tokens.push_back(added->second);
      } else if (const std::string* token = model_.token_of(ids[i]); token != nullptr) {
        tokens.push_back(*token);
      } else {
        throw RequestError(cat("token ", i, ": found ", ids[i], ", which is no token of ", source_, " (", vocabulary_, " ids)"));
      }
    }
    if (!has_decoder_) {
      std::string text;
      for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 ? " " : "") + tokens[i];
      return text;
    }
    for (const Decoder& stage : decoders_) decode_tokens(stage, tokens);
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
  }

 private:
  static const json& member(const json& file, const char* key) {
    static const json kNull;
    const auto at = file.find(key);
    return at == file.end() ? kNull : *at;
  }

  std::int32_t existing(std::int64_t id, const std::string& source, const char* key) const {
    const bool fits = id >= 0 && id < vocabulary_;
    if (!fits || (model_.token_of(static_cast<std::int32_t>(id)) == nullptr && !added_texts_.contains(static_cast<std::int32_t>(id)))) {
      throw FormatError(source, cat("key \"", key, "\": ", id, " is no token of ", source_));
    }
    return static_cast<std::int32_t>(id);
  }

  /// As transformers does: what tokenizer_config.json names as special is an added token, also where tokenizer.json doesn't say so.
  /// One that has no id is left out, unless documents end or begin with it.
  void mark_special(const SpecialTokens& special) {
    const auto mark = [&](const AddedToken& wanted) {
      const auto known = std::find_if(added_.begin(), added_.end(), [&](const AddedToken& each) { return each.content == wanted.content; });
      if (known != added_.end()) return true;
      const std::optional<std::int32_t> id = model_.id_of(wanted.content);
      if (!id) return false;
      added_.push_back(wanted);
      added_.back().id = *id;
      return true;
    };
    for (const AddedToken& token : special.added) mark(token);
    const auto mark_named = [&](const std::optional<std::string>& content, const char* key, bool is_needed) {
      if (!content || mark({.id = 0, .content = *content, .special = true}) || !is_needed) return;
      throw FormatError(special.source, cat("key \"", key, "\": ", in_quotes(*content), " is no token of ", source_));
    };
    mark_named(special.end, "eos_token", true);
    mark_named(special.begin, "bos_token", special.adds_begin);
  }

  void build_finders() {
    std::vector<AddedToken> raw, normal;
    std::vector<std::string> raw_patterns, normal_patterns;
    std::unordered_map<std::string, std::string> by_pattern;
    StageScratch scratch;
    vocabulary_ = model_.end_id();
    for (const AddedToken& token : added_) {
      vocabulary_ = std::max(vocabulary_, std::int64_t{token.id} + 1);
      added_ids_.emplace(token.content, token.id);
      if (token.special) special_ids_.insert(token.id);
      Section pattern{token.content, 0};
      if (token.normalized) {
        for (const Normalizer& stage : normalizers_) normalize(stage, pattern, scratch);
        const auto [other, is_new] = by_pattern.emplace(pattern.text, token.content);
        if (pattern.text.empty() || !is_new) {
          throw FormatError(source_, cat("added_tokens: ", in_quotes(token.content), " is ",
                                         pattern.text.empty() ? std::string("empty") : cat("the same as ", in_quotes(other->second)),
                                         " when it is normalized"));
        }
      }
      added_texts_.emplace(token.id, pattern.text);
      (token.normalized ? normal : raw).push_back(token);
      (token.normalized ? normal_patterns : raw_patterns).push_back(pattern.text);
      (token.normalized ? normal_ids_ : raw_ids_).push_back(token.id);
    }
    raw_finder_.emplace(raw, raw_patterns);
    normal_finder_.emplace(normal, normal_patterns);
  }

  /// A normalized text between added tokens.
  void encode_section(Section section, Scratch& scratch, std::vector<std::int32_t>& out) const {
    const std::vector<AddedPart> parts = normal_finder_->split(section.text);
    for (const AddedPart& part : parts) {
      if (part.token >= 0) {
        out.push_back(normal_ids_[static_cast<std::size_t>(part.token)]);
        continue;
      }
      Pieces& pieces = scratch.pieces;
      if (parts.size() == 1) {
        pieces.section = std::move(section);  // NOLINT(bugprone-use-after-move): of the only part
      } else {
        pieces.section.text = section.text.substr(part.begin, part.end - part.begin);
        pieces.section.from_start = section.from_start > part.begin ? section.from_start - part.begin : 0;
      }
      pieces.ranges.assign(1, {0, pieces.section.text.size()});
      for (std::size_t i = 0; i < pre_tokenizers_.size(); ++i) {
        pre_tokenize(pre_tokenizers_[i], i + 1 < pre_tokenizers_.size(), pieces, scratch.stages);
      }
      for (const ByteRange& range : pieces.ranges) {
        encode_word(std::string_view(pieces.section.text).substr(range.begin, range.end - range.begin), scratch, out);
      }
    }
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
    const bool is_cached = word.size() <= WordCache::kLongestWord;
    if (is_cached) {
      if (const auto ids = scratch.cache.find(word)) {
        out.insert(out.end(), ids->begin(), ids->end());
        return;
      }
    }
    const std::size_t before = out.size();
    if (words_are_bytes_) {
      model_.encode_bytes(word, scratch.bpe, out);
    } else {
      model_.encode(word, scratch.bpe, out);
    }
    if (is_cached && !word.empty()) scratch.cache.insert(word, std::span<const std::int32_t>(out).subspan(before));
  }

  std::uint64_t fingerprint_of(const json& file) const {
    Hash hash;
    hash.add("tokenizer.json 1");
    const auto add = [&](const json& value) { hash.add(value.dump(-1, ' ', true)); };
    const json& model = member(file, "model");
    for (const auto& [key, value] : model.items()) {
      if (key == "vocab" || key == "merges" || key == "type") continue;
      hash.add(key);
      add(value);
    }
    for (const auto& [token, id] : model["vocab"].get_ref<const json::object_t&>()) hash.add(token).add(id.get<std::uint64_t>());
    for (const json& merge : model["merges"]) {
      if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        if (text.starts_with("#version")) continue;
        const std::size_t space = text.find(' ');
        hash.add(std::string_view(text).substr(0, space)).add(std::string_view(text).substr(space + 1));
      } else {
        hash.add(merge[0].get_ref<const std::string&>()).add(merge[1].get_ref<const std::string&>());
      }
    }
    add(member(file, "normalizer"));
    add(member(file, "pre_tokenizer"));
    for (const AddedToken& token : added_) {
      hash.add(static_cast<std::uint64_t>(token.id)).add(token.content);
      hash.add(static_cast<std::uint64_t>(token.single_word) | static_cast<std::uint64_t>(token.lstrip) << 1 |
               static_cast<std::uint64_t>(token.rstrip) << 2 | static_cast<std::uint64_t>(token.normalized) << 3);
    }
    hash.add(static_cast<std::uint64_t>(begin_.value_or(-1))).add(static_cast<std::uint64_t>(end_.value_or(-1)));
    return hash.value();
  }

  std::string source_;
  Bpe model_;
  std::vector<Normalizer> normalizers_;
  std::vector<PreTokenizer> pre_tokenizers_;
  std::vector<Decoder> decoders_;
  bool has_decoder_ = false;
  bool words_are_bytes_ = false;  // ByteLevel comes last, and Bpe does its work
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::unordered_map<std::int32_t, std::string> added_texts_;  // as the library writes them out: normalized where they are so
  std::unordered_set<std::int32_t> special_ids_;
  std::optional<AddedTokenFinder> raw_finder_;
  std::optional<AddedTokenFinder> normal_finder_;
  std::vector<std::int32_t> raw_ids_;  // of the tokens of each finder
  std::vector<std::int32_t> normal_ids_;
  std::int64_t vocabulary_ = 0;
  std::optional<std::int32_t> begin_;
  std::optional<std::int32_t> end_;
  std::uint64_t fingerprint_ = 0;
  mutable ScratchPool pool_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source, const SpecialTokens& special) {
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(source, problem);
  const json file = json::parse(text);
  if (!file.is_object()) throw FormatError(source, cat("found ", shown(file), ", expected an object {...}"));
  if (!file.contains("model")) throw FormatError(source, "key \"model\" is missing");
  return std::make_unique<JsonTokenizer>(file, source, special);
}

std::string tokenizer_json_model(const std::string& text) {
  const json file = json::parse(text, nullptr, false);
  const json::json_pointer place("/model/type");
  if (!file.is_object() || !file.contains(place) || !file.at(place).is_string()) return {};
  return file.at(place).get<std::string>();
}

}  // namespace sluice::formats
