// DeepSpeed's three batch numbers and its rule for what is not written of them.

#include <algorithm>

#include "app/configuration_parts.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

constexpr const char* kNoBatch =
    "neither train_batch_size nor train_micro_batch_size_per_gpu is given; write one of them or give --train-batch-size N (sequences a "
    "step)";

/// a * b * c; nothing where that is too large.
std::optional<std::int64_t> product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t ab = 0, abc = 0;
  if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) return std::nullopt;
  return abc;
}

/// "4", "1 or 4", "1, 2 or 4": the rank counts that can share `rows` rows a step, the nearest four to `asked`.
std::string rank_counts(std::int64_t rows, std::int64_t asked) {
  std::vector<std::int64_t> counts;
  for (std::int64_t low = asked; low >= 1 && counts.size() < 2; --low) {
    if (rows % low == 0) counts.insert(counts.begin(), low);
  }
  for (std::int64_t high = asked + 1; high <= std::min(rows, 16 * asked) && counts.size() < 4; ++high) {
    if (rows % high == 0) counts.push_back(high);
  }
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i) text += cat(i == 0 ? "" : i + 1 == counts.size() ? " or " : ", ", counts[i]);
  return text;
}

}  // namespace

spec::BatchSpec resolve_batch(const BatchKeys& keys, std::int64_t data_ranks) {
  const auto text = [](const std::optional<std::int64_t>& value) { return value ? cat(*value) : std::string("(not given)"); };
  const auto refuse = [&](const std::string& advice) {
    return RequestError(cat("train_batch_size ", text(keys.train), " is not train_micro_batch_size_per_gpu ", text(keys.micro),
                            " x gradient_accumulation_steps ", text(keys.accumulation), " x ", data_ranks, " data-parallel ranks; ",
                            advice));
  };
  if (!keys.train && !keys.micro) throw RequestError(kNoBatch);
  // What one rank sees of a step must come out whole, through whichever of the two factors are given.
  const std::int64_t micro = keys.micro.value_or(1), accumulation = keys.accumulation.value_or(1);
  const std::optional<std::int64_t> unit = product(micro, accumulation, data_ranks);
  if (!unit) throw refuse("their product is too large");
  if (!keys.train) return {.global_batch = *unit, .micro_batch = micro, .accumulation = accumulation};
  const std::int64_t train = *keys.train;
  const bool both = keys.micro && keys.accumulation;
  if (*unit > train || train % *unit != 0 || (both && *unit != train)) {
    const std::int64_t below = train / *unit * *unit;
    std::string advice = both ? cat("write ", *unit, " or leave one of the three out")
                              : cat("write a multiple of ", *unit, ", as ", below > 0 ? cat(below, " or ") : std::string(), below + *unit);
    const std::int64_t per_rank = micro * accumulation;
    if (train % per_rank == 0) {
      const std::string counts = both ? cat(train / per_rank) : rank_counts(train / per_rank, data_ranks);
      advice += cat("; or run with ", counts, counts == "1" ? " rank" : " ranks");
    }
    throw refuse(advice);
  }
  spec::BatchSpec batch{.global_batch = train};
  if (keys.micro || keys.accumulation) {
    batch.micro_batch = keys.micro ? micro : train / *unit;
    batch.accumulation = keys.accumulation ? accumulation : train / *unit;
  }
  return batch;
}

void keep_global_batch(Configuration& configuration, std::int64_t global_batch) {
  spec::BatchSpec& batch = configuration.training.batch;
  // What is written stands; only a global batch that followed from the rank count may follow the run instead.
  if (configuration.batch_keys.train || batch.global_batch == global_batch) return;
  const std::int64_t ranks = configuration.mesh.data, micro = batch.micro_batch;
  if (global_batch % (micro * ranks) != 0) {
    const std::string counts = global_batch % micro == 0 ? rank_counts(global_batch / micro, ranks) : std::string();
    throw RequestError(cat(
        "the run has a global batch of ", global_batch, " sequences, which ", ranks, " ranks can't share in micro-batches of ", micro, "; ",
        counts.empty() ? "write another train_micro_batch_size_per_gpu" : cat("run with ", counts, counts == "1" ? " rank" : " ranks")));
  }
  batch.global_batch = global_batch;
  batch.accumulation = global_batch / (micro * ranks);
  configuration.notes.push_back(cat("the run keeps its global batch of ", global_batch, " sequences: gradient_accumulation_steps is ",
                                    batch.accumulation, " with ", ranks, ranks == 1 ? " rank" : " ranks"));
}

void read_batch(Reading& reading) {
  KeyTree& keys = reading.keys;
  BatchKeys& batch_keys = reading.config.batch_keys;
  std::vector<std::string>& problems = reading.result.problems;
  std::vector<std::string>& missing = reading.result.missing_for_plan;
  const std::size_t problems_before = problems.size(), missing_before = missing.size();
  if (!keys.is_auto("train_batch_size")) batch_keys.train = keys.whole("train_batch_size", 1);
  batch_keys.micro = keys.whole_or_trainer("train_micro_batch_size_per_gpu", "per_device_train_batch_size", 1, &missing);
  batch_keys.accumulation = keys.whole_or_trainer("gradient_accumulation_steps", "gradient_accumulation_steps", 1, &missing);
  const auto is_complete = [&] { return missing.size() == missing_before && problems.size() == problems_before; };
  if (!batch_keys.train && !batch_keys.micro && is_complete()) missing.emplace_back(kNoBatch);
  reading.config.mesh.data = reading.ranks.value_or(1);
  if (!is_complete()) return;
  spec::BatchSpec& batch = reading.config.training.batch;
  spec::BatchSpec resolved{batch_keys.train.value_or(0), batch_keys.micro.value_or(0), batch_keys.accumulation.value_or(0)};
  if (reading.ranks) {
    try {
      resolved = resolve_batch(batch_keys, *reading.ranks);
    } catch (const RequestError& error) {
      problems.emplace_back(error.what());
      return;
    }
  }
  resolved.sequence_length = batch.sequence_length;
  batch = resolved;
}

}  // namespace sluice::app
