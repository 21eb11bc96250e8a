#include "formats/sentencepiece_tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/tokenizer_added.hpp"
#include "formats/tokenizer_stages.hpp"
#include "formats/tokenizer_unicode.hpp"

namespace sluice::formats {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581, a space inside of pieces

/// Protocol buffers, as much of them as a walk over the fields of a ModelProto needs.
class ProtoReader {
 public:
  ProtoReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;    // of a number
    std::string_view contents;  // of bytes or a message
  };
  /// False at the end.
  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3, .value = 0, .contents = {}};
    switch (key & 7) {
      case 0:
        field.value = varint();
        return true;
      case 1:
        field.contents = take(8);
        return true;
      case 2:
        field.contents = take(varint());
        return true;
      case 5:
        field.contents = take(4);
        return true;
      default:
        throw FormatError(source_, cat("not a SentencePiece model: a field of kind ", key & 7, " at byte ", at_));
    }
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw FormatError(source_, cat("not a SentencePiece model: a number without an end at byte ", at_));
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      throw FormatError(source_, cat("not a whole SentencePiece model: a field of ", count, " bytes at byte ", at_, " of ", bytes_.size()));
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  std::string_view bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
};

/// Of sentencepiece_model.proto: ModelProto.pieces = 1 {piece = 1, type = 3}, .normalizer_spec = 3 {add_dummy_prefix = 3,
/// remove_extra_whitespaces = 4, escape_whitespaces = 5, precompiled_charsmap = 2}; all three flags are true by default.
struct ModelFacts {
  std::int64_t pieces = 0;
  bool adds_dummy_prefix = true;
  bool removes_extra_spaces = true;
  bool escapes_spaces = true;
};

ModelFacts read_facts(std::string_view model, const std::string& source) {
  ModelFacts facts;
  ProtoReader reader(model, source);
  for (ProtoReader::Field field; reader.next(field);) {
    if (field.number == 1) ++facts.pieces;
    if (field.number != 3) continue;
    ProtoReader normalizer(field.contents, source);
    for (ProtoReader::Field inner; normalizer.next(inner);) {
      if (inner.number == 3) facts.adds_dummy_prefix = inner.value != 0;
      if (inner.number == 4) facts.removes_extra_spaces = inner.value != 0;
      if (inner.number == 5) facts.escapes_spaces = inner.value != 0;
    }
  }
  if (facts.pieces == 0) throw FormatError(source, "not a SentencePiece model: it has no pieces");
  return facts;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, const std::string& source, const SpecialTokens& special) : source_(source) {
    const ModelFacts facts = read_facts(model, source);
    is_legacy_ = special.legacy.value_or(special.tokenizer_class != "LlamaTokenizer" && special.tokenizer_class != "LlamaTokenizerFast");
    adds_prefix_ = facts.adds_dummy_prefix;
    std::string text = model;
    if (!is_legacy_) {
      if (facts.removes_extra_spaces || !facts.escapes_spaces) {
        throw RequestError(cat(source,
                               ": \"legacy\": false with a model that removes extra spaces or leaves spaces as they are is not supported; ",
                               "save the tokenizer as tokenizer.json"));
      }
      // Messages that stand there twice are merged: normalizer_spec { add_dummy_prefix: false }.
      text += std::string("\x1A\x02\x18\x00", 4);
    }
    const sentencepiece::util::Status status = processor_.LoadFromSerializedProto(text);
    if (!status.ok()) throw FormatError(source, cat("not a SentencePiece model: ", one_line(status.error_message())));
    pieces_ = processor_.GetPieceSize();

    collect_added(special);
    begin_ = named(special.begin, processor_.bos_id(), special.source, "bos_token");
    if (!special.adds_begin) begin_.reset();
    end_ = named(special.end, processor_.eos_id(), special.source, "eos_token");
    if (!special.end && special.end_id) {
      if (*special.end_id < 0 || *special.end_id >= vocabulary_) {
        throw FormatError(special.end_id_source, cat("key \"eos_token_id\": ", *special.end_id, " is no token of ", source));
      }
      end_ = static_cast<std::int32_t>(*special.end_id);
    }
    Hash hash;
    hash.add("tokenizer.model 1").add(model).add(static_cast<std::uint64_t>(is_legacy_));
    for (const AddedToken& token : added_) hash.add(static_cast<std::uint64_t>(token.id)).add(token.content);
    hash.add(static_cast<std::uint64_t>(begin_.value_or(-1))).add(static_cast<std::uint64_t>(end_.value_or(-1)));
    fingerprint_ = hash.value();
  }

  std::string kind() const override { return "sentencepiece"; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::optional<std::int32_t> end_of_document() const override { return end_; }
  std::optional<std::int32_t> begin_of_document() const override { return begin_; }
  std::uint64_t fingerprint() const override { return fingerprint_; }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    for (const AddedToken& each : added_) {
      if (each.content == token) return each.id;
    }
    return piece_id(token);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
      throw RequestError(cat("the text is not UTF-8 at its byte ", bad));
    }
    std::vector<int> ids;
    for (const AddedPart& part : finder_->split(text)) {
      if (part.token >= 0) {
        out.push_back(added_[static_cast<std::size_t>(part.token)].id);
        continue;
      }
      std::string_view section = text.substr(part.begin, part.end - part.begin);
      std::string prefixed;
      if (!is_legacy_ && adds_prefix_ && part.begin == 0 && section[0] != ' ' && !section.starts_with(kSpaceSymbol)) {
        prefixed = cat(' ', section);
        section = prefixed;
      }
      const sentencepiece::util::Status status = processor_.Encode(section, &ids);
      if (!status.ok()) throw RequestError(cat(source_, ": SentencePiece can't encode the text: ", one_line(status.error_message())));
      out.insert(out.end(), ids.begin(), ids.end());
    }
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int32_t id = ids[i];
      if (skip_special && special_ids_.contains(id)) continue;
      if (const auto added = added_texts_.find(id); added != added_texts_.end()) {
        tokens.push_back(added->second);
      } else if (id >= 0 && id < pieces_) {
        tokens.push_back(processor_.IdToPiece(id));
      } else {
        throw RequestError(cat("token ", i, ": found ", id, ", which is no token of ", source_, " (", vocabulary_, " ids)"));
      }
    }
    decode_tokens({.kind = Decoder::Kind::kReplace, .literal = std::string(kSpaceSymbol), .content = " "}, tokens);
    decode_tokens({.kind = Decoder::Kind::kByteFallback}, tokens);
    decode_tokens({.kind = Decoder::Kind::kFuse}, tokens);
    if (adds_prefix_) decode_tokens({.kind = Decoder::Kind::kStrip, .literal = " ", .start = 1}, tokens);
    return tokens.front();
  }

 private:
  static std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

  /// PieceToId answers with the unknown token's id where there is no such piece.
  std::optional<std::int32_t> piece_id(std::string_view piece) const {
    const int id = processor_.PieceToId(piece);
    return id >= 0 && id < pieces_ && processor_.IdToPiece(id) == piece ? std::optional<std::int32_t>(id) : std::nullopt;
  }

  /// The special token of a name: what the configuration says, else what the model does.
  std::optional<std::int32_t> named(const std::optional<std::string>& content, int otherwise, const std::string& source,
                                    const char* key) const {
    if (!content) return otherwise >= 0 ? std::optional<std::int32_t>(otherwise) : std::nullopt;
    const std::optional<std::int32_t> id = id_of(*content);
    if (!id) throw FormatError(source, cat("key \"", key, "\": ", in_quotes(*content), " is no token of ", source_));
    return id;
  }

  void collect_added(const SpecialTokens& special) {
    std::unordered_set<std::string> contents;
    std::unordered_set<std::int32_t> ids;
    const auto add = [&](AddedToken token) {
      token.normalized = false;  // looked for in the text as it stands
      if (!contents.insert(token.content).second) return;
      if (!ids.insert(token.id).second) {
        throw FormatError(special.source, cat("two added tokens have id ", token.id, ", one of them ", in_quotes(token.content)));
      }
      added_.push_back(std::move(token));
    };
    for (const AddedToken& token : special.added) {
      const std::optional<std::int32_t> piece = piece_id(token.content);
      if (piece && *piece != token.id) {
        throw FormatError(special.source, cat("added token ", in_quotes(token.content), " has id ", token.id, ", but it is piece ", *piece,
                                              " of ", source_));
      }
      add(token);
    }
    for (std::int32_t id = 0; id < pieces_; ++id) {
      if (!ids.contains(id) && (processor_.IsControl(id) || processor_.IsUnknown(id))) {
        add({.id = id, .content = processor_.IdToPiece(id), .special = true});
      }
    }
    for (const std::optional<std::string>& content : {special.begin, special.end, special.unknown}) {
      if (!content || contents.contains(*content)) continue;
      if (const std::optional<std::int32_t> id = piece_id(*content)) add({.id = *id, .content = *content, .special = true});
    }
    std::vector<std::string> patterns;
    vocabulary_ = pieces_;
    for (const AddedToken& token : added_) {
      patterns.push_back(token.content);
      vocabulary_ = std::max(vocabulary_, std::int64_t{token.id} + 1);
      added_texts_.emplace(token.id, token.content);
      if (token.special) special_ids_.insert(token.id);
    }
    finder_.emplace(added_, patterns);
  }

  std::string source_;
  sentencepiece::SentencePieceProcessor processor_;
  int pieces_ = 0;
  bool is_legacy_ = true;
  bool adds_prefix_ = true;
  std::vector<AddedToken> added_;
  std::unordered_map<std::int32_t, std::string> added_texts_;
  std::unordered_set<std::int32_t> special_ids_;
  std::optional<AddedTokenFinder> finder_;
  std::int64_t vocabulary_ = 0;
  std::optional<std::int32_t> begin_;
  std::optional<std::int32_t> end_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_sentencepiece(const std::string& model, const std::string& source, const SpecialTokens& special) {
  return std::make_unique<SentencePieceTokenizer>(model, source, special);
}

}  // namespace sluice::formats
