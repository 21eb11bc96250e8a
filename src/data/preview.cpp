#include "data/preview.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "data/utf8.hpp"

namespace sluice::data {
namespace {

/// Control characters as C writes them, so that a text stays on its line and moves no cursor.
std::string escaped(const std::string& text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool is_c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c < 0x20 || c == 0x7F || is_c1) {
      const auto shown = is_c1 ? static_cast<unsigned char>(text[++i]) : c;
      result += cat("\\x", kDigits[shown / 16], kDigits[shown % 16]);
    } else {
      result += static_cast<char>(c);
    }
  }
  return result;
}

/// The first place from `at` on, or with `back` before it, where a character begins.
std::size_t character_border(const std::string& text, std::size_t at, bool back) {
  const auto is_inside = [&](std::size_t i) { return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (is_inside(at)) at += back ? std::size_t(-1) : 1;
  return at;
}

}  // namespace

Preview preview_of(const EncodedDocument& tokens, const formats::Tokenizer* tokenizer) {
  Preview preview;
  preview.tokens = static_cast<std::int64_t>(tokens.ids.size());
  for (std::size_t begin = 0; begin < tokens.ids.size();) {
    std::size_t end = begin;
    while (end < tokens.ids.size() && tokens.learned[end] == tokens.learned[begin]) ++end;
    const std::span<const std::int32_t> ids(&tokens.ids[begin], end - begin);
    ShownPart part;
    part.is_learned = tokens.learned[begin] != 0;
    if (tokenizer != nullptr) {
      part.text = replace_invalid_utf8(formats::decode_for_show(*tokenizer, ids, false));
    } else {
      for (const std::int32_t id : ids) part.text += cat(part.text.empty() ? "" : " ", id);
    }
    if (part.is_learned) preview.predicted += static_cast<std::int64_t>(ids.size()) - (begin == 0 ? 1 : 0);
    preview.parts.push_back(std::move(part));
    begin = end;
  }
  return preview;
}

Preview preview_of(const Corpus& corpus, const RowRange& range, const formats::Tokenizer* tokenizer, bool documents_apart) {
  EncodedDocument tokens;
  const auto count = static_cast<std::size_t>(range.count) + 1;
  tokens.ids.resize(count);
  tokens.learned.resize(count);
  corpus.read(range.begin, range.count + 1, tokens.ids.data());
  corpus.read_mask(range.begin, range.count + 1, tokens.learned.data());
  if (documents_apart) {
    for (const std::int64_t begin : corpus.begins_within(range.begin + 1, range.begin + range.count + 1))
      tokens.learned[static_cast<std::size_t>(begin - range.begin)] = 0;
  }
  return preview_of(tokens, tokenizer);
}

std::string describe(const Preview& preview, bool colour, std::size_t limit) {
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (const ShownPart& part : preview.parts) {
    texts.push_back(escaped(part.text));
    bytes += texts.back().size();
  }
  // Of a text that is too long the middle goes: [head, bytes - tail).
  const std::size_t head = bytes > limit ? limit / 3 * 2 : bytes, tail = bytes > limit ? limit - head : 0;
  std::string line;
  std::size_t at = 0;
  bool is_cut = false;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    const std::size_t kept_front = at < head ? character_border(text, std::min(text.size(), head - at), true) : 0;
    const std::size_t end = at + text.size();
    const std::size_t kept_back =
        end > bytes - tail ? std::max(kept_front, character_border(text, std::max(at, bytes - tail) - at, false)) : text.size();
    std::string shown = text.substr(0, kept_front);
    if (kept_front < kept_back && !is_cut) {
      shown += " ... ";
      is_cut = true;
    }
    shown += text.substr(kept_back);
    at = end;
    if (shown.empty()) continue;
    if (preview.parts[i].is_learned) {
      line += shown;
    } else {
      line += colour ? cat("\033[2m", shown, "\033[22m") : cat("⟦", shown, "⟧");
    }
  }
  return line;
}

}  // namespace sluice::data
