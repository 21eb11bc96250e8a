#pragma once
#include "schedule/graph.hpp"

namespace sluice::schedule {

/// Gives every buffer its offset, a multiple of its tier's graph.alignment: persistent ones first, in order, so that graphs that add the
/// same ones share them; then the transient ones, long-lived from one end of the rest and short-lived from the other, first fit in the
/// linear order. A few lines between long and short are tried, and the one that needs the fewest bytes is taken. For every reuse of bytes
/// adds the waits of the new buffer's first task for the old one's last users, on an asynchronous lane also for those before it there. O(n
/// (log n + buffers alive at once)). `slack`: the bytes that a collective takes from a transient buffer (a reduction's source) are given to
/// nobody for that many compute tasks more, so that compute doesn't wait for the collective it has just started; nor for the download.
void place(StepGraph& graph, int slack = 0);

}  // namespace sluice::schedule
