#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/units.hpp"
#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

namespace sluice::ops {
namespace {

inline constexpr std::int64_t kTile = 64;  // queries, and keys, of a tile: three 16 KiB tiles at a time stay near the first-level cache

/// One head of one row: strides in floats between tokens.
struct AttentionHead {
  std::int64_t tokens, head_dim, pad;  // pad: head_dim rounded up to whole vectors
  const float* q;
  const float* k;
  const float* v;
  std::int64_t ld_in, ld_out;
  float scale;       // of scores
  float keep_scale;  // of kept probabilities
  const AttentionShape* shape;
  const RowPositions* positions;
  std::int64_t row;
};

/// The first keys that the queries [q0, q0 + count) of a tile see, never falling; columns beyond the last query are like it.
struct FirstKeys {
  FirstKeys(const AttentionHead& h, std::int64_t q0, std::int64_t count) : queries(count) {
    for (std::int64_t i = 0; i < kTile; ++i)
      at[i] = static_cast<std::int32_t>(first_key(*h.shape, *h.positions, h.row, q0 + std::min(i, count - 1)));
  }
  /// How many of the queries, from the first, see key `key` if causality lets them.
  std::int64_t reaching(std::int64_t key) const { return std::upper_bound(at, at + queries, key) - at; }
  /// The first tile of keys that any of them sees.
  std::int64_t first_tile() const { return at[0] / kTile * kTile; }

  std::int64_t queries;
  std::int32_t at[kTile];
};

/// Which probabilities dropout keeps.
struct KeepMask {
  bool active;
  std::int32_t threshold;
  std::array<std::uint32_t, 2> key;
  std::uint32_t word2, word3;  // of the counter: sample, head
  std::uint32_t first_position;
};

/// A thread's workspace. Rows of one head's tokens are kept side by side here: in qkv they are kilobytes apart.
struct AttentionTiles {
  float *k_rows, *v_rows, *dk_rows, *dv_rows;  // [tokens, pad]
  float *q_rows, *dout_rows, *out_rows;        // [kTile, pad]
  float *q_columns, *dout_columns;             // [head_dim, kTile]
  float *p, *ds;                               // [kTile keys, kTile queries]
  float *row_max, *row_sum, *rescale;          // [kTile]
};

constexpr std::int64_t kVector = 16;  // floats; of the widest instruction set, so that every one gives the same sizes

std::int64_t tiles_floats(std::int64_t tokens, std::int64_t head_dim) {
  const std::int64_t pad = round_up(head_dim, kVector);
  return 4 * tokens * pad + 3 * kTile * pad + 2 * head_dim * kTile + 2 * kTile * kTile + 3 * kTile;
}

AttentionTiles tiles_in(float* floats, std::int64_t tokens, std::int64_t head_dim) {
  const std::int64_t pad = round_up(head_dim, kVector);
  const auto take = [&floats](std::int64_t count) {
    float* taken = floats;
    floats += count;
    return taken;
  };
  AttentionTiles t{};
  for (float** rows : {&t.k_rows, &t.v_rows, &t.dk_rows, &t.dv_rows}) *rows = take(tokens * pad);
  for (float** rows : {&t.q_rows, &t.dout_rows, &t.out_rows}) *rows = take(kTile * pad);
  for (float** columns : {&t.q_columns, &t.dout_columns}) *columns = take(head_dim * kTile);
  for (float** scores : {&t.p, &t.ds}) *scores = take(kTile * kTile);
  for (float** values : {&t.row_max, &t.row_sum, &t.rescale}) *values = take(kTile);
  return t;
}

}  // namespace
}  // namespace sluice::ops

#define SLUICE_KERNELS "ops/attention_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes; of a cache line

/// Calls body(head, tiles, keep, row, head index) for every head of every row, shared among the threads; `together` heads in a row
/// (a divisor of heads) fall to one thread, one after another.
template <typename Body>
void for_each_head(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site,
                   const RowPositions& positions, std::int64_t together, void* workspace, const Body& body) {
  const std::int64_t width = shape.heads * shape.head_dim;
  const auto aligned = round_up(reinterpret_cast<std::intptr_t>(workspace), kAlignment);
  float* floats = reinterpret_cast<float*>(aligned);  // NOLINT(performance-no-int-to-ptr): a pointer rounded up
  parallel_shares(ctx.threads, shape.rows * shape.heads, together, [&](std::int64_t begin, std::int64_t end, int share) {
    const AttentionTiles tiles = tiles_in(floats + share * tiles_floats(shape.tokens, shape.head_dim), shape.tokens, shape.head_dim);
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t row = item / shape.heads, index = item % shape.heads;
      const std::int64_t first = row * shape.tokens * shape.width();
      const std::int64_t kv = first + index / (shape.heads / shape.kv_heads) * shape.head_dim;
      const AttentionHead head{shape.tokens,
                               shape.head_dim,
                               round_up(shape.head_dim, kVector),
                               qk + first + index * shape.head_dim,
                               qk + width + kv,
                               v + kv,
                               shape.width(),
                               width,
                               static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim))),
                               dropout_scale(site.rate),
                               &shape,
                               &positions,
                               row};
      KeepMask keep{};
      if (site.rate > 0) {
        const auto sample = static_cast<std::uint64_t>(positions.sample_ids[row]);
        keep = {true,
                dropout_threshold(site.rate),
                site.key,
                static_cast<std::uint32_t>(sample),
                static_cast<std::uint32_t>(index) << 16 | static_cast<std::uint32_t>(sample >> 32 & 0xFFFF),
                static_cast<std::uint32_t>(positions.first_position)};
      }
      body(head, tiles, keep, row, index);
    }
  });
}

}  // namespace

namespace cpu {

std::int64_t attention_workspace_bytes(const AttentionShape& shape, int threads) {
  return threads * tiles_floats(shape.tokens, shape.head_dim) * static_cast<std::int64_t>(sizeof(float)) + kAlignment;
}

void attention_forward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site,
                       const RowPositions& positions, float* out, float* lse, void* workspace) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::attention_forward_head : avx2::attention_forward_head;
  for_each_head(ctx, shape, qk, v, site, positions, 1, workspace,
                [&](const AttentionHead& head, const AttentionTiles& tiles, const KeepMask& keep, std::int64_t row, std::int64_t index) {
                  kernel(head, tiles, keep, out + row * shape.tokens * head.ld_out + index * head.head_dim,
                         lse + (row * shape.heads + index) * shape.tokens);
                });
}

void attention_backward(const Context& ctx, const AttentionShape& shape, const float* qk, const float* v, const float* out,
                        const float* lse, const float* dout, const DropoutSite& site, const RowPositions& positions, float* dqkv,
                        void* workspace) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::attention_backward_head : avx2::attention_backward_head;
  // Heads that share keys and values add to the same gradients, so they stay together.
  const std::int64_t group = shape.heads / shape.kv_heads;
  for_each_head(ctx, shape, qk, v, site, positions, group, workspace,
                [&](const AttentionHead& head, const AttentionTiles& tiles, const KeepMask& keep, std::int64_t row, std::int64_t index) {
                  const std::int64_t at = row * shape.tokens * head.ld_out + index * head.head_dim;
                  float* const dv = dqkv + (shape.heads + shape.kv_heads) * shape.head_dim + (head.v - v);
                  kernel(head, tiles, keep, out + at, lse + (row * shape.heads + index) * shape.tokens, dout + at, dqkv + (head.q - qk),
                         dqkv + (head.k - qk), dv, index % group == 0, index % group == group - 1);
                });
}

}  // namespace cpu
}  // namespace sluice::ops
