#include "ops/embedding.hpp"

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

void check_tokens(const EmbeddedTokens& tokens, std::int64_t vocab, std::int64_t c) {
  SLUICE_CHECK(tokens.rows >= 0 && tokens.tokens >= 0 && tokens.first_position >= 0 && vocab >= 1 && c >= 1, "embedding of ", tokens.rows,
               " rows of ", tokens.tokens, " tokens from ", tokens.first_position, ", vocabulary ", vocab, ", width ", c);
  SLUICE_CHECK(tokens.ids != nullptr || tokens.count() == 0, "embedding without token ids");
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    SLUICE_CHECK(tokens.ids[i] >= 0 && tokens.ids[i] < vocab, "token id ", tokens.ids[i], " at ", i, " is outside the vocabulary of ",
                 vocab);
  }
  check_document_starts(tokens.document_starts, tokens.rows, tokens.tokens);
}

}  // namespace

void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const float* tokens_table, std::int64_t vocab,
                       const float* positions_table, std::int64_t c, float* y) {
  check_tokens(tokens, vocab, c);
  SLUICE_CHECK(tokens_table != nullptr && y != nullptr, "embedding_forward without one of its arrays");
  return wants_reference(ctx) ? reference::embedding_forward(tokens, tokens_table, positions_table, c, y)
                              : cpu::embedding_forward(ctx, tokens, tokens_table, positions_table, c, y);
}

void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const std::uint16_t* tokens_table, DType dtype, std::int64_t vocab,
                       const float* positions_table, std::int64_t c, float* y) {
  check_tokens(tokens, vocab, c);
  SLUICE_CHECK(tokens_table != nullptr && y != nullptr, "embedding_forward without one of its arrays");
  SLUICE_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "a token table of ", name_of(dtype));
  return wants_reference(ctx) ? reference::embedding_forward(tokens, tokens_table, dtype, positions_table, c, y)
                              : cpu::embedding_forward(ctx, tokens, tokens_table, dtype, positions_table, c, y);
}

void embedding_backward(const Context& ctx, const EmbeddedTokens& tokens, const float* dy, std::int64_t vocab, std::int64_t padding,
                        std::int64_t context, std::int64_t c, float* dtokens_table, bool accumulate_tokens, float* dpositions_table,
                        bool accumulate_positions) {
  check_tokens(tokens, vocab, c);
  SLUICE_CHECK(dpositions_table == nullptr || tokens.first_position + tokens.tokens <= context, "positions ", tokens.first_position, "..",
               tokens.first_position + tokens.tokens - 1, " exceed the context of ", context);
  SLUICE_CHECK(dy != nullptr, "embedding_backward without dy");
  return wants_reference(ctx) ? reference::embedding_backward(tokens, dy, vocab, padding, context, c, dtokens_table, accumulate_tokens,
                                                              dpositions_table, accumulate_positions)
                              : cpu::embedding_backward(ctx, tokens, dy, vocab, padding, context, c, dtokens_table, accumulate_tokens,
                                                        dpositions_table, accumulate_positions);
}

}  // namespace sluice::ops
