#pragma once
// Dropout whose mask is a function of global positions, never of the layout.

#include <array>
#include <cstdint>

#include "ops/context.hpp"
#include "ops/documents.hpp"

namespace sluice::ops {

/// One place in the model where dropout happens, in one step. rate 0: no dropout at all. `key` = rng_key(seed, kDropout,
/// stream) with a stream made of the site's name and the step.
struct DropoutSite {
  float rate = 0;
  std::array<std::uint32_t, 2> key{};
};

/// Which global sample each row of a micro-batch is, and where its tokens stand: rows [rows, tokens] with token t of row b at
/// position first_position + t of sample sample_ids[b], whatever documents the row holds. Those are attention's alone.
struct RowPositions {
  const std::int64_t* sample_ids = nullptr;
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  std::int64_t first_position = 0;
  DocumentStarts document_starts = nullptr;
};

/// Keep-mask of element c of the token at (sample, position): word c % 4 of philox({c / 4, position, sample low 32 bits,
/// sample bits 32-47}, key), kept iff uniform_from(word) >= rate; a kept value is multiplied by 1 / (1 - rate).
/// y[b,t,c] = (residual ? residual[b,t,c] : 0) + dropout(x[b,t,c]); all [rows * tokens, C] f32. y may alias x or residual.
void dropout_add(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* x,
                 const float* residual, float* y);
/// dx[b,t,c] = mask(b,t,c) * dy[b,t,c] / (1 - rate). dx may alias dy.
void dropout_backward(const Context& ctx, const DropoutSite& site, const RowPositions& positions, std::int64_t c, const float* dy,
                      float* dx);

}  // namespace sluice::ops
