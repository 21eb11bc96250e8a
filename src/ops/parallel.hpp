#pragma once
// Splitting work over an explicit number of threads.

#include <cstdint>

#include "base/units.hpp"

namespace sluice::ops {

/// Items [begin, end) of `share`, one of `threads`; bounds at multiples of `unit`, so a function of the arguments alone.
struct Share {
  std::int64_t begin, end;
};
inline Share share_of(std::int64_t count, std::int64_t unit, int threads, int share) {
  const std::int64_t units = divide_up(count, unit);
  const std::int64_t begin = units * share / threads * unit;
  const std::int64_t end = units * (share + 1) / threads * unit;
  return {begin < count ? begin : count, end < count ? end : count};
}

/// Calls body(begin, end, share) for each of `threads` shares of [0, count), at the same time where threads can be had. One
/// thread: a plain call, OpenMP isn't entered. `body` must not throw.
template <typename Body>
void parallel_shares(int threads, std::int64_t count, std::int64_t unit, const Body& body) {
  if (threads == 1) {
    body(std::int64_t{0}, count, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int share = 0; share < threads; ++share) {
    const Share part = share_of(count, unit, threads, share);
    if (part.begin < part.end) body(part.begin, part.end, share);
  }
}

/// Threads worth waking for `bytes` of traffic: waking costs some microseconds, in which one core moves about 64 KiB. Only for bodies whose
/// bits don't depend on how they are split.
inline int threads_for_bytes(int threads, std::int64_t bytes) {
  return bytes < 64 * kKiB ? 1 : threads;
}

}  // namespace sluice::ops
