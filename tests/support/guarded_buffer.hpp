#pragma once
// A buffer that finds out what its user does wrong: NaN where nothing was written, guard bytes behind its end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace sluice::test {

/// `bytes` bytes at a 64-byte boundary, filled with 0xFF (as f32 or f64 a NaN, as i32 -1), and 64 guard bytes behind.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), data_(static_cast<std::byte*>(::operator new(bytes_ + kGuard, kAlign))) {
    poison();
    std::memset(data_.get() + bytes_, kGuardByte, kGuard);
  }
  static GuardedBuffer floats(std::int64_t n) { return GuardedBuffer(n * static_cast<std::int64_t>(sizeof(float))); }

  void poison() { std::memset(data_.get(), 0xFF, bytes_); }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  float* f32() { return reinterpret_cast<float*>(data_.get()); }
  const float* f32() const { return reinterpret_cast<const float*>(data_.get()); }
  std::size_t size() const { return bytes_; }
  std::int64_t float_count() const { return static_cast<std::int64_t>(bytes_ / sizeof(float)); }

  bool guard_intact() const {
    return std::all_of(data_.get() + bytes_, data_.get() + bytes_ + kGuard, [](std::byte b) { return b == std::byte{kGuardByte}; });
  }
  /// Bytes of whole words that still hold the poison.
  std::int64_t untouched_bytes() const {
    std::int64_t words = 0;
    for (std::size_t i = 0; i + sizeof(std::uint32_t) <= bytes_; i += sizeof(std::uint32_t)) {
      std::uint32_t word;
      std::memcpy(&word, data_.get() + i, sizeof word);
      words += word == 0xFFFFFFFFu;
    }
    return words * static_cast<std::int64_t>(sizeof(std::uint32_t));
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kGuardByte = 0xA5;
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlign); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace sluice::test
