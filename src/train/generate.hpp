#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "train/engine.hpp"

namespace sluice::train {

struct GenerateOptions {
  std::int64_t max_tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1;          // of those the likeliest whose probabilities add up to this, at least one; (0, 1]
  std::uint64_t seed = 1;
  std::vector<std::int32_t> stop_tokens;
};

/// Draws tokens that follow `prompt` (at least one token), one forward pass each over the last sequence_length tokens. Calls
/// `emit` for each drawn token as it is known; ends after max_tokens or at a stop token, which isn't emitted. Token i is a function of the
/// seed, i and the logits alone. Collective over the engine's group.
void generate(Engine& engine, std::int64_t sequence_length, std::vector<std::int32_t> prompt, const GenerateOptions& options,
              const std::function<void(std::int32_t token)>& emit);

}  // namespace sluice::train
