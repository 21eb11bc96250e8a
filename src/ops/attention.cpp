#include "ops/attention.hpp"

#include <cstdint>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

void check_attention(const Context& ctx, const AttentionShape& shape, const DropoutSite& site, const RowPositions& positions) {
  SLUICE_CHECK(shape.rows >= 1 && shape.tokens >= 1 && shape.heads >= 1 && shape.head_dim >= 1, "attention over ", shape.rows, " rows of ",
               shape.tokens, " tokens, ", shape.heads, " heads of ", shape.head_dim);
  SLUICE_CHECK(shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0, "attention of ", shape.heads, " heads with ", shape.kv_heads,
               " of keys and values");
  SLUICE_CHECK(shape.window >= 0, "attention over a window of ", shape.window);
  SLUICE_CHECK(ctx.threads >= 1, "attention on ", ctx.threads, " threads");
  SLUICE_CHECK(site.rate >= 0 && site.rate < 1, "a dropout rate of ", site.rate, " is outside [0, 1)");
  if (site.rate == 0 && positions.document_starts == nullptr) return;  // what positions serve
  SLUICE_CHECK(positions.rows == shape.rows && positions.tokens == shape.tokens, "attention over ", shape.rows, " rows of ", shape.tokens,
               " tokens, positions for ", positions.rows, " of ", positions.tokens);
  check_document_starts(positions.document_starts, shape.rows, shape.tokens);
  if (site.rate == 0) return;
  SLUICE_CHECK(positions.sample_ids != nullptr, "attention with dropout, but without samples");
  SLUICE_CHECK(positions.first_position >= 0 && positions.first_position + positions.tokens <= std::int64_t{1} << 31, "positions from ",
               positions.first_position, " don't fit the counter");
  SLUICE_CHECK(shape.heads <= 1 << 16, shape.heads, " heads don't fit the counter");
}

}  // namespace

void attention_forward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site,
                       const RowPositions& positions, float* out, float* lse, void* workspace) {
  check_attention(ctx, shape, site, positions);
  SLUICE_CHECK(qk != nullptr && v != nullptr && out != nullptr && lse != nullptr && workspace != nullptr,
               "attention_forward without one of its arrays");
  return wants_reference(ctx) ? reference::attention_forward(shape, qk, v, site, positions, out, lse)
                              : cpu::attention_forward(ctx, shape, qk, v, site, positions, out, lse, workspace);
}

void attention_backward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const float* out,
                        const float* lse, const float* dout, const DropoutSite& site, const RowPositions& positions, float* dqkv,
                        void* workspace) {
  check_attention(ctx, shape, site, positions);
  SLUICE_CHECK(
      qk != nullptr && v != nullptr && out != nullptr && lse != nullptr && dout != nullptr && dqkv != nullptr && workspace != nullptr,
      "attention_backward without one of its arrays");
  const std::int64_t last = (shape.rows * shape.tokens - 1) * shape.width(), v_width = shape.kv_heads * shape.head_dim;
  const auto overlaps = [&](const float* x, std::int64_t width) {  // tokens of `width` floats
    const auto begin = reinterpret_cast<std::uintptr_t>(x), end = reinterpret_cast<std::uintptr_t>(x + last + width);
    const auto target = reinterpret_cast<std::uintptr_t>(dqkv), target_end = reinterpret_cast<std::uintptr_t>(dqkv + last + shape.width());
    return begin < target_end && target < end;
  };
  SLUICE_CHECK(!overlaps(qk, shape.width() - v_width) && !overlaps(v, v_width), "attention_backward's dqkv overlaps its inputs");
  return wants_reference(ctx) ? reference::attention_backward(shape, qk, v, out, lse, dout, site, positions, dqkv)
                              : cpu::attention_backward(ctx, shape, qk, v, out, lse, dout, site, positions, dqkv, workspace);
}

std::int64_t attention_workspace_bytes(const AttentionShape& shape, int threads) {
  return cpu::attention_workspace_bytes(shape, threads);
}

}  // namespace sluice::ops
