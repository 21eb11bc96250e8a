#include "checkpoint/geometry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sluice::checkpoint {
namespace {

using ::testing::HasSubstr;

// Flat index in the whole parameter of element `e` of a region, by division alone.
std::int64_t flat_of(const ParamInfo& param, const Region& region, std::int64_t e) {
  std::int64_t local = region.flat_begin + e, flat = 0, stride = 1;
  for (std::size_t d = param.shape.size(); d-- > 0;) {
    flat += (region.rect_offset[d] + local % region.rect_extent[d]) * stride;
    local /= region.rect_extent[d];
    stride *= param.shape[d];
  }
  return flat;
}

std::int64_t pick(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

Region random_region(std::mt19937& random, const ParamInfo& param) {
  Region region;
  for (const std::int64_t n : param.shape) {
    region.rect_offset.push_back(pick(random, 0, n - 1));
    region.rect_extent.push_back(pick(random, 1, n - region.rect_offset.back()));
  }
  const std::int64_t total = volume(region.rect_extent);
  region.flat_begin = pick(random, 0, total - 1);
  region.elements = pick(random, 0, total - region.flat_begin);
  return region;
}

const std::vector<std::vector<std::int64_t>> kShapes = {{}, {1}, {9}, {4, 6}, {3, 1, 5}, {3, 4, 5}, {2, 3, 2, 4}};

TEST(Geometry, BoxesAreTheRegionInItsOwnOrder) {
  std::mt19937 random(7);
  for (const auto& shape : kShapes) {
    const ParamInfo param{"p", shape, DType::kF32};
    for (int trial = 0; trial < 200; ++trial) {
      const Region region = random_region(random, param);
      const std::vector<Box> boxes = boxes_of(region);
      EXPECT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
      std::int64_t e = 0;
      for (const Box& box : boxes) {
        ASSERT_EQ(box.position, e);
        const Region as_region{0, box.offset, box.extent, 0, box.elements()};
        for (std::int64_t i = 0; i < box.elements(); ++i, ++e) ASSERT_EQ(flat_of(param, as_region, i), flat_of(param, region, e));
      }
      ASSERT_EQ(e, region.elements);
    }
  }
}

TEST(Geometry, SharedRunsAreAllCommonElements) {
  std::mt19937 random(8);
  for (const auto& shape : kShapes) {
    const ParamInfo param{"p", shape, DType::kF32};
    for (int trial = 0; trial < 200; ++trial) {
      const Region a = random_region(random, param);
      Region b = random_region(random, param);
      if (trial % 3 == 0) {  // the same rectangle, as data parallelism has it
        b = a;
        b.flat_begin = pick(random, 0, volume(a.rect_extent) - 1);
        b.elements = volume(a.rect_extent) - b.flat_begin;
      }
      std::map<std::int64_t, std::int64_t> in_b;
      for (std::int64_t e = 0; e < b.elements; ++e) in_b[flat_of(param, b, e)] = e;
      std::map<std::int64_t, std::int64_t> expected, found;
      for (std::int64_t e = 0; e < a.elements; ++e) {
        const auto other = in_b.find(flat_of(param, a, e));
        if (other != in_b.end()) expected[e] = other->second;
      }
      std::int64_t last = -1;
      for (const SharedRun& run : shared_runs(a, b)) {
        EXPECT_GT(run.source, last);
        last = run.source;
        for (std::int64_t i = 0; i < run.count; ++i) found[run.source + i] = run.target + i;
      }
      ASSERT_EQ(found, expected);
    }
  }
}

TEST(Geometry, WholeRowsAreOneRun) {
  const Region rows{0, {2, 0}, {3, 8}, 0, 24};
  const Region all{0, {0, 0}, {9, 8}, 0, 72};
  const std::vector<SharedRun> runs = shared_runs(rows, all);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].target, 16);
  EXPECT_EQ(runs[0].count, 24);
}

TEST(Geometry, CoverOfIntervals) {
  const std::vector<ParamInfo> params = {{"p", {4, 6}, DType::kF32}};
  const Region a = flat_region(params, 0, 0, 10), b = flat_region(params, 0, 10, 14), late = flat_region(params, 0, 11, 13),
               early = flat_region(params, 0, 9, 15), nothing = flat_region(params, 0, 3, 0);
  EXPECT_EQ(cover_fault(params[0], {&b, &nothing, &a}), "");
  EXPECT_EQ(cover_fault(params[0], {&a, &late}), "elements 10 to 10 are held by nobody");
  EXPECT_EQ(cover_fault(params[0], {&a, &early}), "element 9 is held twice");
  EXPECT_EQ(cover_fault(params[0], {&a}), "elements 10 to 23 are held by nobody");
}

TEST(Geometry, CoverOfRectangles) {
  const std::vector<ParamInfo> params = {{"p", {4, 6}, DType::kF32}};
  const Region left{0, {0, 0}, {4, 2}, 0, 8}, right_head{0, {0, 2}, {4, 4}, 0, 7}, right_tail{0, {0, 2}, {4, 4}, 7, 9};
  const Region overlapping{0, {3, 1}, {1, 2}, 0, 2};
  EXPECT_EQ(cover_fault(params[0], {&right_tail, &left, &right_head}), "");
  EXPECT_EQ(cover_fault(params[0], {&left, &right_tail}), "7 of 24 elements are held by nobody");
  EXPECT_THAT(cover_fault(params[0], {&left, &right_head, &right_tail, &overlapping}), HasSubstr("is held twice"));
  // The right number of elements, but one twice and another not at all.
  const Region moved{0, {0, 1}, {4, 2}, 0, 8};
  EXPECT_THAT(cover_fault(params[0], {&moved, &right_head, &right_tail}), HasSubstr("is held twice"));
}

TEST(Geometry, FaultsOfRegionsAreNamed) {
  const std::vector<ParamInfo> params = {{"p", {4, 6}, DType::kF32}};
  EXPECT_EQ(region_fault(params, whole_region(params, 0)), "");
  EXPECT_THAT(region_fault(params, {1, {0, 0}, {4, 6}, 0, 1}), HasSubstr("names parameter 1 of 1"));
  EXPECT_THAT(region_fault(params, {0, {0}, {4}, 0, 1}), HasSubstr("another number of dimensions"));
  EXPECT_THAT(region_fault(params, {0, {1, 0}, {4, 6}, 0, 1}), HasSubstr("leaves the parameter"));
  EXPECT_THAT(region_fault(params, {0, {0, 0}, {4, 6}, 20, 5}), HasSubstr("leaves the rectangle"));
  EXPECT_THAT(region_fault(params, {0, {0, 0}, {4, INT64_MAX}, 0, 1}), HasSubstr("leaves the parameter"));
  EXPECT_THAT(region_fault(params, {0, {0, 0}, {4, 6}, 1, INT64_MAX}), HasSubstr("leaves the rectangle"));
}

}  // namespace
}  // namespace sluice::checkpoint
