#pragma once
// Small models of every family and a small batch, with every kind of dropout on.

#include <cstdint>

#include "base/rng.hpp"
#include "support/segment_driver.hpp"

namespace sluice::test {

inline spec::ModelSpec small_spec(double dropout, bool tied = true) {
  return {.name = "small",
          .vocab = 37,
          .context = 12,
          .hidden = 24,
          .layers = 2,
          .heads = 3,
          .ffn = 40,
          .embedding_dropout = dropout,
          .attention_dropout = dropout,
          .residual_dropout = dropout,
          .tied_head = tied};
}

/// The same sizes in another family: heads that share keys and values, a width of heads apart from hidden / heads, padding.
inline spec::ModelSpec small_spec_of(const std::string& family, double dropout, bool tied = true) {
  spec::ModelSpec spec = small_spec(dropout, tied);
  spec.family = family;
  if (family == "gpt2") return spec;
  spec.pad_token = 5;
  if (family == "opt") return spec;
  spec.rope.theta = 50;
  spec.kv_heads = 1;
  spec.norm_eps = 1e-6;
  if (family == "llama") return spec;
  spec.heads = 6;
  spec.kv_heads = 3;
  spec.head_dim = 10;
  return spec;
}

/// Gains around 1, everything else around 0, large enough that every term matters.
inline void randomise_params(SegmentDriver& driver, std::uint64_t seed) {
  for (std::size_t i = 0; i < driver.params.size(); ++i) {
    const model::ParamSpec& param = driver.model().params[i];
    const auto key = rng_key(seed, RngPurpose::kInit, i);
    for (std::int64_t e = 0; e < param.elements(); ++e) {
      driver.params[i].f32()[e] = 0.2f * normal_at(key, static_cast<std::uint64_t>(e)) + (param.init == model::Init::kOnes ? 1.0f : 0.0f);
    }
  }
}

inline Batch random_batch(std::int64_t rows, std::int64_t sequence, std::int64_t vocab, std::uint64_t seed) {
  Batch batch{.shape = {rows, sequence}, .inputs = {}, .targets = {}, .sample_ids = {}};
  const auto key = rng_key(seed, RngPurpose::kSample, 0);
  for (std::int64_t i = 0; i < rows * sequence; ++i) {
    const auto index = static_cast<std::uint64_t>(2 * i), bound = static_cast<std::uint64_t>(vocab);
    batch.inputs.push_back(static_cast<std::int32_t>(bounded_at(key, index, bound)));
    batch.targets.push_back(static_cast<std::int32_t>(bounded_at(key, index + 1, bound)));
  }
  for (std::int64_t row = 0; row < rows; ++row) batch.sample_ids.push_back(1000 + 7 * row);
  return batch;
}

}  // namespace sluice::test
