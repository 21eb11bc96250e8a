#include "formats/text_file.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace sluice::formats {

TextPlace place_in_text(const InputFile& file, std::int64_t offset) {
  SLUICE_CHECK(offset >= 0 && offset <= file.size(), file.path(), ": byte ", offset, " of ", file.size());
  TextPlace place;
  std::int64_t line_begin = 0;
  std::vector<char> piece(64 << 10);
  for (std::int64_t at = 0; at < offset;) {
    const std::int64_t n = std::min<std::int64_t>(offset - at, static_cast<std::int64_t>(piece.size()));
    file.read(at, piece.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      if (piece[static_cast<std::size_t>(i)] != '\n') continue;
      ++place.line;
      line_begin = at + i + 1;
    }
    at += n;
  }
  place.column = offset - line_begin + 1;
  return place;
}

std::string place_text(const InputFile& file, std::int64_t offset) {
  const TextPlace place = place_in_text(file, offset);
  return cat(file.path(), ":", place.line, ":", place.column);
}

}  // namespace sluice::formats
