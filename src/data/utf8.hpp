#pragma once
// Whether bytes are UTF-8.

#include <string>
#include <string_view>

namespace sluice::data {

/// The first byte that begins no well-formed character (Unicode 15, table 3-7: no surrogates, no overlong forms, nothing beyond U+10FFFF);
/// npos where there is none.
std::size_t find_invalid_utf8(std::string_view text, std::size_t from = 0);
/// `text` with U+FFFD for every maximal part of an ill-formed character (Unicode 15, section 3.9, as Python's errors="replace" does).
std::string replace_invalid_utf8(std::string_view text);

}  // namespace sluice::data
