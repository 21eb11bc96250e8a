#pragma once
// How a segment cuts the one buffer it is given into its tensors.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/units.hpp"

namespace sluice::model {

/// Offsets of pieces laid one after another, each starting at a multiple of 64 bytes (a cache line, and the widest vector).
/// A segment builds the same Pieces to state a size and to run, so that the two can't disagree.
class Pieces {
 public:
  explicit Pieces(std::int64_t start = 0) : end_(start) {}
  /// Offset of `n` more bytes.
  std::int64_t bytes(std::int64_t n) {
    const std::int64_t offset = end_;
    end_ += round_up(n, kAlignment);
    return offset;
  }
  /// Offset of `n` more f32.
  std::int64_t floats(std::int64_t n) { return bytes(n * static_cast<std::int64_t>(sizeof(float))); }
  std::int64_t total() const { return end_; }

 private:
  static constexpr std::int64_t kAlignment = 64;
  std::int64_t end_;
};

/// The f32 at an offset given by Pieces.
inline float* floats_at(std::byte* buffer, std::int64_t offset) {
  return reinterpret_cast<float*>(buffer + offset);
}

}  // namespace sluice::model
