#include "checkpoint/geometry.hpp"

#include <algorithm>
#include <numeric>

#include "base/text.hpp"

namespace sluice::checkpoint {
namespace {

std::string show(const std::vector<std::int64_t>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += cat(i == 0 ? "" : ", ", values[i]);
  return text + "]";
}

// Appends the boxes of [begin, begin + count) of the part of the rectangle that `prefix` fixes; dimension prefix.size() is next.
void split(const Region& region, std::vector<std::int64_t>& prefix, std::int64_t begin, std::int64_t count, std::int64_t& position,
           std::vector<Box>& boxes) {
  const std::size_t dims = region.rect_extent.size();
  const std::size_t d = prefix.size();
  std::int64_t inner = 1;
  for (std::size_t i = d + 1; i < dims; ++i) inner *= region.rect_extent[i];
  const auto add_box = [&](std::int64_t first, std::int64_t rows) {
    Box box;
    box.position = position;
    for (std::size_t i = 0; i < dims; ++i) {
      const std::int64_t local = i < d ? prefix[i] : i == d ? first : 0;
      box.offset.push_back(region.rect_offset[i] + local);
      box.extent.push_back(i < d ? 1 : i == d ? rows : region.rect_extent[i]);
    }
    position += rows * inner;
    boxes.push_back(std::move(box));
  };
  const auto inside = [&](std::int64_t row, std::int64_t from, std::int64_t length) {
    prefix.push_back(row);
    split(region, prefix, from, length, position, boxes);
    prefix.pop_back();
  };
  if (begin % inner != 0) {
    const std::int64_t head = std::min(count, inner - begin % inner);
    inside(begin / inner, begin % inner, head);
    begin += head;
    count -= head;
  }
  if (count >= inner) {
    add_box(begin / inner, count / inner);
    begin += count / inner * inner;
    count %= inner;
  }
  if (count > 0) inside(begin / inner, 0, count);
}

void append(std::vector<SharedRun>& runs, std::int64_t source, std::int64_t target, std::int64_t count) {
  if (!runs.empty() && runs.back().source + runs.back().count == source && runs.back().target + runs.back().count == target) {
    runs.back().count += count;
  } else {
    runs.push_back({source, target, count});
  }
}

// The runs of the box that `a` and `b` share, row by row of the last dimension.
void intersect(const Box& a, const Box& b, std::vector<SharedRun>& runs) {
  const std::size_t dims = a.offset.size();
  std::vector<std::int64_t> low(dims), extent(dims);
  for (std::size_t i = 0; i < dims; ++i) {
    low[i] = std::max(a.offset[i], b.offset[i]);
    extent[i] = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]) - low[i];
    if (extent[i] <= 0) return;
  }
  if (dims == 0) {
    append(runs, a.position, b.position, 1);
    return;
  }
  const auto place = [&](const Box& box, const std::vector<std::int64_t>& at) {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < dims; ++i) index = index * box.extent[i] + (at[i] - box.offset[i]);
    return box.position + index;
  };
  std::vector<std::int64_t> at = low;
  while (true) {
    append(runs, place(a, at), place(b, at), extent[dims - 1]);
    std::size_t d = dims - 1;
    while (d > 0) {
      --d;
      if (++at[d] < low[d] + extent[d]) break;
      at[d] = low[d];
      if (d == 0) return;
    }
    if (dims == 1) return;
  }
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t i = 0; i < a.offset.size(); ++i) {
    if (a.offset[i] + a.extent[i] <= b.offset[i] || b.offset[i] + b.extent[i] <= a.offset[i]) return false;
  }
  return true;
}

}  // namespace

std::int64_t Box::elements() const {
  return volume(extent);
}

std::int64_t volume(const std::vector<std::int64_t>& extent) {
  return std::accumulate(extent.begin(), extent.end(), std::int64_t{1}, std::multiplies<>());
}

std::string region_fault(const std::vector<ParamInfo>& params, const Region& region) {
  if (region.param < 0 || static_cast<std::size_t>(region.param) >= params.size()) {
    return cat("names parameter ", region.param, " of ", params.size());
  }
  const ParamInfo& param = params[static_cast<std::size_t>(region.param)];
  const std::string where =
      cat("parameter ", param.name, " ", show(param.shape), ": rectangle ", show(region.rect_extent), " at ", show(region.rect_offset));
  if (region.rect_offset.size() != param.shape.size() || region.rect_extent.size() != param.shape.size()) {
    return where + " has another number of dimensions";
  }
  std::int64_t rectangle = 1;
  for (std::size_t i = 0; i < param.shape.size(); ++i) {
    // Compared by subtraction, so that numbers from a damaged file can't overflow.
    if (region.rect_offset[i] < 0 || region.rect_extent[i] < 0 || region.rect_extent[i] > param.shape[i] ||
        region.rect_offset[i] > param.shape[i] - region.rect_extent[i]) {
      return where + " leaves the parameter";
    }
    rectangle *= region.rect_extent[i];
  }
  if (region.flat_begin < 0 || region.elements < 0 || region.elements > rectangle || region.flat_begin > rectangle - region.elements) {
    return cat(where, ": interval of ", region.elements, " elements at ", region.flat_begin, " leaves the rectangle");
  }
  return {};
}

std::vector<Box> boxes_of(const Region& region) {
  std::vector<Box> boxes;
  if (region.elements == 0) return boxes;
  if (region.rect_extent.empty()) {
    boxes.push_back({{}, {}, 0});
    return boxes;
  }
  std::vector<std::int64_t> prefix;
  std::int64_t position = 0;
  split(region, prefix, region.flat_begin, region.elements, position, boxes);
  return boxes;
}

std::vector<SharedRun> shared_runs(const Region& source, const Region& target) {
  std::vector<SharedRun> runs;
  if (source.param != target.param || source.elements == 0 || target.elements == 0) return runs;
  if (source.rect_offset == target.rect_offset && source.rect_extent == target.rect_extent) {
    const std::int64_t begin = std::max(source.flat_begin, target.flat_begin);
    const std::int64_t end = std::min(source.flat_begin + source.elements, target.flat_begin + target.elements);
    if (begin < end) runs.push_back({begin - source.flat_begin, begin - target.flat_begin, end - begin});
    return runs;
  }
  const std::vector<Box> targets = boxes_of(target);
  for (const Box& a : boxes_of(source)) {
    for (const Box& b : targets) intersect(a, b, runs);
  }
  std::sort(runs.begin(), runs.end(), [](const SharedRun& x, const SharedRun& y) { return x.source < y.source; });
  return runs;
}

std::string cover_fault(const ParamInfo& param, const std::vector<const Region*>& regions) {
  const std::int64_t wanted = param.elements();
  std::int64_t held = 0;
  bool flat = true;  // all rectangles are the whole parameter: intervals of one line
  for (const Region* region : regions) {
    held += region->elements;
    flat = flat && region->rect_extent == param.shape;
  }
  if (flat) {
    std::vector<const Region*> sorted = regions;
    std::sort(sorted.begin(), sorted.end(), [](const Region* a, const Region* b) { return a->flat_begin < b->flat_begin; });
    std::int64_t end = 0;
    for (const Region* region : sorted) {
      if (region->elements == 0) continue;
      if (region->flat_begin < end) return cat("element ", region->flat_begin, " is held twice");
      if (region->flat_begin > end) return cat("elements ", end, " to ", region->flat_begin - 1, " are held by nobody");
      end = region->flat_begin + region->elements;
    }
    if (end < wanted) return cat("elements ", end, " to ", wanted - 1, " are held by nobody");
    return {};
  }
  // Disjoint boxes with the right total volume cover everything: sweep along the first dimension.
  std::vector<Box> boxes;
  for (const Region* region : regions) {
    for (Box& box : boxes_of(*region)) boxes.push_back(std::move(box));
  }
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.offset[0] < b.offset[0]; });
  std::vector<const Box*> active;
  for (const Box& box : boxes) {
    std::erase_if(active, [&](const Box* other) { return other->offset[0] + other->extent[0] <= box.offset[0]; });
    for (const Box* other : active) {
      if (overlap(*other, box)) return cat("the part ", show(box.extent), " at ", show(box.offset), " is held twice");
    }
    active.push_back(&box);
  }
  if (held != wanted) return cat(wanted - held, " of ", wanted, " elements are held by nobody");
  return {};
}

}  // namespace sluice::checkpoint
