#pragma once
// Graphs that no builder would make, from a seed.

#include <random>
#include <vector>

#include "schedule/graph.hpp"

namespace sluice::schedule {

/// `tasks` tasks on random lanes over persistent and transient buffers of random sizes and lifetimes in two tiers; transient ones
/// are written first. Not placed.
inline StepGraph random_graph(unsigned seed, int tasks) {
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr std::array<Lane, 6> kLanes{Lane::kCompute,    Lane::kCompute,     Lane::kHostCompute,
                                       Lane::kGatherComm, Lane::kScatterComm, Lane::kUpload};
  GraphBuilder builder(GraphKind::kStep);
  const auto tier = [&] { return pick(4) == 0 ? spec::Tier::kHost : spec::Tier::kDevice; };
  const auto bytes = [&] { return static_cast<std::int64_t>(pick(3) == 0 ? 64 * (1 + pick(40)) : pick(3000)); };
  std::vector<BufferId> usable;
  for (std::size_t p = 0; p < 3; ++p) usable.push_back(builder.add_buffer({.tier = tier(), .persistent = true, .bytes = bytes()}));
  for (int t = 0; t < tasks; ++t) {
    std::vector<Use> uses;
    for (std::size_t n = pick(4); n > 0; --n) {
      const BufferId buffer = usable[pick(usable.size())];
      constexpr std::array<Access, 4> kAccess{Access::kRead, Access::kRead, Access::kReadWrite, Access::kWrite};
      uses.push_back({buffer, kAccess[pick(4)], Role::kInput});
    }
    for (std::size_t n = pick(3); n > 0; --n) {
      const BufferId buffer = builder.add_buffer({.tier = tier(), .bytes = bytes()});
      uses.push_back({buffer, Access::kWrite, Role::kOutput});
      usable.push_back(buffer);
    }
    while (usable.size() > 3 + 4 + pick(8)) usable.erase(usable.begin() + 3 + static_cast<std::ptrdiff_t>(pick(usable.size() - 3)));
    builder.add_task({.kind = TaskKind::kCompute, .lane = kLanes[pick(kLanes.size())], .segment = t}, uses);
  }
  return std::move(builder).finish();
}

}  // namespace sluice::schedule
