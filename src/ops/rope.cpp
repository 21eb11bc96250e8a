#include "ops/rope.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

void rotate(const Context& ctx, const RopeShape& shape, const float* inverse_frequencies, bool backward, float* x) {
  SLUICE_CHECK(shape.rows >= 1 && shape.tokens >= 1 && shape.heads >= 1 && shape.head_dim >= 2 && shape.head_dim % 2 == 0, "rotate ",
               shape.rows, " rows of ", shape.tokens, " tokens, ", shape.heads, " heads of ", shape.head_dim);
  SLUICE_CHECK(shape.ld >= shape.heads * shape.head_dim, "rotate: ", shape.heads, " heads of ", shape.head_dim, ", tokens ", shape.ld,
               " apart");
  SLUICE_CHECK(inverse_frequencies != nullptr && x != nullptr, "rotate without one of its arrays");
  constexpr float kMost = 0x1.0p20f;
  for (std::int64_t i = 0; i < shape.head_dim / 2; ++i) {
    SLUICE_CHECK(inverse_frequencies[i] >= 0 && inverse_frequencies[i] * static_cast<float>(shape.first_position + shape.tokens) < kMost,
                 "rotate by ", inverse_frequencies[i], " a position up to ", shape.first_position + shape.tokens);
  }
  SLUICE_CHECK(shape.first_position >= 0, "rotate from position ", shape.first_position);
  check_document_starts(shape.document_starts, shape.rows, shape.tokens);
  return wants_reference(ctx) ? reference::rotate(shape, inverse_frequencies, backward, x)
                              : cpu::rotate(ctx, shape, inverse_frequencies, backward, x);
}

}  // namespace sluice::ops
