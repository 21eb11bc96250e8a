#include "ops/embedding.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

void check_ids(const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position, std::int64_t vocab,
               std::int64_t c) {
  SLUICE_CHECK(rows >= 0 && tokens >= 0 && first_position >= 0 && vocab >= 1 && c >= 1, "embedding of ", rows, " rows of ", tokens,
               " tokens from ", first_position, ", vocabulary ", vocab, ", width ", c);
  SLUICE_CHECK(ids != nullptr || rows * tokens == 0, "embedding without token ids");
  for (std::int64_t i = 0; i < rows * tokens; ++i) {
    SLUICE_CHECK(ids[i] >= 0 && ids[i] < vocab, "token id ", ids[i], " at ", i, " is outside the vocabulary of ", vocab);
  }
}

}  // namespace

void embedding_forward(const Context& ctx, const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position,
                       const float* tokens_table, std::int64_t vocab, const float* positions_table, std::int64_t c, float* y) {
  check_ids(ids, rows, tokens, first_position, vocab, c);
  SLUICE_CHECK(tokens_table != nullptr && y != nullptr, "embedding_forward without one of its arrays");
  return wants_reference(ctx) ? reference::embedding_forward(ids, rows, tokens, first_position, tokens_table, positions_table, c, y)
                              : cpu::embedding_forward(ctx, ids, rows, tokens, first_position, tokens_table, positions_table, c, y);
}

void embedding_forward(const Context& ctx, const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position,
                       const std::uint16_t* tokens_table, DType dtype, std::int64_t vocab, const float* positions_table, std::int64_t c,
                       float* y) {
  check_ids(ids, rows, tokens, first_position, vocab, c);
  SLUICE_CHECK(tokens_table != nullptr && y != nullptr, "embedding_forward without one of its arrays");
  SLUICE_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "a token table of ", name_of(dtype));
  return wants_reference(ctx) ? reference::embedding_forward(ids, rows, tokens, first_position, tokens_table, dtype, positions_table, c, y)
                              : cpu::embedding_forward(ctx, ids, rows, tokens, first_position, tokens_table, dtype, positions_table, c, y);
}

void embedding_backward(const Context& ctx, const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position,
                        const float* dy, std::int64_t vocab, std::int64_t padding, std::int64_t context, std::int64_t c,
                        float* dtokens_table, bool accumulate_tokens, float* dpositions_table, bool accumulate_positions) {
  check_ids(ids, rows, tokens, first_position, vocab, c);
  SLUICE_CHECK(dpositions_table == nullptr || first_position + tokens <= context, "positions ", first_position, "..",
               first_position + tokens - 1, " exceed the context of ", context);
  SLUICE_CHECK(dy != nullptr, "embedding_backward without dy");
  return wants_reference(ctx) ? reference::embedding_backward(ids, rows, tokens, first_position, dy, vocab, padding, context, c,
                                                              dtokens_table, accumulate_tokens, dpositions_table, accumulate_positions)
                              : cpu::embedding_backward(ctx, ids, rows, tokens, first_position, dy, vocab, padding, context, c,
                                                        dtokens_table, accumulate_tokens, dpositions_table, accumulate_positions);
}

}  // namespace sluice::ops
