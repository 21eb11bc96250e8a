#include "train/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"
#include "base/rng.hpp"
#include "ops/cross_entropy.hpp"

namespace sluice::train {
namespace {

std::int32_t draw(const float* logits, std::int64_t vocab, const GenerateOptions& options, std::uint64_t index) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  // Ties by token id, so that the draw is a function of the logits alone.
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (options.temperature <= 0) return order[0];
  std::size_t kept = options.top_k > 0 ? std::min(order.size(), static_cast<std::size_t>(options.top_k)) : order.size();
  std::vector<double> weights(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((static_cast<double>(logits[order[i]]) - static_cast<double>(logits[order[0]])) / options.temperature);
    total += weights[i];
  }
  const Philox4 words = philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
                               rng_key(options.seed, RngPurpose::kSample, 0));
  if (options.top_p < 1) {
    // Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration": the smallest set with this share of the mass.
    double mass = 0;
    std::size_t nucleus = 0;
    while (nucleus < kept && mass < options.top_p * total) mass += weights[nucleus++];
    kept = std::max<std::size_t>(nucleus, 1);
    total = std::max(mass, weights[0]);
  }
  double left = (static_cast<double>(words[0]) + 0.5) * 0x1.0p-32 * total;
  for (std::size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left <= 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace

void generate(Engine& engine, std::int64_t sequence_length, std::vector<std::int32_t> prompt, const GenerateOptions& options,
              const std::function<void(std::int32_t)>& emit) {
  SLUICE_CHECK(!prompt.empty(), "generation starts from at least one token");
  const std::int64_t vocab = engine.model().spec.vocab;
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const std::int64_t count = std::min(sequence_length, static_cast<std::int64_t>(prompt.size()));
    const std::int32_t* first = prompt.data() + static_cast<std::ptrdiff_t>(prompt.size()) - count;
    const float* logits = engine.next_logits(
        [&](int /*micro*/, const schedule::TokenRows& rows) {
          std::copy(first, first + count, rows.inputs);
          std::fill(rows.inputs + count, rows.inputs + sequence_length, 0);  // causal: never seen by the token before
          std::fill(rows.targets, rows.targets + sequence_length, ops::kIgnoredTarget);
          rows.sample_ids[0] = 0;
          if (rows.document_starts != nullptr) std::fill_n(rows.document_starts, sequence_length, 0);  // one document
          return std::int64_t{0};
        },
        count - 1);
    const std::int32_t token = draw(logits, vocab, options, static_cast<std::uint64_t>(i));
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end()) return;
    emit(token);
    prompt.push_back(token);
  }
}

}  // namespace sluice::train
