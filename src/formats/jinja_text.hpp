#pragma once
// Text as Python's str sees it, over UTF-8: lengths and places count characters, white space is Unicode's. A byte that isn't
// UTF-8 counts as one character and is kept.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::formats::jinja {

/// Python's str.isspace() of one character.
bool is_space(std::int32_t character);
/// The byte after the white space that begins at byte `at`.
std::size_t after_space(std::string_view text, std::size_t at);

std::int64_t count_characters(std::string_view text);
/// The characters one by one, as pieces of `text`.
std::vector<std::string_view> characters_of(std::string_view text);

enum class Side : std::uint8_t { kBoth, kLeft, kRight };
/// str.strip, lstrip, rstrip: of white space, or of any of the characters in `set`.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> set = std::nullopt);

/// str.split and, with kRight, str.rsplit: at white space, or at each `separator` (not empty). At most `limit` cuts; negative: all.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit, Side side);

/// str.replace: the first `limit` of them; negative: all. An empty `old` stands before each character and at the end.
std::string replace(std::string_view text, std::string_view old, std::string_view by, std::int64_t limit);

/// str.find: in characters, -1 where it isn't.
std::int64_t find(std::string_view text, std::string_view piece);

/// str.upper and str.lower. Nothing where a character's other case depends on its place or is several characters (Greek's final sigma,
/// ligatures), which the Unicode tables at hand don't hold; German's sharp s is written SS.
std::optional<std::string> upper(std::string_view text);
std::optional<std::string> lower(std::string_view text);
/// str.title and str.capitalize of ASCII; nothing for other text.
std::optional<std::string> title(std::string_view text);
std::optional<std::string> capitalize(std::string_view text);

/// repr(text): quoted and escaped.
std::string quoted(std::string_view text);
/// json.dumps(text).
std::string json_quoted(std::string_view text, bool ascii);

/// What an error may quote of a template or chat: control characters as spaces, and not more than a screen of it.
std::string one_line(std::string text);

/// Appends a character as UTF-8.
void append_character(std::string& text, std::int32_t character);

}  // namespace sluice::formats::jinja
