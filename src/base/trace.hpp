#pragma once
// Where every layer may report what it did and when; `profile/` implements the sink that keeps it.

#include <cstdint>

namespace sluice {

/// One span on a lane of this rank. `name` must be a literal or outlive the sink; times as now_ns().
struct TraceSpan {
  const char* name;
  std::uint32_t lane;
  std::int64_t subject;  // the task's id, or -1
  std::int64_t begin_ns;
  std::int64_t end_ns;
};

class TraceSink {
 public:
  TraceSink() = default;
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;
  virtual ~TraceSink() = default;
  /// Any thread, any time; must not block or throw.
  virtual void emit(const TraceSpan& span) noexcept = 0;
};

}  // namespace sluice
