#include "formats/jinja_text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace sluice::formats::jinja {
namespace {

struct Character {
  std::int32_t code = 0;  // negative: a byte that isn't UTF-8
  std::size_t bytes = 1;
};

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  std::int32_t code = 0;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  return bytes > 0 ? Character{code, static_cast<std::size_t>(bytes)} : Character{-1, 1};
}

/// The byte where the character that ends before byte `end` begins.
std::size_t before(std::string_view text, std::size_t end) {
  for (std::size_t back = std::min<std::size_t>(4, end); back > 1; --back) {
    if (character_at(text, end - back).bytes == back) return end - back;
  }
  return end - 1;
}

struct Run {
  std::int32_t first, last;
};

/// Characters whose upper case is several characters (SpecialCasing.txt of Unicode 15, without its conditions on language).
constexpr std::array<Run, 26> kLongUpper{
    {{0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1F50, 0x1F50},
     {0x1F52, 0x1F52}, {0x1F54, 0x1F54}, {0x1F56, 0x1F56}, {0x1F80, 0x1FAF}, {0x1FB2, 0x1FB4}, {0x1FB6, 0x1FB7}, {0x1FBC, 0x1FBC},
     {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FC7}, {0x1FCC, 0x1FCC}, {0x1FD2, 0x1FD3}, {0x1FD6, 0x1FD7}, {0x1FE2, 0x1FE4}, {0x1FE6, 0x1FE7},
     {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FF7}, {0x1FFC, 0x1FFC}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}}};
constexpr std::int32_t kSharpS = 0xDF;           // its upper case is SS
constexpr std::int32_t kDottedCapitalI = 0x130;  // its lower case is two characters
constexpr std::int32_t kCapitalSigma = 0x3A3;    // its lower case depends on its place in the word

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Python's str.isprintable() of one character.
bool is_printable(std::int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

std::string hex(const char* form, std::int32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), form, static_cast<unsigned>(code));
  return text.data();
}

bool holds(std::string_view set, std::string_view character) {
  // A character's bytes can't be found across the border of two others in UTF-8.
  return set.find(character) != std::string_view::npos;
}

}  // namespace

bool is_space(std::int32_t c) {
  if (c < 0x80) return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::size_t after_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!is_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

std::int64_t count_characters(std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).bytes) ++count;
  return count;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_at(text, at).bytes;
    all.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return all;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> set) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  const auto goes = [&](std::size_t at, std::size_t bytes) {
    return set ? holds(*set, text.substr(at, bytes)) : is_space(character_at(text, at).code);
  };
  while (side != Side::kRight && begin < end) {
    const std::size_t bytes = character_at(text, begin).bytes;
    if (!goes(begin, bytes)) break;
    begin += bytes;
  }
  while (side != Side::kLeft && begin < end) {
    const std::size_t at = before(text, end);
    if (!goes(at, end - at)) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit, Side side) {
  std::vector<std::string_view> pieces;
  const auto may_cut = [&] { return limit < 0 || static_cast<std::int64_t>(pieces.size()) < limit; };
  const bool from_right = side == Side::kRight;
  if (separator) {
    while (may_cut()) {
      const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
      if (at == std::string_view::npos) break;
      pieces.push_back(from_right ? text.substr(at + separator->size()) : text.substr(0, at));
      text = from_right ? text.substr(0, at) : text.substr(at + separator->size());
    }
    pieces.push_back(text);
  } else {
    text = strip(text, from_right ? Side::kRight : Side::kLeft);
    while (!text.empty()) {
      if (!may_cut()) {
        pieces.push_back(from_right ? text : strip(text, Side::kLeft));
        break;
      }
      std::size_t at = from_right ? text.size() : 0;
      while (from_right ? at > 0 : at < text.size()) {
        const std::size_t begin = from_right ? before(text, at) : at;
        const Character c = character_at(text, begin);
        if (is_space(c.code)) break;
        at = from_right ? begin : at + c.bytes;
      }
      pieces.push_back(from_right ? text.substr(at) : text.substr(0, at));
      text = strip(from_right ? text.substr(0, at) : text.substr(at), from_right ? Side::kRight : Side::kLeft);
    }
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::string replace(std::string_view text, std::string_view old, std::string_view by, std::int64_t limit) {
  std::string out;
  auto may_go_on = [&, done = std::int64_t{0}]() mutable { return limit < 0 || done++ < limit; };
  std::size_t at = 0;
  if (old.empty()) {
    for (;;) {
      if (!may_go_on()) return out.append(text.substr(at));
      out.append(by);
      if (at == text.size()) return out;
      const std::size_t bytes = character_at(text, at).bytes;
      out.append(text.substr(at, bytes));
      at += bytes;
    }
  }
  while (may_go_on()) {
    const std::size_t next = text.find(old, at);
    if (next == std::string_view::npos) break;
    out.append(text.substr(at, next - at)).append(by);
    at = next + old.size();
  }
  return out.append(text.substr(at));
}

std::int64_t find(std::string_view text, std::string_view piece) {
  const std::size_t at = text.find(piece);
  return at == std::string_view::npos ? -1 : count_characters(text.substr(0, at));
}

std::optional<std::string> upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (std::any_of(kLongUpper.begin(), kLongUpper.end(), [&](Run run) { return c.code >= run.first && c.code <= run.last; }))
      return std::nullopt;
    if (c.code < 0) {
      out += text[at];
    } else if (c.code == kSharpS) {
      out += "SS";
    } else {
      append_character(out, c.code < 0x80 ? ascii_upper(static_cast<char>(c.code)) : utf8proc_toupper(c.code));
    }
    at += c.bytes;
  }
  return out;
}

std::optional<std::string> lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code == kDottedCapitalI || c.code == kCapitalSigma) return std::nullopt;
    if (c.code < 0) {
      out += text[at];
    } else {
      append_character(out, c.code < 0x80 ? ascii_lower(static_cast<char>(c.code)) : utf8proc_tolower(c.code));
    }
    at += c.bytes;
  }
  return out;
}

std::optional<std::string> title(std::string_view text) {
  if (!is_ascii(text)) return std::nullopt;
  std::string out(text);
  bool in_word = false;
  for (char& c : out) {
    c = in_word ? ascii_lower(c) : ascii_upper(c);
    in_word = is_ascii_letter(c);
  }
  return out;
}

std::optional<std::string> capitalize(std::string_view text) {
  if (!is_ascii(text)) return std::nullopt;
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), ascii_lower);
  if (!out.empty()) out[0] = ascii_upper(out[0]);
  return out;
}

std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code == quote || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (c.code < 0 || is_printable(c.code)) {
      out.append(text.substr(at, c.bytes));
    } else {
      out += c.code < 0x100 ? hex("\\x%02x", c.code) : c.code < 0x10000 ? hex("\\u%04x", c.code) : hex("\\U%08x", c.code);
    }
    at += c.bytes;
  }
  return out + quote;
}

std::string json_quoted(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    switch (c.code) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (const bool is_control = c.code >= 0 && c.code < 0x20; !is_control && (c.code < 0x7F || !ascii)) {
          out.append(text.substr(at, c.bytes));
        } else if (c.code < 0x10000) {
          out += hex("\\u%04x", c.code);
        } else {
          const std::int32_t rest = c.code - 0x10000;
          out += hex("\\u%04x", 0xD800 + (rest >> 10)) + hex("\\u%04x", 0xDC00 + (rest & 0x3FF));
        }
    }
    at += c.bytes;
  }
  return out + "\"";
}

std::string one_line(std::string text) {
  constexpr std::size_t kMost = 2000;  // bytes
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

void append_character(std::string& text, std::int32_t character) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count = utf8proc_encode_char(character, bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

}  // namespace sluice::formats::jinja
