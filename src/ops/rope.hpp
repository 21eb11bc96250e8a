#pragma once
#include <cstdint>

#include "ops/context.hpp"
#include "ops/documents.hpp"

namespace sluice::ops {

/// The heads to be turned: [rows, tokens] tokens `ld` floats apart, each beginning with `heads` vectors of head_dim (even). Token t of a
/// row stands at position first_position + t, or, where rows hold several documents, at first_position + t - document_starts[b, t].
struct RopeShape {
  std::int64_t rows = 0, tokens = 0, heads = 0, head_dim = 0, ld = 0;
  std::int64_t first_position = 0;
  DocumentStarts document_starts = nullptr;

  /// Of token n of rows * tokens.
  std::int64_t position(std::int64_t n) const {
    return first_position + n % tokens - (document_starts != nullptr ? document_starts[n] : 0);
  }
};

/// Turns each pair (x[i], x[i + head_dim / 2]) by the angle a_i = position * inverse_frequencies[i], or back by it if `backward`, which is
/// the gradient of turning: x[i] cos a_i - x[i + h] sin a_i and x[i + h] cos a_i + x[i] sin a_i, h = head_dim / 2. In place.
/// inverse_frequencies: [head_dim / 2]; the angle is their product with the position rounded to f32, as in transformers. Cosines and sines
/// are worked out for each token anew: beside the heads that share them they cost little, and there is no table to keep.
/// Source  Su et al. 2021, "RoFormer", eq. 34, with halves in place of neighbours, as GPT-NeoX and LLaMA's weights have it.
/// Fails   LogicError on non-positive or odd sizes, ld below the heads' width, |angle| that could reach 2^20 (beyond it f32 has no angle).
void rotate(const Context& ctx, const RopeShape& shape, const float* inverse_frequencies, bool backward, float* x);

}  // namespace sluice::ops
