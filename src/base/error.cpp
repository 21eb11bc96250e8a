#include "base/error.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace sluice {

OutOfMemory::OutOfMemory(const std::string& tier, const std::string& tag, std::int64_t wanted_bytes, std::int64_t available_bytes)
    : EnvironmentError(cat(tag, ": wants ", format_bytes(wanted_bytes), " of ", tier, " memory, ", format_bytes(available_bytes),
                           " are left; raise the budget or let the planner choose a smaller plan")),
      wanted(wanted_bytes),
      available(available_bytes) {}

IoError::IoError(const std::string& operation, const std::string& file, int number, std::int64_t offset)
    : EnvironmentError(cat(file, ": ", operation, offset >= 0 ? cat(" at byte ", offset) : std::string(),
                           " failed: ", number != 0 ? std::strerror(number) : "short transfer")),
      path(file),
      error_number(number) {}

CommError::CommError(const std::string& operation, const std::string& detail) : EnvironmentError(cat(operation, ": ", detail)) {}

void fail_check(const char* condition, const char* file, int line, const std::string& detail) {
  const char* slash = std::strstr(file, "src/");
  throw LogicError(cat(slash != nullptr ? slash : file, ":", line, ": check failed: ", condition, detail.empty() ? "" : ": ", detail));
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace sluice
