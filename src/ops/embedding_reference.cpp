#include <algorithm>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void embedding_forward(const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position,
                       const float* tokens_table, const float* positions_table, std::int64_t c, float* y) {
  for (std::int64_t i = 0; i < rows * tokens; ++i) {
    const float* token = tokens_table + ids[i] * c;
    const float* position = positions_table + (first_position + i % tokens) * c;
    for (std::int64_t j = 0; j < c; ++j) y[i * c + j] = token[j] + position[j];
  }
}

// One f32 addition per token and element in the order that the header fixes: the same bits as the fast body.
void embedding_backward(const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position, const float* dy,
                        std::int64_t vocab, std::int64_t context, std::int64_t c, float* dtokens_table, bool accumulate_tokens,
                        float* dpositions_table, bool accumulate_positions) {
  if (!accumulate_tokens) std::fill(dtokens_table, dtokens_table + vocab * c, 0.0f);
  if (!accumulate_positions) std::fill(dpositions_table, dpositions_table + context * c, 0.0f);
  for (std::int64_t i = 0; i < rows * tokens; ++i) {
    float* token = dtokens_table + ids[i] * c;
    float* position = dpositions_table + (first_position + i % tokens) * c;
    for (std::int64_t j = 0; j < c; ++j) {
      token[j] += dy[i * c + j];
      position[j] += dy[i * c + j];
    }
  }
}

}  // namespace sluice::ops::reference
