#pragma once
#include <cstdint>

namespace sluice {
/// Monotonic nanoseconds (CLOCK_MONOTONIC): comparable between the ranks of one node, never across nodes.
std::int64_t now_ns();
/// Wall-clock seconds since 1970, for records that people read.
double wall_seconds();
}  // namespace sluice
