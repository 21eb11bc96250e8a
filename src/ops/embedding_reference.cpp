#include <algorithm>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

void embedding_forward(const EmbeddedTokens& tokens, const float* tokens_table, const float* positions_table, std::int64_t c, float* y) {
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    const float* token = tokens_table + tokens.ids[i] * c;
    std::copy(token, token + c, y + i * c);
    if (positions_table == nullptr) continue;
    const float* position = positions_table + tokens.position(i) * c;
    for (std::int64_t j = 0; j < c; ++j) y[i * c + j] += position[j];
  }
}

void embedding_forward(const EmbeddedTokens& tokens, const std::uint16_t* tokens_table, DType dtype, const float* positions_table,
                       std::int64_t c, float* y) {
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    widen(tokens_table + tokens.ids[i] * c, c, dtype, y + i * c);
    if (positions_table == nullptr) continue;
    const float* position = positions_table + tokens.position(i) * c;
    for (std::int64_t j = 0; j < c; ++j) y[i * c + j] += position[j];
  }
}

// One f32 addition per token and element in the order that the header fixes: the same bits as the fast body.
void embedding_backward(const EmbeddedTokens& tokens, const float* dy, std::int64_t vocab, std::int64_t padding, std::int64_t context,
                        std::int64_t c, float* dtokens_table, bool accumulate_tokens, float* dpositions_table, bool accumulate_positions) {
  if (dtokens_table != nullptr && !accumulate_tokens) std::fill(dtokens_table, dtokens_table + vocab * c, 0.0f);
  if (dpositions_table != nullptr && !accumulate_positions) std::fill(dpositions_table, dpositions_table + context * c, 0.0f);
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    const auto add = [&](float* row) {
      for (std::int64_t j = 0; j < c; ++j) row[j] += dy[i * c + j];
    };
    if (dtokens_table != nullptr && tokens.ids[i] != padding) add(dtokens_table + tokens.ids[i] * c);
    if (dpositions_table != nullptr) add(dpositions_table + tokens.position(i) * c);
  }
}

}  // namespace sluice::ops::reference
