#pragma once
// What tests write into files, so that a byte in the wrong place shows.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace sluice::memory {

/// The byte that belongs at `offset`: no two blocks look alike.
inline std::byte expected_byte(std::int64_t offset, int version) {
  return static_cast<std::byte>((offset * 2654435761LL >> 7) + offset / 4096 + version * 37);
}
inline void fill(std::byte* data, std::int64_t offset, std::int64_t bytes, int version) {
  for (std::int64_t i = 0; i < bytes; ++i) data[i] = expected_byte(offset + i, version);
}
/// The first byte that is not as expected, or -1.
inline std::int64_t first_difference(const std::byte* data, std::int64_t offset, std::int64_t bytes, int version) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    if (data[i] != expected_byte(offset + i, version)) return i;
  }
  return -1;
}
inline void nap(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace sluice::memory
