#pragma once
// Characters as Hugging Face's tokenizers see them. Their regular expressions (Oniguruma) know Unicode 16, our libraries an older
// or a newer one, and their normalizer a much older one; the ids of a text must depend on none of that.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::formats {

struct Utf8Char {
  char32_t code = 0;
  std::size_t bytes = 1;
};

/// The place of the first byte that isn't UTF-8 (overlong forms, surrogates and codes beyond U+10FFFF aren't); npos where all is.
std::size_t find_invalid_utf8(std::string_view text);
/// The character at byte `at` of valid UTF-8.
Utf8Char utf8_at(std::string_view text, std::size_t at);
/// How many bytes the character that begins with `lead` has.
std::size_t utf8_bytes(char lead);
void append_utf8(char32_t code, std::string& out);
/// A text in double quotes for a message of one line: control characters escaped, at most about 60 bytes.
std::string in_quotes(std::string_view text);

/// A character of the same general category, script (those that TokenizerRegex knows) and UTF-8 length as `code`, and of the same
/// category in every Unicode version from 14; `code` itself where it is one.
char32_t stand_in(char32_t code);
/// A run of characters and what stands in for each.
struct StandIn {
  char32_t first;
  char32_t last;
  char32_t instead;
};
/// All rows of that table, ascending.
const StandIn* stand_ins_begin();
const StandIn* stand_ins_end();

/// Rust's char::is_whitespace, char::is_numeric and `\w` of its regex crate; `is_punctuation` with ASCII's symbols and the table of
/// the unicode_categories crate.
bool is_white_space(char32_t code);
bool is_numeric(char32_t code);
bool is_word(char32_t code);
bool is_punctuation(char32_t code);

/// Every character's own lower case (no context), as Rust's char::to_lowercase.
std::string lower_cased(std::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// A Unicode normal form of valid UTF-8, in O(n log n). Characters that the tokenizers' normalizer doesn't know (many since Unicode
/// 10) stay as they are and nothing is moved or composed across them.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace sluice::formats
