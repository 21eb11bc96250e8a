#pragma once
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// y[b,t,:] = tokens_table[ids[b,t], :] + positions_table[first_position + t, :].
/// ids: [rows, tokens] i32 in [0, vocab): LogicError otherwise (data/ has refused bad ids before). y: [rows * tokens, C].
void embedding_forward(const Context& ctx, const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position,
                       const float* tokens_table, std::int64_t vocab, const float* positions_table, std::int64_t c, float* y);
/// dtokens_table [vocab, C] and dpositions_table [context, C]: cleared first where the accumulate flag is false (whole table),
/// then dy rows are added in row order (b, then t) for the token table; for positions the sum over b in order.
/// Bits independent of threads.
void embedding_backward(const Context& ctx, const std::int32_t* ids, std::int64_t rows, std::int64_t tokens, std::int64_t first_position,
                        const float* dy, std::int64_t vocab, std::int64_t context, std::int64_t c, float* dtokens_table,
                        bool accumulate_tokens, float* dpositions_table, bool accumulate_positions);

}  // namespace sluice::ops
