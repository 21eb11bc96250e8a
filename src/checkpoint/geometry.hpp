#pragma once
// Hyperslabs of parameters: how a region lies in its parameter, what two regions share, whether regions cover a parameter
// exactly once. Pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/state.hpp"

namespace sluice::checkpoint {

/// A box of a parameter in global coordinates, with the place of its first element in the region's own order.
struct Box {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
  std::int64_t position = 0;  // elements from the region's begin
  std::int64_t elements() const;
};

/// Elements of a rectangle.
std::int64_t volume(const std::vector<std::int64_t>& extent);

/// What is wrong with a region (its parameter's index, rectangle or interval), or empty.
std::string region_fault(const std::vector<ParamInfo>& params, const Region& region);

/// The region as boxes whose concatenation, each box in row-major order, is the region's own order: at most 2 * dims - 1.
std::vector<Box> boxes_of(const Region& region);

/// Elements that two regions of one parameter share: `count` elements at `source` of the one and `target` of the other,
/// counted from each region's begin. Increasing in `source` where both have the same rectangle.
struct SharedRun {
  std::int64_t source;
  std::int64_t target;
  std::int64_t count;
};
std::vector<SharedRun> shared_runs(const Region& source, const Region& target);

/// What is wrong with a set of regions of one parameter that should hold each of its elements once ("element 17 is held
/// twice", "120 of 768 elements are held by nobody"), or empty. The regions are valid by region_fault.
std::string cover_fault(const ParamInfo& param, const std::vector<const Region*>& regions);

}  // namespace sluice::checkpoint
