#include "chunks/residency.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.hpp"

namespace sluice::chunks {
namespace {

/// Elements that items i .. i + prefetch need together, for every i, by a sliding count.
template <typename Visit>
void for_each_window(std::span<const std::vector<int>> uses, std::span<const std::int64_t> run_elements, int prefetch, Visit visit) {
  std::vector<int> count(run_elements.size(), 0);
  std::int64_t total = 0;
  const int items = static_cast<int>(uses.size());
  int ahead = 0;
  for (int i = 0; i < items; ++i) {
    for (; ahead < items && ahead <= i + prefetch; ++ahead) {
      for (const int run : uses[static_cast<std::size_t>(ahead)]) {
        if (count[static_cast<std::size_t>(run)]++ == 0) total += run_elements[static_cast<std::size_t>(run)];
      }
    }
    visit(i, total);
    for (const int run : uses[static_cast<std::size_t>(i)]) {
      if (--count[static_cast<std::size_t>(run)] == 0) total -= run_elements[static_cast<std::size_t>(run)];
    }
  }
}

}  // namespace

std::int64_t minimum_capacity(std::span<const std::vector<int>> uses, std::span<const std::int64_t> run_elements, int prefetch) {
  std::int64_t most = 0;
  for_each_window(uses, run_elements, prefetch, [&](int, std::int64_t total) { most = std::max(most, total); });
  return most;
}

std::vector<Residency> plan_residency(std::span<const std::vector<int>> uses, std::span<const std::int64_t> run_elements,
                                      std::int64_t capacity, int prefetch) {
  SLUICE_CHECK(prefetch >= 0, "prefetch ", prefetch);
  const std::int64_t needed = minimum_capacity(uses, run_elements, prefetch);
  if (needed > capacity) throw OutOfMemory("device", cat("rCache (", needed, " elements needed, ", capacity, " given)"), needed, capacity);
  const int items = static_cast<int>(uses.size());
  constexpr int kNever = std::numeric_limits<int>::max();
  // Per run: the items that use it, in order, and how far we have come.
  std::vector<std::vector<int>> positions(run_elements.size());
  for (int i = 0; i < items; ++i) {
    for (const int run : uses[static_cast<std::size_t>(i)]) {
      auto& list = positions[static_cast<std::size_t>(run)];
      if (list.empty() || list.back() != i) list.push_back(i);
    }
  }
  std::vector<std::size_t> cursor(run_elements.size(), 0);
  // The first use at or after item i.
  const auto next_use = [&](int run, int i) {
    const auto& list = positions[static_cast<std::size_t>(run)];
    std::size_t& at = cursor[static_cast<std::size_t>(run)];
    while (at < list.size() && list[at] < i) ++at;
    return at < list.size() ? list[at] : kNever;
  };
  std::vector<Residency> stays;
  std::vector<int> stay_of(run_elements.size(), -1);
  // Resident runs ordered by their next use as of the time it was computed; stale keys are refreshed when met.
  std::set<std::pair<int, int>> resident;
  std::int64_t used = 0;
  int ahead = 0;
  for (int i = 0; i < items; ++i) {
    for (; ahead < items && ahead <= i + prefetch; ++ahead) {
      for (const int run : uses[static_cast<std::size_t>(ahead)]) {
        int& stay = stay_of[static_cast<std::size_t>(run)];
        if (stay < 0) {
          const std::int64_t size = run_elements[static_cast<std::size_t>(run)];
          while (used + size > capacity) {
            auto last = std::prev(resident.end());
            const int victim = last->second;
            const int refreshed = next_use(victim, i);
            if (refreshed != last->first) {
              resident.erase(last);
              resident.insert({refreshed, victim});
              continue;
            }
            SLUICE_CHECK(refreshed > i + prefetch, "run ", victim, " is needed by item ", refreshed);
            resident.erase(last);
            used -= run_elements[static_cast<std::size_t>(victim)];
            stay_of[static_cast<std::size_t>(victim)] = -1;
          }
          stay = static_cast<int>(stays.size());
          stays.push_back({run, i, ahead, ahead});
          used += size;
          resident.insert({next_use(run, i), run});
        }
        stays[static_cast<std::size_t>(stay)].end = std::max(stays[static_cast<std::size_t>(stay)].end, ahead);
      }
    }
    // Keys of the runs that item i used are now in the past; move them to their next use so that the last key is right.
    for (const int run : uses[static_cast<std::size_t>(i)]) {
      if (stay_of[static_cast<std::size_t>(run)] < 0) continue;
      resident.erase({i, run});
      resident.insert({next_use(run, i + 1), run});
    }
  }
  return stays;
}

}  // namespace sluice::chunks
