#pragma once
// Sizes, times and counts as people write and read them.

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;
inline constexpr std::int64_t kGiB = 1024 * kMiB;

/// "200MiB", "4 GiB", "1.5G", "4096": bytes; K, M, G, T are powers of 1024 (KiB, MiB...), KB, MB... of 1000.
/// Throws RequestError saying what was found and what is understood. Never negative.
std::int64_t parse_bytes(std::string_view text);
/// "1.50 GiB", "512 B": three significant digits.
std::string format_bytes(std::int64_t bytes);
/// "12.3 ms", "4.56 s", "1 h 02 min".
std::string format_seconds(double seconds);
/// "124 M", "1.56 B", "999".
std::string format_count(std::int64_t count);

/// ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
/// The smallest multiple of `unit` that is >= a.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t unit) {
  return divide_up(a, unit) * unit;
}

}  // namespace sluice
