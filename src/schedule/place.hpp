#pragma once
#include "schedule/graph.hpp"

namespace sluice::schedule {

inline constexpr std::int64_t kBufferAlignment = 64;  // bytes: a cache line, and the widest vector

/// Gives every buffer its offset: persistent ones first, in order, so that graphs that add the same ones share them; then
/// transient ones by lifetime in the linear order, long-lived activations and short-lived buffers in a region each, best fit.
/// For every reuse of bytes adds the waits of the new buffer's first task for the old one's last users. O(n log n).
void place(StepGraph& graph);

}  // namespace sluice::schedule
