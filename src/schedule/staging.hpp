#pragma once
// How a compute task works in f32 on buffers that are stored in 16 bits: what it widens into a region of workspace before the
// segment runs, and what it rounds out of it after. With f32 storage nothing is staged.

#include <cstdint>
#include <vector>

#include "model/model.hpp"

namespace sluice::schedule {

/// Bytes of the activation between two segments, and of what a segment saves, as they stand in memory.
std::int64_t stored_activation_bytes(const model::Model& model, const model::Shape& shape, DType storage);
std::int64_t stored_saved_bytes(const model::Segment& segment, const model::Shape& shape, DType storage);

/// Offsets into the staging region; -1: not staged.
struct Staging {
  std::int64_t bytes = 0;            // of the region
  std::vector<std::int64_t> params;  // per parameter of the segment; empty where storage is f32
  std::int64_t x = -1, y = -1, d = -1, saved = -1;
  std::int64_t widening = -1;            // the segment's own scratch for what it takes as stored
  std::int64_t activation_elements = 0;  // of each of x, y and d
  std::int64_t saved_elements = 0;       // at the begin of `saved`: in 16 bits outside
  std::int64_t saved_exact_offset = 0;   // of what follows them, in the stored form, bytes
  std::int64_t saved_exact_bytes = 0;    // f32 outside, too
  double traffic_bytes = 0;              // read and written by the conversions
};

/// `stores_saved`: what a forward saves is wanted outside (a backward reads it); else it stays in the region.
Staging make_staging(const model::Model& model, const model::Segment& segment, model::Phase phase, const model::Shape& shape, DType storage,
                     bool stores_saved);

}  // namespace sluice::schedule
