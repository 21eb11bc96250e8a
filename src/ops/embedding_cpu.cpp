#include <algorithm>

#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/embedding_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops::cpu {

void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const float* tokens_table, const float* positions_table,
                       std::int64_t c, float* y) {
  const auto add = ctx.isa == device::Isa::kAvx512 ? avx512::add_range : avx2::add_range;
  const std::int64_t count = tokens.count();
  parallel_shares(threads_for_bytes(ctx.threads, 12 * count * c), count, 1, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* token = tokens_table + tokens.ids[i] * c;
      if (positions_table != nullptr) {
        add(token, positions_table + tokens.position(i) * c, y + i * c, c);
      } else {
        std::copy(token, token + c, y + i * c);
      }
    }
  });
}

void embedding_forward(const Context& ctx, const EmbeddedTokens& tokens, const std::uint16_t* tokens_table, DType dtype,
                       const float* positions_table, std::int64_t c, float* y) {
  const auto add = ctx.isa == device::Isa::kAvx512 ? avx512::add_range : avx2::add_range;
  const std::int64_t count = tokens.count();
  const Context here{ctx.backend, ctx.isa, 1};
  parallel_shares(threads_for_bytes(ctx.threads, 10 * count * c), count, 1, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      cpu::widen(here, tokens_table + tokens.ids[i] * c, c, dtype, y + i * c);
      if (positions_table != nullptr) add(y + i * c, positions_table + tokens.position(i) * c, y + i * c, c);
    }
  });
}

// Threads split the columns, so each element is added in the order of rows whatever their number.
void embedding_backward(const Context& ctx, const EmbeddedTokens& tokens, const float* dy, std::int64_t vocab, std::int64_t padding,
                        std::int64_t context, std::int64_t c, float* dtokens_table, bool accumulate_tokens, float* dpositions_table,
                        bool accumulate_positions) {
  const auto add = ctx.isa == device::Isa::kAvx512 ? avx512::add_range : avx2::add_range;
  if (dtokens_table != nullptr && !accumulate_tokens) cpu::fill(ctx, dtokens_table, vocab * c, 0.0f);
  if (dpositions_table != nullptr && !accumulate_positions) cpu::fill(ctx, dpositions_table, context * c, 0.0f);
  parallel_shares(threads_for_bytes(ctx.threads, 20 * tokens.count() * c), c, 16, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < tokens.count(); ++i) {
      const float* source = dy + i * c + begin;
      if (dtokens_table != nullptr && tokens.ids[i] != padding) {
        float* token = dtokens_table + tokens.ids[i] * c + begin;
        add(token, source, token, end - begin);
      }
      if (dpositions_table != nullptr) {
        float* position = dpositions_table + tokens.position(i) * c + begin;
        add(position, source, position, end - begin);
      }
    }
  });
}

}  // namespace sluice::ops::cpu
