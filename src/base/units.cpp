#include "base/units.hpp"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/check.hpp"

namespace sluice {
namespace {

std::string three_digits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;  // as it will stand after rounding
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return buffer.data();
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  const auto refuse = [&]() -> RequestError {
    return RequestError(cat("\"", text, "\" is not a size; write a number with B, KiB, MiB, GiB or TiB, as in 200MiB"));
  };
  const std::string owned(text);
  char* end = nullptr;
  if (owned.empty() || (std::isdigit(static_cast<unsigned char>(owned[0])) == 0 && owned[0] != '.')) throw refuse();
  if (owned.find_first_of("xX") != std::string::npos) throw refuse();  // strtod would read hexadecimal
  const double number = std::strtod(owned.c_str(), &end);
  std::string unit;
  for (const char* p = end; *p != '\0'; ++p) {
    if (std::isspace(static_cast<unsigned char>(*p)) == 0) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*p)));
  }
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const std::string prefixes = "kmgt";
    const std::size_t power = prefixes.find(unit[0]);
    if (power == std::string::npos) throw refuse();
    const std::string rest = unit.substr(1);
    if (rest.empty() || rest == "ib") {
      factor = std::pow(1024.0, static_cast<double>(power + 1));
    } else if (rest == "b") {
      factor = std::pow(1000.0, static_cast<double>(power + 1));
    } else {
      throw refuse();
    }
  }
  const double bytes = number * factor;
  if (!std::isfinite(bytes) || bytes < 0 || bytes > 9.0e18) throw refuse();
  return static_cast<std::int64_t>(std::llround(bytes));
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes < 0) return "-" + format_bytes(-bytes);
  if (bytes < kKiB) return cat(bytes, " B");
  double value = static_cast<double>(bytes);
  const std::array<const char*, 5> names{"KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t i = 0;
  value /= 1024;
  while (value >= 1023.5 && i + 1 < names.size()) {
    value /= 1024;
    ++i;
  }
  return cat(three_digits(value), " ", names[i]);
}

std::string format_seconds(double seconds) {
  if (seconds < 0) return "-" + format_seconds(-seconds);
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  std::array<char, 64> buffer{};
  if (whole < 3600) {
    std::snprintf(buffer.data(), buffer.size(), "%d min %02d s", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%lld h %02d min", static_cast<long long>(whole / 3600),
                  static_cast<int>(whole % 3600 / 60));
  }
  return buffer.data();
}

std::string format_count(std::int64_t count) {
  if (count < 1000) return cat(count);
  const std::array<const char*, 4> names{"k", "M", "B", "T"};
  double value = static_cast<double>(count) / 1000;
  std::size_t i = 0;
  while (value >= 999.5 && i + 1 < names.size()) {
    value /= 1000;
    ++i;
  }
  return cat(three_digits(value), " ", names[i]);
}

}  // namespace sluice
