#pragma once
// A tokenizer whose merges can be seen: two equal bytes that follow each other are one token.

#include <stdexcept>

#include "formats/tokenizer.hpp"

namespace sluice::data::testing {

class DoublingTokenizer final : public formats::Tokenizer {
 public:
  static constexpr std::int32_t kDouble = 256;  // the token of "aa" is kDouble + 'a'
  static constexpr std::int32_t kEnd = 512;
  static constexpr std::int32_t kBegin = 513;

  std::string kind() const override { return name; }
  std::int64_t vocabulary() const override { return size; }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    if (adds_space && !text.empty()) out.push_back(' ');
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool is_double = i + 1 < text.size() && text[i + 1] == text[i];
      out.push_back(byte == '$' ? kEnd : is_double ? kDouble + byte : byte);  // "$" is written for the end, as "<eos>" is elsewhere
      if (is_double) ++i;
    }
  }
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id >= kEnd) {
        if (!skip_special) text += id == kEnd ? "$" : "^";
      } else {
        text.append(id >= kDouble ? 2 : 1, static_cast<char>(id % kDouble));
      }
    }
    return text;
  }
  std::optional<std::int32_t> end_of_document() const override { return has_end ? std::optional(kEnd) : std::nullopt; }
  std::optional<std::int32_t> begin_of_document() const override { return has_begin ? std::optional(kBegin) : std::nullopt; }
  std::optional<std::int32_t> id_of(std::string_view token) const override { return token == "$" ? std::optional(kEnd) : std::nullopt; }
  std::uint64_t fingerprint() const override { return 17; }

  std::string name = "bpe";
  std::int64_t size = 514;
  bool has_begin = false;
  bool has_end = true;
  bool adds_space = false;  // as SentencePiece does before what it takes for a text's beginning
};

}  // namespace sluice::data::testing
