#pragma once
// Building messages and small text pieces; the only formatting that headers of this project need.

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace sluice {

/// Concatenates its arguments as `operator<<` prints them.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  ((out << parts), ...);
  return out.str();
}

/// "1 document", "3 documents".
inline std::string counted(std::int64_t count, std::string_view noun) {
  return cat(count, " ", noun, count == 1 ? "" : "s");
}

/// The number of single-character insertions, deletions, substitutions and swaps of neighbours between two words.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace sluice
