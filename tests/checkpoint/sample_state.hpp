#pragma once
// A small training state with odd shapes whose every number tells plane, parameter and position, cut into pieces in several ways.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/geometry.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "comm/local/local_communicator.hpp"

namespace sluice::checkpoint::sample {

inline std::vector<ParamInfo> sample_params() {
  return {{"wte.weight", {37, 19}, DType::kF32},   {"h.0.attn.weight", {6, 5, 7}, DType::kF32},
          {"h.0.attn.bias", {23}, DType::kF32},    {"scale", {}, DType::kF32},
          {"frozen.weight", {4, 10}, DType::kF32}, {"wide.weight", {3, 211}, DType::kF32}};
}
inline constexpr int kFrozen = 4;  // has no moments

/// The number at `flat` of a whole parameter; `tag` tells one state from another.
inline float sample_value(int plane, int param, std::int64_t flat, int tag) {
  return static_cast<float>(plane * 100'000 + param * 10'000 + flat) + static_cast<float>(tag) / 64.0F;
}

enum class Layout {
  kIntervals,  // data parallelism: flat intervals at multiples of 5, so that they begin within rows
  kColumns,    // tensor parallelism: matrices cut along their last dimension
  kWhole,      // parameter p whole on rank p mod ranks
  kMixed,      // pairs of ranks share a column half, each holding an interval of it
};

inline std::vector<Region> regions_of(const std::vector<ParamInfo>& params, int param, Layout layout, int ranks, int rank) {
  const ParamInfo& info = params[static_cast<std::size_t>(param)];
  const std::int64_t total = info.elements();
  const auto interval = [](std::int64_t n, int of, int r) {
    const std::int64_t blocks = (n + 4) / 5;
    const std::int64_t begin = std::min(n, blocks * r / of * 5), end = std::min(n, blocks * (r + 1) / of * 5);
    return std::pair<std::int64_t, std::int64_t>(begin, end - begin);
  };
  const auto columns = [&](int of, int r) {
    Region region = whole_region(params, param);
    const std::int64_t n = info.shape.back();
    region.rect_offset.back() = n * r / of;
    region.rect_extent.back() = n * (r + 1) / of - n * r / of;
    region.elements = volume(region.rect_extent);
    return region;
  };
  const bool is_matrix = info.shape.size() > 1;
  if (layout == Layout::kWhole) {
    if (param % ranks != rank) return {};
    return {whole_region(params, param)};
  }
  if (layout == Layout::kColumns && is_matrix) return {columns(ranks, rank)};
  if (layout == Layout::kMixed && is_matrix && ranks % 2 == 0) {
    Region region = columns(2, rank % 2);
    const auto [begin, count] = interval(region.elements, ranks / 2, rank / 2);
    region.flat_begin = begin;
    region.elements = count;
    return {region};
  }
  const auto [begin, count] = interval(total, ranks, rank);
  // Two pieces of one interval, so that a plane has several of a parameter; one may be empty.
  const std::int64_t first = count / 3;
  return {flat_region(params, param, begin, first), flat_region(params, param, begin + first, count - first)};
}

/// One rank's pieces with memory of their own.
class SampleState {
 public:
  SampleState(Layout layout, int ranks, int rank) : params(sample_params()) {
    for (int plane = 0; plane < kPlaneCount; ++plane) {
      for (int p = 0; p < static_cast<int>(params.size()); ++p) {
        if (plane > 0 && p == kFrozen) continue;
        for (const Region& region : regions_of(params, p, layout, ranks, rank)) {
          Piece piece;
          piece.plane = kPlaneNames[plane];
          piece.region = region;
          pieces.push_back(piece);
          memory.emplace_back(static_cast<std::size_t>(region.elements), std::nanf(""));
        }
      }
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].data = memory[i].data();
  }

  void fill(int tag) {
    for_each([&](int plane, int param, std::int64_t flat, float& value) { value = sample_value(plane, param, flat, tag); });
  }
  /// How many numbers differ from what fill(tag) writes.
  std::int64_t differences(int tag) {
    std::int64_t count = 0;
    for_each([&](int plane, int param, std::int64_t flat, float& value) { count += value != sample_value(plane, param, flat, tag); });
    return count;
  }
  /// Loads all pieces in one call.
  std::function<void(PieceReader&)> loading() {
    return [this](PieceReader& reader) { reader.read(pieces); };
  }
  std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.region.elements;
    return sum;
  }

  std::vector<ParamInfo> params;
  std::vector<Piece> pieces;
  std::vector<std::vector<float>> memory;

 private:
  // Walks each piece in its own order by index arithmetic, independent of boxes_of().
  void for_each(const std::function<void(int, int, std::int64_t, float&)>& visit) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Region& region = pieces[i].region;
      const std::vector<std::int64_t>& shape = params[static_cast<std::size_t>(region.param)].shape;
      for (std::int64_t e = 0; e < region.elements; ++e) {
        std::int64_t local = region.flat_begin + e, flat = 0, stride = 1;
        for (std::size_t d = shape.size(); d-- > 0;) {
          flat += (region.rect_offset[d] + local % region.rect_extent[d]) * stride;
          local /= region.rect_extent[d];
          stride *= shape[d];
        }
        visit(plane_index(pieces[i].plane), region.param, flat, memory[i][static_cast<std::size_t>(e)]);
      }
    }
  }
};

inline Progress sample_progress(std::int64_t step) {
  return {step, step * 8, step - 1, 8, 2, 1000, 18446744073709551557u, 3};
}

inline Documents sample_documents() {
  return {R"({"layers":2,"eps":1e-05})", R"({"lr":0.00030000000000000003})", R"({"zero_stage":3})", R"({"isa":"avx2"})", R"(["a","b"])"};
}

inline SaveOptions sample_options() {
  SaveOptions options;
  options.keep = 0;
  options.writer = "sluice test";
  options.block_bytes = 256;  // several blocks a piece
  return options;
}

/// Saves step `step` with the numbers of `tag` on `ranks` threads and returns the result all ranks share.
inline CommitResult save_sample(const std::string& directory, std::int64_t step, int tag, int ranks = 2, Layout layout = Layout::kIntervals,
                                const SaveOptions& options = sample_options()) {
  std::vector<CommitResult> results(static_cast<std::size_t>(ranks));
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    SampleState state(layout, world.size(), world.rank());
    state.fill(tag);
    results[static_cast<std::size_t>(world.rank())] =
        save_checkpoint(world, directory, sample_progress(step), sample_documents(), state.params, state.pieces, options);
  });
  for (const CommitResult& result : results) {
    EXPECT_EQ(result.ok, results[0].ok);
    EXPECT_EQ(result.reason, results[0].reason);
    EXPECT_EQ(result.path, results[0].path);
  }
  return results[0];
}

/// Loads one checkpoint on `ranks` threads into states that differ from it; the numbers that still differ from `tag`.
inline std::int64_t load_differences(const std::string& path, int tag, int ranks, Layout layout) {
  std::int64_t differing = 0;
  std::mutex mutex;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    SampleState state(layout, world.size(), world.rank());
    EXPECT_EQ(state.differences(tag), state.elements()) << "the state must differ before it is loaded";
    load_checkpoint(world, path, state.params, state.pieces);
    const std::int64_t left = state.differences(tag);
    const std::lock_guard<std::mutex> lock(mutex);
    differing += left;
  });
  return differing;
}

}  // namespace sluice::checkpoint::sample
