#include "chunks/residency.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.hpp"

namespace sluice::chunks {
namespace {

using Uses = std::vector<std::vector<int>>;

Uses random_uses(std::mt19937& random, int items, int runs) {
  Uses uses;
  for (int i = 0; i < items; ++i) {
    std::vector<int> of_item;
    for (std::size_t n = 1 + random() % 2; n > 0; --n) {
      const int run = static_cast<int>(random() % static_cast<unsigned>(runs));
      if (std::find(of_item.begin(), of_item.end(), run) == of_item.end()) of_item.push_back(run);
    }
    uses.push_back(of_item);
  }
  return uses;
}

/// The fewest gathers by trying every set of residents before every item; all runs of equal size.
int fewest_gathers(const Uses& uses, int runs, int capacity) {
  constexpr int kImpossible = std::numeric_limits<int>::max() / 2;
  const auto sets = static_cast<std::size_t>(1) << runs;
  std::vector<int> cost(sets, kImpossible);
  cost[0] = 0;
  for (const std::vector<int>& item : uses) {
    unsigned needed = 0;
    for (const int run : item) needed |= 1U << run;
    std::vector<int> next(sets, kImpossible);
    for (std::size_t from = 0; from < sets; ++from) {
      if (cost[from] >= kImpossible) continue;
      for (std::size_t to = 0; to < sets; ++to) {
        if ((to & needed) != needed || std::popcount(to) > capacity) continue;
        next[to] = std::min(next[to], cost[from] + std::popcount(to & ~from));
      }
    }
    cost = next;
  }
  return *std::min_element(cost.begin(), cost.end());
}

/// What every plan must keep: each use lies in a stay of its run, stays of a run don't overlap, what is resident at an item
/// (from its gather to its last use) fits, and a gather is issued as far ahead as asked and no further.
void expect_valid(const std::vector<Residency>& stays, const Uses& uses, const std::vector<std::int64_t>& sizes, std::int64_t capacity,
                  int prefetch) {
  const int items = static_cast<int>(uses.size());
  for (int i = 0; i < items; ++i) {
    std::int64_t resident = 0;
    std::vector<int> copies(sizes.size(), 0);
    for (const Residency& stay : stays) {
      if (stay.gather_at <= i && i <= stay.end) {
        resident += sizes[static_cast<std::size_t>(stay.run)];
        ++copies[static_cast<std::size_t>(stay.run)];
      }
    }
    EXPECT_LE(resident, capacity) << "item " << i;
    for (std::size_t r = 0; r < sizes.size(); ++r) EXPECT_LE(copies[r], 1) << "run " << r << " twice at item " << i;
    for (const int run : uses[static_cast<std::size_t>(i)]) {
      EXPECT_EQ(std::count_if(stays.begin(), stays.end(), [&](const Residency& s) { return s.run == run && s.begin <= i && i <= s.end; }),
                1)
          << "run " << run << ", item " << i;
    }
    // Whatever items i .. i + prefetch need is resident together.
    for (int ahead = i; ahead <= std::min(items - 1, i + prefetch); ++ahead) {
      for (const int run : uses[static_cast<std::size_t>(ahead)]) {
        EXPECT_TRUE(
            std::any_of(stays.begin(), stays.end(), [&](const Residency& s) { return s.run == run && s.gather_at <= i && ahead <= s.end; }))
            << run << " at " << i;
      }
    }
  }
  for (std::size_t s = 0; s < stays.size(); ++s) {
    const Residency& stay = stays[s];
    EXPECT_LE(stay.gather_at, stay.begin);
    EXPECT_EQ(stay.gather_at, std::max(0, stay.begin - prefetch)) << "stay " << s;
    EXPECT_LE(stay.begin, stay.end);
    const auto uses_at = [&](int item) {
      return std::count(uses[static_cast<std::size_t>(item)].begin(), uses[static_cast<std::size_t>(item)].end(), stay.run) > 0;
    };
    EXPECT_TRUE(uses_at(stay.begin) && uses_at(stay.end));
    if (s > 0) {
      EXPECT_LE(std::pair(stays[s - 1].gather_at, stays[s - 1].begin), std::pair(stay.gather_at, stay.begin)) << "order of issue";
    }
  }
}

TEST(Residency, GathersAsRarelyAsPossible) {
  std::mt19937 random(17);
  int evicted = 0;
  for (int round = 0; round < 400; ++round) {
    const int runs = 2 + static_cast<int>(random() % 4);
    const Uses uses = random_uses(random, 3 + static_cast<int>(random() % 8), runs);
    const std::vector<std::int64_t> sizes(static_cast<std::size_t>(runs), 256);
    const int least = static_cast<int>(minimum_capacity(uses, sizes, 0) / 256);
    for (int capacity = least; capacity <= runs; ++capacity) {
      const std::vector<Residency> stays = plan_residency(uses, sizes, 256 * capacity, 0);
      const int fewest = fewest_gathers(uses, runs, capacity);
      ASSERT_EQ(static_cast<int>(stays.size()), fewest) << "round " << round << ", capacity " << capacity;
      expect_valid(stays, uses, sizes, 256 * capacity, 0);
      evicted += fewest > fewest_gathers(uses, runs, runs) ? 1 : 0;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(evicted, 100) << "the cases must need evictions";
}

TEST(Residency, HoldsForUnequalSizesAndPrefetch) {
  std::mt19937 random(23);
  for (int round = 0; round < 400; ++round) {
    const int runs = 2 + static_cast<int>(random() % 7);
    const Uses uses = random_uses(random, 3 + static_cast<int>(random() % 20), runs);
    std::vector<std::int64_t> sizes;
    for (int r = 0; r < runs; ++r) sizes.push_back(256 * (1 + static_cast<std::int64_t>(random() % 9)));
    const int prefetch = static_cast<int>(random() % 4);
    const std::int64_t least = minimum_capacity(uses, sizes, prefetch);
    for (const std::int64_t capacity : {least, least + 256, least + 1024, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})}) {
      if (capacity < least) continue;
      expect_valid(plan_residency(uses, sizes, capacity, prefetch), uses, sizes, capacity, prefetch);
    }
    if (HasFailure()) return;
  }
}

TEST(Residency, TheMinimumIsTight) {
  std::mt19937 random(29);
  for (int round = 0; round < 200; ++round) {
    const int runs = 2 + static_cast<int>(random() % 6);
    const Uses uses = random_uses(random, 3 + static_cast<int>(random() % 12), runs);
    std::vector<std::int64_t> sizes;
    for (int r = 0; r < runs; ++r) sizes.push_back(1 + static_cast<std::int64_t>(random() % 1000));
    const int prefetch = static_cast<int>(random() % 3);
    // Brute force: the most that some window of items needs together.
    std::int64_t most = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      std::vector<bool> needed(sizes.size(), false);
      for (std::size_t a = i; a < uses.size() && a <= i + static_cast<std::size_t>(prefetch); ++a) {
        for (const int run : uses[a]) needed[static_cast<std::size_t>(run)] = true;
      }
      std::int64_t bytes = 0;
      for (std::size_t r = 0; r < sizes.size(); ++r) bytes += needed[r] ? sizes[r] : 0;
      most = std::max(most, bytes);
    }
    ASSERT_EQ(minimum_capacity(uses, sizes, prefetch), most);
    EXPECT_NO_THROW(plan_residency(uses, sizes, most, prefetch));
    try {
      plan_residency(uses, sizes, most - 1, prefetch);
      FAIL() << "a capacity below the minimum was taken";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.wanted, most);
      EXPECT_EQ(error.available, most - 1);
    }
  }
}

TEST(Residency, ARoomyCacheGathersEachRunOnce) {
  const Uses uses{{0}, {1}, {2}, {0}, {1}, {2}};
  const std::vector<Residency> stays = plan_residency(uses, std::vector<std::int64_t>{10, 20, 30}, 60, 1);
  ASSERT_EQ(stays.size(), 3U);
  EXPECT_EQ(stays[1].gather_at, 0);
  EXPECT_EQ(stays[1].begin, 1);
  EXPECT_EQ(stays[1].end, 4);
}

TEST(Residency, OfNothing) {
  EXPECT_EQ(minimum_capacity({}, {}, 2), 0);
  EXPECT_TRUE(plan_residency({}, {}, 0, 2).empty());
  EXPECT_THROW(plan_residency({}, {}, 0, -1), LogicError);
}

}  // namespace
}  // namespace sluice::chunks
