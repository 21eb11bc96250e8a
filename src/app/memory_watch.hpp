#pragma once
// What a rank uses beside its plan: libraries, MPI, allocator. It has a margin, and is watched.

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::app {

struct MemoryMargin {
  std::int64_t planned_bytes = 0;  // this rank's arenas
  std::int64_t before_bytes = 0;   // resident before they were made
  std::int64_t margin_bytes = 0;   // this rank's part of what the node had free beside all its ranks' arenas
};

class MemoryWatch {
 public:
  explicit MemoryWatch(const MemoryMargin& margin) : margin_(margin) {}
  /// Bytes beyond the plan at this many resident (proportional) bytes.
  std::int64_t unplanned(std::int64_t resident_bytes) const;
  /// A warning when the unplanned bytes have passed half of the margin, and again each time they have doubled.
  std::optional<std::string> judge(std::int64_t resident_bytes);
  /// Reads and judges, at the first call and then at most every half minute, since reading takes milliseconds a gigabyte.
  std::optional<std::string> look();

 private:
  MemoryMargin margin_;
  std::int64_t warned_bytes_ = 0;  // 0: not yet
  std::int64_t looked_ns_ = 0;     // 0: not yet
};

}  // namespace sluice::app
