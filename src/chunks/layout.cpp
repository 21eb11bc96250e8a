#include "chunks/layout.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::chunks {

std::string_view name_of(Plane plane) {
  switch (plane) {
    case Plane::kWorking:
      return "working";
    case Plane::kGradient:
      return "gradient";
    case Plane::kMaster:
      return "master";
    case Plane::kMoment1:
      return "exp_avg";
    case Plane::kMoment2:
      return "exp_avg_sq";
  }
  return "?";
}

ChunkLayout::ChunkLayout(std::span<const model::ParamSpec> params, const optim::Grouping& grouping, std::int64_t chunk_elements)
    : grouping_(grouping) {
  SLUICE_CHECK(chunk_elements > 0 && chunk_elements % kBlock == 0, "a chunk of ", chunk_elements, " elements");
  SLUICE_CHECK(grouping.group_of.size() == params.size(), "groups for ", grouping.group_of.size(), " of ", params.size(), " parameters");
  places_.resize(params.size());
  std::vector<int> open(grouping.groups.size(), -1);
  const auto start_chunk = [&](int group, int run) {
    chunks_.push_back(Chunk{.group = group, .run = run});
    return static_cast<int>(chunks_.size()) - 1;
  };
  for (std::size_t p = 0; p < params.size(); ++p) {
    const int group = grouping.group_of[p];
    const std::int64_t elements = params[p].elements();
    const std::int64_t padded = round_up(elements, kBlock);
    const int param = static_cast<int>(p);
    if (padded > chunk_elements) {  // a run of its own; the open chunk stays open
      const int run = static_cast<int>(runs_.size());
      const int first = static_cast<int>(chunks_.size());
      places_[p] = {run, 0};
      for (std::int64_t begin = 0; begin < padded; begin += chunk_elements) {
        Chunk& chunk = chunks_[static_cast<std::size_t>(start_chunk(group, run))];
        chunk.elements = std::min(chunk_elements, padded - begin);
        chunk.run_offset = begin;
        const std::int64_t held = std::min(chunk.elements, elements - begin);
        chunk.slots.push_back({param, 0, begin, held});
        if (held < chunk.elements) chunk.gaps.push_back({held, chunk.elements - held});
      }
      runs_.push_back({first, static_cast<int>(chunks_.size()) - first, padded});
      continue;
    }
    int& index = open[static_cast<std::size_t>(group)];
    if (index < 0 || chunks_[static_cast<std::size_t>(index)].elements + padded > chunk_elements) {
      const int run = static_cast<int>(runs_.size());
      index = start_chunk(group, run);
      runs_.push_back({index, 1, 0});
    }
    Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
    places_[p] = {chunk.run, chunk.elements};
    chunk.slots.push_back({param, chunk.elements, 0, elements});
    if (elements < padded) chunk.gaps.push_back({chunk.elements + elements, padded - elements});
    chunk.elements += padded;
    runs_[static_cast<std::size_t>(chunk.run)].elements = chunk.elements;
  }
  for (const Chunk& chunk : chunks_) elements_ += chunk.elements;
}

bool ChunkLayout::has(Plane plane, const Chunk& chunk) const {
  switch (plane) {
    case Plane::kWorking:
      return true;
    case Plane::kGradient:
      return trains(chunk);
    case Plane::kMaster:
      return trains(chunk) && has_master();
    case Plane::kMoment1:
      return trains(chunk) && grouping_.moments >= 1;
    case Plane::kMoment2:
      return trains(chunk) && grouping_.moments >= 2;
  }
  return false;
}

std::int64_t ChunkLayout::element_bytes(Plane plane) const {
  return size_of(plane == Plane::kWorking ? storage() : DType::kF32);
}

std::int64_t shard_begin(std::int64_t elements, std::int64_t rank, std::int64_t ranks) {
  const std::int64_t blocks = elements / kBlock;
  return rank * blocks / ranks * kBlock;
}

std::vector<std::int64_t> shard_bounds(std::int64_t elements, std::int64_t ranks) {
  std::vector<std::int64_t> bounds;
  for (std::int64_t r = 0; r <= ranks; ++r) bounds.push_back(shard_begin(elements, r, ranks));
  return bounds;
}

std::int64_t largest_shard(std::int64_t elements, std::int64_t ranks) {
  return divide_up(elements / kBlock, ranks) * kBlock;
}

bool is_sharded(Plane plane, int zero_stage) {
  switch (plane) {
    case Plane::kWorking:
      return zero_stage >= 3;
    case Plane::kGradient:
      return zero_stage >= 2;
    case Plane::kMaster:
    case Plane::kMoment1:
    case Plane::kMoment2:
      return zero_stage >= 1;
  }
  return false;
}

}  // namespace sluice::chunks
