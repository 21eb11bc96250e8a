#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops::reference {
namespace {

/// One head of one row: where its vectors are, and its dropout.
struct Head {
  const AttentionShape& shape;
  const DropoutSite& site;
  const RowPositions& positions;
  std::int64_t row, head;

  /// Offset of token t's vector in qk (part 0: q, 1: k) and dqkv (2: dv too).
  std::int64_t in(std::int64_t t, int part) const {
    const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const std::int64_t vector = part == 0 ? head : shape.heads + (part - 1) * shape.kv_heads + kv_head;
    return (row * shape.tokens + t) * shape.width() + vector * shape.head_dim;
  }
  /// In v.
  std::int64_t value(std::int64_t t) const { return in(t, 2) - (shape.heads + shape.kv_heads) * shape.head_dim; }
  std::int64_t out(std::int64_t t) const { return ((row * shape.tokens + t) * shape.heads + head) * shape.head_dim; }
  std::int64_t first_seen(std::int64_t q) const { return first_key(shape, positions, row, q); }
  std::int64_t lse(std::int64_t t) const { return (row * shape.heads + head) * shape.tokens + t; }
  double dot(const float* a, const float* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < shape.head_dim; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  }
  double score(const float* qk, std::int64_t q, std::int64_t k) const {
    return dot(qk + in(q, 0), qk + in(k, 1)) / std::sqrt(static_cast<double>(shape.head_dim));
  }
  /// 0, or 1 / (1 - rate).
  double keep(std::int64_t q, std::int64_t k) const {
    if (site.rate == 0) return 1;
    const std::uint64_t sample = static_cast<std::uint64_t>(positions.sample_ids[row]);
    const std::uint32_t query = static_cast<std::uint32_t>(positions.first_position + q),
                        key = static_cast<std::uint32_t>(positions.first_position + k);
    const Philox4 words = philox({key / 4, query, static_cast<std::uint32_t>(sample),
                                  static_cast<std::uint32_t>(head) << 16 | static_cast<std::uint32_t>(sample >> 32 & 0xFFFF)},
                                 site.key);
    return uniform_from(words[key % 4]) >= site.rate ? dropout_scale(site.rate) : 0.0f;
  }
};

}  // namespace

void attention_forward(const AttentionShape& shape, const float* qk, const float* v, const DropoutSite& site, const RowPositions& positions,
                       float* out, float* lse) {
  std::vector<double> scores(static_cast<std::size_t>(shape.tokens)), sums(static_cast<std::size_t>(shape.head_dim));
  for (std::int64_t item = 0; item < shape.rows * shape.heads; ++item) {
    const Head head{shape, site, positions, item / shape.heads, item % shape.heads};
    for (std::int64_t q = 0; q < shape.tokens; ++q) {
      const std::int64_t first = head.first_seen(q);
      for (std::int64_t k = first; k <= q; ++k) scores[static_cast<std::size_t>(k)] = head.score(qk, q, k);
      const double largest = *std::max_element(scores.begin() + first, scores.begin() + q + 1);
      double total = 0;
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t k = first; k <= q; ++k) {
        const double p = std::exp(scores[static_cast<std::size_t>(k)] - largest);
        total += p;
        const double kept = p * head.keep(q, k);
        for (std::int64_t i = 0; i < shape.head_dim; ++i) sums[static_cast<std::size_t>(i)] += kept * v[head.value(k) + i];
      }
      for (std::int64_t i = 0; i < shape.head_dim; ++i)
        out[head.out(q) + i] = static_cast<float>(sums[static_cast<std::size_t>(i)] / total);
      lse[head.lse(q)] = static_cast<float>(largest + std::log(total));
    }
  }
}

// With P = softmax(S), M the dropout's factors, O = (P M) V and D = rowsum(dO O): dV = (P M)^T dO, dS = P (M (dO V^T) - D), dQ = dS K /
// sqrt(d), dK = dS^T Q / sqrt(d).
void attention_backward(const AttentionShape& shape, const float* qk, const float* v, const float* out, const float* lse, const float* dout,
                        const DropoutSite& site, const RowPositions& positions, float* dqkv) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  const std::int64_t d = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  // dq of one head; dk, dv of the heads that share them; each [T, d]
  std::vector<double> sums(static_cast<std::size_t>(3 * shape.tokens * d));
  double* dq = sums.data();
  double* dk = dq + shape.tokens * d;
  double* dv = dk + shape.tokens * d;
  for (std::int64_t item = 0; item < shape.rows * shape.heads; ++item) {
    const Head head{shape, site, positions, item / shape.heads, item % shape.heads};
    std::fill(sums.begin(), item % group == 0 ? sums.end() : sums.begin() + shape.tokens * d, 0.0);
    for (std::int64_t q = 0; q < shape.tokens; ++q) {
      const float* d_out = dout + head.out(q);
      const double row_sum = head.dot(d_out, out + head.out(q));
      for (std::int64_t k = head.first_seen(q); k <= q; ++k) {
        const double p = std::exp(head.score(qk, q, k) - lse[head.lse(q)]);
        const double keep = head.keep(q, k);
        const double ds = p * (keep * head.dot(d_out, v + head.value(k)) - row_sum) * scale;
        for (std::int64_t i = 0; i < d; ++i) {
          dq[q * d + i] += ds * qk[head.in(k, 1) + i];
          dk[k * d + i] += ds * qk[head.in(q, 0) + i];
          dv[k * d + i] += p * keep * d_out[i];
        }
      }
    }
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (int part = 0; part < (item % group == group - 1 ? 3 : 1); ++part) {
        for (std::int64_t i = 0; i < d; ++i)
          dqkv[head.in(t, part) + i] = static_cast<float>(sums[static_cast<std::size_t>((part * shape.tokens + t) * d + i)]);
      }
    }
  }
}

}  // namespace sluice::ops::reference
