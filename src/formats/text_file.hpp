#pragma once
// A text file as bytes, with places that people can find.

#include <cstdint>
#include <string>

#include "base/input_file.hpp"

namespace sluice::formats {

/// Line and column of byte `offset`, both from 1; a line ends with its '\n', a column counts bytes.
struct TextPlace {
  std::int64_t line = 1;
  std::int64_t column = 1;
};

/// Reads the file up to `offset` (in pieces) to count its lines. offset in [0, size].
TextPlace place_in_text(const InputFile& file, std::int64_t offset);
/// "book.txt:12:3", as editors and compilers write places.
std::string place_text(const InputFile& file, std::int64_t offset);

}  // namespace sluice::formats
