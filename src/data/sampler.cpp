#include "data/sampler.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"
#include "base/units.hpp"
#include "data/permutation.hpp"
#include "ops/cross_entropy.hpp"

namespace sluice::data {
namespace {

void check_layout(const RowLayout& layout) {
  SLUICE_CHECK(layout.micro_batch >= 1 && layout.rank >= 0 && layout.rank < layout.ranks, "micro-batch ", layout.micro_batch, ", rank ",
               layout.rank, " of ", layout.ranks);
}

/// The first row (of a step's or an evaluation's) that this rank has in micro-batch `micro`.
std::int64_t first_row(std::int64_t micro, const RowLayout& layout) {
  return (micro * layout.ranks + layout.rank) * layout.micro_batch;
}

/// Row `row` of `rows` = tokens [begin, begin + count] of the corpus, count <= sequence; the rest is ignored.
void fill_row(const Corpus& corpus, std::int64_t begin, std::int64_t count, std::int64_t sequence, std::vector<std::int32_t>& tokens,
              std::int32_t* inputs, std::int32_t* targets) {
  if (count > 0) {
    corpus.read(begin, count + 1, tokens.data());
    std::copy_n(tokens.begin(), count, inputs);
    std::copy_n(tokens.begin() + 1, count, targets);
  }
  std::fill(inputs + count, inputs + sequence, 0);
  std::fill(targets + count, targets + sequence, ops::kIgnoredTarget);
}

}  // namespace

TrainingSampler::TrainingSampler(std::int64_t tokens, std::int64_t sequence, Order order, std::uint64_t seed)
    : sequence_(sequence), samples_(0), order_(order), seed_(seed) {
  SLUICE_CHECK(sequence >= 1, "a sequence of ", sequence, " tokens");
  samples_ = std::max<std::int64_t>(tokens - 1, 0) / sequence;
  if (samples_ == 0) {
    throw RequestError(cat("training data: found ", tokens, " tokens, expected at least ", sequence + 1, " for one sequence of ", sequence,
                           "; give more data or a shorter sequence_length"));
  }
}

std::int64_t TrainingSampler::sample_at(std::int64_t number) const {
  const std::int64_t place = number % samples_;
  return order_ == Order::kSequential ? place : Permutation(samples_, seed_, number / samples_)(place);
}

void TrainingSampler::fill(const Corpus& corpus, std::int64_t consumed, std::int64_t micro, const RowLayout& layout,
                           const Rows& rows) const {
  check_layout(layout);
  SLUICE_CHECK(consumed >= 0 && micro >= 0, "samples consumed ", consumed, ", micro-batch ", micro);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence_) + 1);
  for (std::int64_t k = 0; k < layout.micro_batch; ++k) {
    const std::int64_t number = consumed + first_row(micro, layout) + k;
    fill_row(corpus, sample_at(number) * sequence_, sequence_, sequence_, tokens, rows.inputs + k * sequence_,
             rows.targets + k * sequence_);
    rows.sample_ids[k] = number;
  }
}

EvaluationSampler::EvaluationSampler(std::int64_t tokens, std::int64_t sequence) : tokens_(tokens), sequence_(sequence) {
  SLUICE_CHECK(sequence >= 1, "a sequence of ", sequence, " tokens");
  if (tokens < 2) throw RequestError(cat("validation data: found ", tokens, " tokens, expected at least 2; give more data"));
}

std::int64_t EvaluationSampler::rows() const {
  return divide_up(predictions(), sequence_);
}

std::int64_t EvaluationSampler::batches(const RowLayout& layout) const {
  return divide_up(rows(), layout.micro_batch * layout.ranks);
}

void EvaluationSampler::fill(const Corpus& corpus, std::int64_t batch, const RowLayout& layout, const Rows& rows) const {
  check_layout(layout);
  SLUICE_CHECK(batch >= 0 && corpus.tokens() == tokens_, "batch ", batch, ", corpus of ", corpus.tokens(), " tokens, sampler of ", tokens_);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence_) + 1);
  for (std::int64_t k = 0; k < layout.micro_batch; ++k) {
    const std::int64_t row = first_row(batch, layout) + k;
    const std::int64_t count = std::clamp<std::int64_t>(predictions() - row * sequence_, 0, sequence_);
    fill_row(corpus, row * sequence_, count, sequence_, tokens, rows.inputs + k * sequence_, rows.targets + k * sequence_);
    rows.sample_ids[k] = row;
  }
}

}  // namespace sluice::data
