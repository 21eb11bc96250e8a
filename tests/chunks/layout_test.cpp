#include "chunks/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.hpp"
#include "base/units.hpp"

namespace sluice::chunks {
namespace {

model::ParamSpec param(std::int64_t elements, const std::string& name = "p") {
  return {.name = name, .shape = {elements}};
}

/// Parameters of these sizes, in groups by number.
struct Case {
  std::vector<model::ParamSpec> params;
  optim::Grouping grouping;
  std::int64_t capacity;

  Case(const std::vector<std::int64_t>& sizes, const std::vector<int>& groups, std::int64_t chunk_elements) : capacity(chunk_elements) {
    for (const std::int64_t size : sizes) params.push_back(param(size));
    grouping.group_of = groups;
    if (grouping.group_of.empty()) grouping.group_of.assign(sizes.size(), 0);
    grouping.groups.resize(static_cast<std::size_t>(*std::max_element(grouping.group_of.begin(), grouping.group_of.end())) + 1);
  }
  ChunkLayout layout() const { return {params, grouping, capacity}; }
};

TEST(ChunkLayout, PacksInFirstUseOrder) {
  const ChunkLayout layout = Case({300, 256, 1, 700}, {}, 1024).layout();
  ASSERT_EQ(layout.chunks().size(), 2U);
  const Chunk& first = layout.chunks()[0];  // 512 + 256 + 256
  ASSERT_EQ(first.slots.size(), 3U);
  EXPECT_EQ(first.elements, 1024);
  EXPECT_EQ(first.slots[1].offset, 512);
  EXPECT_EQ(first.slots[2].offset, 768);
  EXPECT_EQ(first.slots[2].elements, 1);
  ASSERT_EQ(first.gaps.size(), 2U);  // none behind the parameter of 256
  EXPECT_EQ(first.gaps[0].offset, 300);
  EXPECT_EQ(first.gaps[0].elements, 212);
  EXPECT_EQ(first.gaps[1].offset, 769);
  EXPECT_EQ(first.gaps[1].elements, 255);
  EXPECT_EQ(layout.chunks()[1].elements, 768) << "stored extent is what it holds";
  EXPECT_EQ(layout.place(3).run, 1);
  EXPECT_EQ(layout.place(3).offset, 0);
  EXPECT_EQ(layout.elements(), 1792);
}

TEST(ChunkLayout, ALargeParameterIsARunOfItsOwn) {
  // 600 stays in the open chunk, 5000 spans consecutive chunks, 200 goes on in the chunk that was open.
  const ChunkLayout layout = Case({600, 5000, 200}, {}, 1024).layout();
  ASSERT_EQ(layout.runs().size(), 2U);
  EXPECT_EQ(layout.place(2).run, 0);
  EXPECT_EQ(layout.place(2).offset, 768);
  const chunks::Run& run = layout.runs()[1];
  EXPECT_EQ(run.first_chunk, 1);
  EXPECT_EQ(run.chunk_count, 5);
  EXPECT_EQ(run.elements, 5120);
  for (int c = 0; c < 5; ++c) {
    const Chunk& chunk = layout.chunks()[static_cast<std::size_t>(1 + c)];
    EXPECT_EQ(chunk.run, 1);
    EXPECT_EQ(chunk.run_offset, 1024 * c);
    EXPECT_EQ(chunk.elements, 1024);
    ASSERT_EQ(chunk.slots.size(), 1U) << "nothing else stands in such chunks";
    EXPECT_EQ(chunk.slots[0].param_begin, 1024 * c);
    EXPECT_EQ(chunk.slots[0].elements, c < 4 ? 1024 : 904);
    EXPECT_EQ(chunk.gaps.size(), c < 4 ? 0U : 1U);
  }
}

TEST(ChunkLayout, AParameterOfExactlyACapacityIsNoRun) {
  const ChunkLayout layout = Case({100, 1024, 900}, {}, 1024).layout();
  ASSERT_EQ(layout.runs().size(), 3U);
  for (const chunks::Run& run : layout.runs()) EXPECT_EQ(run.chunk_count, 1);
  EXPECT_EQ(Case({1025}, {}, 1024).layout().runs()[0].chunk_count, 2);
  EXPECT_EQ(Case({1025}, {}, 1024).layout().chunks()[1].elements, 256);
}

TEST(ChunkLayout, GroupsHaveChunksOfTheirOwn) {
  const ChunkLayout layout = Case({256, 256, 256, 256}, {0, 1, 0, 1}, 512).layout();
  ASSERT_EQ(layout.chunks().size(), 2U);
  EXPECT_EQ(layout.chunks()[0].group, 0);
  EXPECT_EQ(layout.chunks()[1].group, 1);
  EXPECT_EQ(layout.place(2).run, 0);
  EXPECT_EQ(layout.place(3).offset, 256);
}

TEST(ChunkLayout, RefusesAnOddCapacity) {
  EXPECT_THROW(Case({256}, {}, 0).layout(), LogicError);
  EXPECT_THROW(Case({256}, {}, 300).layout(), LogicError);
  EXPECT_THROW(Case({256}, {}, -256).layout(), LogicError);
  EXPECT_THROW(ChunkLayout(Case({256, 256}, {}, 256).params, Case({256}, {}, 256).grouping, 256), LogicError);
}

/// Everything the head of layout.hpp promises, held against random sizes.
TEST(ChunkLayout, HoldsEveryElementOnce) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t capacity = kBlock * (1 + static_cast<std::int64_t>(random() % 12));
    std::vector<std::int64_t> sizes;
    std::vector<int> groups;
    for (std::size_t n = 1 + random() % 30; n > 0; --n) {
      sizes.push_back(1 + static_cast<std::int64_t>(random() % (random() % 4 == 0 ? 6000 : 900)));
      groups.push_back(static_cast<int>(random() % 2));
    }
    const Case input(sizes, groups, capacity);
    const ChunkLayout layout = input.layout();
    std::vector<std::int64_t> held(sizes.size(), 0);
    std::int64_t total = 0;
    for (std::size_t c = 0; c < layout.chunks().size(); ++c) {
      const Chunk& chunk = layout.chunks()[c];
      total += chunk.elements;
      EXPECT_LE(chunk.elements, capacity);
      EXPECT_GT(chunk.elements, 0);
      EXPECT_EQ(chunk.elements % kBlock, 0);
      std::map<std::int64_t, std::int64_t> parts;  // offset -> elements, of slots and gaps
      for (const Slot& slot : chunk.slots) {
        const auto p = static_cast<std::size_t>(slot.param);
        EXPECT_EQ(slot.offset % kBlock, 0);
        EXPECT_EQ(groups[p], chunk.group);
        EXPECT_EQ(layout.place(slot.param).run, chunk.run);
        EXPECT_EQ(layout.place(slot.param).offset + slot.param_begin, chunk.run_offset + slot.offset) << "gathered to contiguous addresses";
        EXPECT_EQ(slot.param_begin, held[p]) << "parts in order";
        held[p] += slot.elements;
        parts[slot.offset] = slot.elements;
      }
      for (const Gap& gap : chunk.gaps) {
        EXPECT_LT(gap.elements, kBlock);
        parts[gap.offset] = gap.elements;
      }
      EXPECT_EQ(parts.size(), chunk.slots.size() + chunk.gaps.size());
      std::int64_t at = 0;
      for (const auto& [offset, elements] : parts) {
        EXPECT_EQ(offset, at);
        at += elements;
      }
      EXPECT_EQ(at, chunk.elements) << "slots and gaps make up the chunk";
    }
    EXPECT_EQ(held, sizes);
    EXPECT_EQ(total, layout.elements());
    int next_chunk = 0;
    for (std::size_t r = 0; r < layout.runs().size(); ++r) {
      const chunks::Run& run = layout.runs()[r];
      EXPECT_EQ(run.first_chunk, next_chunk);
      next_chunk += run.chunk_count;
      std::int64_t offset = 0;
      for (int c = run.first_chunk; c < next_chunk; ++c) {
        EXPECT_EQ(layout.chunks()[static_cast<std::size_t>(c)].run, static_cast<int>(r));
        EXPECT_EQ(layout.chunks()[static_cast<std::size_t>(c)].run_offset, offset);
        offset += layout.chunks()[static_cast<std::size_t>(c)].elements;
      }
      EXPECT_EQ(offset, run.elements);
    }
    EXPECT_EQ(next_chunk, static_cast<int>(layout.chunks().size()));
    // First-use order: within a group parameters follow each other, and a new chunk begins only where the open one is full.
    for (int group = 0; group < 2; ++group) {
      std::pair<int, std::int64_t> end{-1, 0};  // of the open chunk
      for (std::size_t p = 0; p < sizes.size(); ++p) {
        const std::int64_t padded = round_up(sizes[p], kBlock);
        if (groups[p] != group || padded > capacity) continue;
        const Place& place = layout.place(static_cast<int>(p));
        if (place.run == end.first) {
          EXPECT_EQ(place.offset, end.second);
        } else {
          EXPECT_GT(place.run, end.first);
          EXPECT_EQ(place.offset, 0);
          if (end.first >= 0) {
            EXPECT_GT(end.second + padded, capacity) << "it would have fitted";
          }
        }
        end = {place.run, place.offset + padded};
      }
    }
    if (HasFailure()) return;
  }
}

TEST(Shards, AreFloorsOfBlocks) {
  for (const std::int64_t blocks : {0, 1, 2, 3, 5, 7, 8, 63, 64, 65, 1000}) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 5, 7, 64}) {
      const std::int64_t elements = blocks * kBlock;
      const std::vector<std::int64_t> bounds = shard_bounds(elements, ranks);
      ASSERT_EQ(bounds.size(), static_cast<std::size_t>(ranks) + 1);
      EXPECT_EQ(bounds.front(), 0);
      EXPECT_EQ(bounds.back(), elements);
      std::int64_t largest = 0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const std::int64_t begin = r * blocks / ranks, end = (r + 1) * blocks / ranks;  // floor(r n / R) to floor((r+1) n / R) - 1
        EXPECT_EQ(bounds[static_cast<std::size_t>(r)], begin * kBlock);
        EXPECT_EQ(shard_begin(elements, r, ranks), begin * kBlock);
        largest = std::max(largest, (end - begin) * kBlock);
      }
      EXPECT_EQ(largest_shard(elements, ranks), largest) << blocks << " blocks, " << ranks << " ranks";
    }
  }
}

TEST(ChunkLayout, WorkingCopiesIn16BitsHaveAMaster) {
  Case c({300, 700}, {}, 1024);
  EXPECT_FALSE(c.layout().has_master());
  EXPECT_EQ(c.layout().master(), Plane::kWorking);
  EXPECT_EQ(c.layout().element_bytes(Plane::kWorking), 4);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    c.grouping.storage = dtype;
    const ChunkLayout layout = c.layout();
    EXPECT_EQ(layout.storage(), dtype);
    EXPECT_TRUE(layout.has_master());
    EXPECT_EQ(layout.master(), Plane::kMaster);
    EXPECT_EQ(layout.element_bytes(Plane::kWorking), 2);
    for (const Plane plane : {Plane::kGradient, Plane::kMaster, Plane::kMoment1, Plane::kMoment2})
      EXPECT_EQ(layout.element_bytes(plane), 4);
    EXPECT_EQ(layout.elements(), Case({300, 700}, {}, 1024).layout().elements()) << "packing doesn't depend on the dtype";
  }
}

TEST(ChunkLayout, FrozenChunksHaveTheWorkingPlaneAlone) {
  Case c({300, 700, 200, 5000}, {0, 1, 0, 1}, 1024);
  c.grouping.groups[1].is_trained = false;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    c.grouping.storage = dtype;
    const ChunkLayout layout = c.layout();
    int frozen = 0;
    for (const Chunk& chunk : layout.chunks()) {
      EXPECT_EQ(layout.trains(chunk), chunk.group == 0);
      EXPECT_EQ(layout.trains(layout.runs()[static_cast<std::size_t>(chunk.run)]), chunk.group == 0);
      EXPECT_TRUE(layout.has(Plane::kWorking, chunk));
      for (const Plane plane : {Plane::kGradient, Plane::kMoment1, Plane::kMoment2}) EXPECT_EQ(layout.has(plane, chunk), chunk.group == 0);
      EXPECT_EQ(layout.has(Plane::kMaster, chunk), chunk.group == 0 && dtype != DType::kF32);
      frozen += chunk.group == 1 ? 1 : 0;
    }
    EXPECT_EQ(frozen, 1 + 5);
  }
}

TEST(ChunkLayout, MomentsAreThoseThatTheOptimizerKeeps) {
  Case c({300, 700, 200, 5000}, {0, 1, 0, 1}, 1024);
  c.grouping.groups[1].is_trained = false;
  for (int moments = 0; moments <= 2; ++moments) {
    c.grouping.moments = moments;
    const ChunkLayout layout = c.layout();
    for (const Chunk& chunk : layout.chunks()) {
      EXPECT_EQ(layout.has(Plane::kGradient, chunk), chunk.group == 0);
      EXPECT_EQ(layout.has(Plane::kMoment1, chunk), chunk.group == 0 && moments >= 1);
      EXPECT_EQ(layout.has(Plane::kMoment2, chunk), chunk.group == 0 && moments == 2);
    }
  }
}

TEST(Shards, ByStage) {
  // Rajbhandari et al. 2020, "ZeRO": stage 1 shards the optimizer states, 2 the gradients as well, 3 the parameters as well.
  // Planes: working, gradient, master, both moments.
  const std::vector<std::vector<bool>> sharded{{false, false, false, false, false},
                                               {false, false, true, true, true},
                                               {false, true, true, true, true},
                                               {true, true, true, true, true}};
  for (int stage = 0; stage <= 3; ++stage) {
    for (int plane = 0; plane < kPlaneCount; ++plane) {
      EXPECT_EQ(is_sharded(static_cast<Plane>(plane), stage), sharded[static_cast<std::size_t>(stage)][static_cast<std::size_t>(plane)])
          << stage << " " << plane;
    }
  }
  EXPECT_EQ(name_of(Plane::kMoment2), "exp_avg_sq");
}

}  // namespace
}  // namespace sluice::chunks
