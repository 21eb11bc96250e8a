#include "checkpoint/state.hpp"

#include "checkpoint/geometry.hpp"

namespace sluice::checkpoint {

int plane_index(std::string_view name) {
  for (int i = 0; i < kPlaneCount; ++i) {
    if (kPlaneNames[i] == name) return i;
  }
  return -1;
}

std::int64_t ParamInfo::elements() const {
  return volume(shape);
}

Region whole_region(const std::vector<ParamInfo>& params, int param) {
  return flat_region(params, param, 0, params.at(static_cast<std::size_t>(param)).elements());
}

Region flat_region(const std::vector<ParamInfo>& params, int param, std::int64_t begin, std::int64_t elements) {
  const std::vector<std::int64_t>& shape = params.at(static_cast<std::size_t>(param)).shape;
  return {param, std::vector<std::int64_t>(shape.size(), 0), shape, begin, elements};
}

}  // namespace sluice::checkpoint
