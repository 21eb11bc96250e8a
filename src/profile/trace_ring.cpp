#include "profile/trace_ring.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace sluice::profile {

TraceRing::TraceRing(std::size_t capacity) : mask_(std::bit_ceil(std::max<std::size_t>(2, capacity)) - 1) {
  SLUICE_CHECK(capacity <= std::size_t{1} << 32, "a trace of ", capacity, " spans");
  ring_ = std::make_unique<StepSpan[]>(mask_ + 1);
}

void TraceRing::emit(const TraceSpan& span) noexcept {
  // Two threads meet in a slot only if one of them sleeps here while the others fill the whole ring.
  const std::uint64_t index = next_.fetch_add(1, std::memory_order_acq_rel);
  ring_[index & mask_] = {span, step_.load(std::memory_order_relaxed)};
}

std::vector<StepSpan> TraceRing::spans() const {
  const std::uint64_t end = count();
  const std::uint64_t begin = end > mask_ ? end - mask_ - 1 : 0;
  std::vector<StepSpan> kept;
  kept.reserve(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) kept.push_back(ring_[i & mask_]);
  return kept;
}

std::vector<StepSpan> TraceRing::last_steps(int steps) const {
  std::vector<StepSpan> kept = spans();
  if (kept.empty()) return kept;
  const bool lost_some = count() > kept.size();
  const std::int64_t last = kept.back().step;
  // The oldest step may have lost its beginning.
  const std::int64_t first_whole = lost_some ? kept.front().step + 1 : kept.front().step;
  const std::int64_t first = std::max(first_whole, last - steps + 1);
  std::erase_if(kept, [&](const StepSpan& s) { return s.step < first; });
  return kept;
}

}  // namespace sluice::profile
