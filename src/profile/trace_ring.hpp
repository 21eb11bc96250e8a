#pragma once
// The sink that keeps the spans of the last steps.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/trace.hpp"

namespace sluice::profile {

struct StepSpan {
  TraceSpan span;
  std::int64_t step;
};

/// A ring of spans: emitting costs one atomic addition and a copy, and never waits. The oldest are overwritten.
class TraceRing final : public TraceSink {
 public:
  /// Keeps the last `capacity` spans, rounded up to a power of two.
  explicit TraceRing(std::size_t capacity);
  void emit(const TraceSpan& span) noexcept override;
  /// Spans emitted from now on belong to this step. Between steps, when nobody emits.
  void begin_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  /// What is kept, in the order of emission. Between steps, when nobody emits.
  std::vector<StepSpan> spans() const;
  /// Those of the last `steps` steps of which nothing is lost.
  std::vector<StepSpan> last_steps(int steps) const;
  /// Spans emitted since the start, kept or not.
  std::uint64_t count() const noexcept { return next_.load(std::memory_order_acquire); }

 private:
  std::unique_ptr<StepSpan[]> ring_;
  std::uint64_t mask_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::int64_t> step_{0};
};

}  // namespace sluice::profile
