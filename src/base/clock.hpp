#pragma once
#include <cstdint>
#include <string>

namespace sluice {
/// Monotonic nanoseconds (CLOCK_MONOTONIC): comparable between the ranks of one node, never across nodes.
std::int64_t now_ns();
/// Wall-clock seconds since 1970, for records that people read.
double wall_seconds();
/// "2026-01-31 12:00:00", in local time, of seconds since 1970.
std::string local_time(std::int64_t seconds);
}  // namespace sluice
