#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "ops/context.hpp"
#include "ops/documents.hpp"

namespace sluice::ops {

/// Tokens to be embedded: ids [rows, tokens] i32 in [0, vocab), LogicError otherwise (data/ has refused bad ids before). Token t of a row
/// stands at position first_position + t, or, where rows hold several documents, at first_position + t - document_starts[b, t].
struct EmbeddedTokens {
  const std::int32_t* ids = nullptr;
  std::int64_t rows = 0, tokens = 0;
  std::int64_t first_position = 0;
  DocumentStarts document_starts = nullptr;

  std::int64_t count() const { return rows * tokens; }
  /// Of token i of count().
  std::int64_t position(std::int64_t i) const {
    return first_position + i % tokens - (document_starts != nullptr ? document_starts[i] : 0);
  }
};

/// y[b,t,:] = tokens_table[ids[b,t], :] + positions_table[position of (b,t), :]; without the second part where positions_table is null.
/// y: [rows * tokens, C].
void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const float* tokens_table, std::int64_t vocab,
                       const float* positions_table, std::int64_t c, float* y);
/// The same from a token table of kBF16 or kF16, whose rows are widened.
void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const std::uint16_t* tokens_table, DType dtype, std::int64_t vocab,
                       const float* positions_table, std::int64_t c, float* y);
/// dtokens_table [vocab, C] and dpositions_table [context, C] (each may be null: not wanted): cleared first where the accumulate
/// flag is false (whole table), then dy rows are added in row order (b, then t). Tokens of id `padding` (-1: none) add nothing to the
/// token table, as PyTorch's Embedding with padding_idx. Bits independent of threads.
void embedding_backward(const Context& ctx, const EmbeddedTokens& tokens, const float* dy, std::int64_t vocab, std::int64_t padding,
                        std::int64_t context, std::int64_t c, float* dtokens_table, bool accumulate_tokens, float* dpositions_table,
                        bool accumulate_positions);

}  // namespace sluice::ops
