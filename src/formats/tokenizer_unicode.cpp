#include "formats/tokenizer_unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/check.hpp"
#include "base/text.hpp"

namespace sluice::formats {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

template <std::size_t N>
bool holds(const std::array<Range, N>& ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code, [](char32_t c, const Range& range) { return c < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

constexpr auto kStandIns = std::to_array<StandIn>({
#include "formats/tokenizer_unicode.inc"
});

/// For each block of 256 characters whether the table above has one of it, so that most texts never search it.
constexpr auto kBlocks = [] {
  std::array<bool, 0x1100> blocks{};
  for (const StandIn& row : kStandIns) {
    for (char32_t block = row.first >> 8; block <= row.last >> 8; ++block) blocks[block] = true;
  }
  return blocks;
}();

/// What Oniguruma and Rust's regex call a word beside letters, marks, decimal digits, letter numbers and connectors: circled and
/// squared Latin letters (Other_Alphabetic of category So).
constexpr auto kOtherWords = std::to_array<Range>({{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}});

/// Of category P in Unicode 16, but younger than the unicode_categories crate (Unicode 8).
constexpr auto kYoungPunctuation = std::to_array<Range>(
    {{0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},     {0x1B4E, 0x1B4F},
     {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
     {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D},
     {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
     {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71},
     {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
     {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F}});

/// Characters up to Unicode 15 with a combining class, a decomposition or a composition that the unicode-normalization-alignments
/// crate (0.1.12) doesn't know; all later ones are in the table of stand-ins.
constexpr auto kInert = std::to_array<Range>(
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
     {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
     {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
     {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
     {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
     {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
     {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}});

/// Lower cases younger than Unicode 14: how far away they are.
struct Lowering {
  char32_t first;
  char32_t last;
  std::int32_t away;
};
constexpr auto kYoungLowerCases = std::to_array<Lowering>({{0x1C89, 0x1C89, 1},
                                                           {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                                           {0xA7CC, 0xA7CC, 1},
                                                           {0xA7CE, 0xA7CE, 1},
                                                           {0xA7D2, 0xA7D2, 1},
                                                           {0xA7D4, 0xA7D4, 1},
                                                           {0xA7DA, 0xA7DA, 1},
                                                           {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                                           {0x10D50, 0x10D65, 0x20},
                                                           {0x16EA0, 0x16EB8, 0x1B}});

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(stand_in(code)));
}

bool is_letter(utf8proc_category_t c) {
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}
bool is_mark(utf8proc_category_t c) {
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_inert(char32_t code) {
  return stand_in(code) != code || holds(kInert, code);
}

/// Puts the marks of each run of non-starters in the order of their combining classes; equal ones keep their order. (utf8proc's own
/// reordering takes quadratic time.)
void reorder_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto combining_class = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (combining_class(codes[i]) == 0) continue;
    std::size_t end = i + 1;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i), codes.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); });
    }
    i = end;
  }
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xC0u) == 0x80u; };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
    } else if (lead >= 0xC2 && lead <= 0xDF && continues(i + 1)) {
      i += 2;
    } else if (lead >= 0xE0 && lead <= 0xEF && continues(i + 1) && continues(i + 2) && (lead != 0xE0 || byte(i + 1) >= 0xA0) &&
               (lead != 0xED || byte(i + 1) <= 0x9F)) {
      i += 3;
    } else if (lead >= 0xF0 && lead <= 0xF4 && continues(i + 1) && continues(i + 2) && continues(i + 3) &&
               (lead != 0xF0 || byte(i + 1) >= 0x90) && (lead != 0xF4 || byte(i + 1) <= 0x8F)) {
      i += 4;
    } else {
      return i;
    }
  }
  return std::string_view::npos;
}

std::size_t utf8_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

Utf8Char utf8_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (utf8_bytes(text[at])) {
    case 1:
      return {byte(0), 1};
    case 2:
      return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    case 3:
      return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    default:
      return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
  }
}

void append_utf8(char32_t code, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); i += utf8_bytes(text[i])) {
    if (i >= kLongest) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F) {
      out += cat("\\x", kDigits[byte / 16], kDigits[byte % 16]);
    } else {
      out += text.substr(i, utf8_bytes(text[i]));
    }
  }
  return out + '"';
}

char32_t stand_in(char32_t code) {
  if (code > 0x10FFFF || !kBlocks[code >> 8]) return code;
  const auto after =
      std::upper_bound(kStandIns.begin(), kStandIns.end(), code, [](char32_t c, const StandIn& row) { return c < row.first; });
  return after != kStandIns.begin() && code <= std::prev(after)->last ? std::prev(after)->instead : code;
}

const StandIn* stand_ins_begin() {
  return kStandIns.data();
}
const StandIn* stand_ins_end() {
  return kStandIns.data() + kStandIns.size();
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_numeric(char32_t code) {
  const utf8proc_category_t c = category(code);
  if (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO) return true;
  return (code >= 0x11DE0 && code <= 0x11DE9) || (code >= 0x16FF4 && code <= 0x16FF6);  // of Unicode 17, which Rust knows
}

bool is_word(char32_t code) {
  if (code < 0x80) return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || code == '_' || (code >= 'a' && code <= 'z');
  const utf8proc_category_t c = category(code);
  return is_letter(c) || is_mark(c) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC ||
         code == 0x200C || code == 0x200D || holds(kOtherWords, code);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) return code > 0x20 && code < 0x7F && (code == '_' || !is_word(code));
  if (code == 0x166D || code == 0x111C9) return true;  // punctuation of Unicode 8, of another category since
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO && !holds(kYoungPunctuation, code);
}

std::string lower_cased(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    i += c.bytes;
    const auto young = std::find_if(kYoungLowerCases.begin(), kYoungLowerCases.end(),
                                    [&](const Lowering& row) { return c.code >= row.first && c.code <= row.last; });
    if (c.code < 0x80) {
      out += static_cast<char>(c.code >= 'A' && c.code <= 'Z' ? c.code + 0x20 : c.code);
    } else if (c.code == 0x130) {  // the only one that becomes two: i and a dot above
      out += "i\xCC\x87";
    } else if (young != kYoungLowerCases.end()) {
      append_utf8(static_cast<char32_t>(static_cast<std::int32_t>(c.code) + young->away), out);
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))), out);
    }
  }
  return out;
}

std::string normalized(std::string_view text, NormalForm form) {
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  // Below this nothing changes: U+0300 is the first mark, U+00C0 the first letter with a decomposition, U+00A0 a compatible space.
  const unsigned char first_changing = form == NormalForm::kNfc ? 0xCC : compatible ? 0xC2 : 0xC3;
  if (std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) < 0x80; }) ||
      std::none_of(text.begin(), text.end(), [&](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte >= 0xC0 && byte >= first_changing;
      })) {
    return std::string(text);
  }
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  const auto flush = [&] {
    reorder_marks(codes);
    auto count = static_cast<utf8proc_ssize_t>(codes.size());
    if (composes && count > 0) {
      count = utf8proc_normalize_utf32(codes.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      SLUICE_CHECK(count >= 0, "utf8proc: ", utf8proc_errmsg(count));
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<char32_t>(codes[static_cast<std::size_t>(i)]), out);
    codes.clear();
  };
  std::array<utf8proc_int32_t, 32> pieces{};  // the longest decomposition has 18 characters
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (is_inert(c.code)) {
      flush();
      out.append(text.substr(i, c.bytes));
    } else {
      const utf8proc_ssize_t count =
          utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), pieces.data(), static_cast<utf8proc_ssize_t>(pieces.size()),
                                  static_cast<utf8proc_option_t>(options), nullptr);
      SLUICE_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(pieces.size()), "utf8proc: ", count, " characters");
      codes.insert(codes.end(), pieces.begin(), pieces.begin() + count);
    }
    i += c.bytes;
  }
  flush();
  return out;
}

}  // namespace sluice::formats
