#include "data/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace sluice::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the character at the front of `text` (not empty) and whether it is well-formed; else the length of its maximal part.
struct Character {
  std::size_t bytes = 1;
  bool is_valid = false;
};

Character character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte's range depends on the first.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false};
    const bool fits = i == 1 ? byte(1) >= low && byte(1) <= high : byte(i) >= 0x80 && byte(i) <= 0xBF;
    if (!fits) return {i, false};
  }
  return {length, true};
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text, std::size_t from) {
  for (std::size_t at = from; at < text.size();) {
    std::uint64_t word = 0;  // eight ASCII characters at a time
    if (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080ull) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Character character = character_at(text.substr(at));
    if (!character.is_valid) return at;
    at += character.bytes;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bad = find_invalid_utf8(text, at);
    result += text.substr(at, bad - at);
    if (bad == std::string_view::npos) break;
    result += kReplacement;
    at = bad + character_at(text.substr(bad)).bytes;
  }
  return result;
}

}  // namespace sluice::data
