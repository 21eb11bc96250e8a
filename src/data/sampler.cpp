#include "data/sampler.hpp"

#include <algorithm>
#include <iterator>
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

void check_documents(const Corpus& corpus) {
  if (corpus.knows_documents()) return;
  throw RequestError(cat(corpus.files().front(),
                         ": llm.c's token files don't say where documents begin, so none can have a row of its own; "
                         "set sluice.data.packing to \"stream\""));
}

/// Fills rows one after the other.
class RowFiller {
 public:
  RowFiller(const Corpus& corpus, std::int64_t sequence)
      : corpus_(corpus),
        sequence_(sequence),
        tokens_(static_cast<std::size_t>(sequence) + 1),
        learned_(corpus.has_mask() ? tokens_.size() : 0) {}

  /// Tokens of `range`, whose count is at most the sequence, into row `row`; the rest is ignored. Returns the targets that have loss.
  std::int64_t fill(const RowRange& range, const Rows& rows, std::int64_t row) {
    std::int32_t* const inputs = rows.inputs + row * sequence_;
    std::int32_t* const targets = rows.targets + row * sequence_;
    std::int64_t valid = range.count;
    if (range.count > 0) {
      corpus_.read(range.begin, range.count + 1, tokens_.data());
      std::copy_n(tokens_.begin(), range.count, inputs);
      std::copy_n(tokens_.begin() + 1, range.count, targets);
      if (!learned_.empty()) {
        corpus_.read_mask(range.begin + 1, range.count, learned_.data());
        for (std::int64_t i = 0; i < range.count; ++i) {
          if (learned_[static_cast<std::size_t>(i)] != 0) continue;
          targets[i] = ops::kIgnoredTarget;
          --valid;
        }
      }
    }
    std::fill(inputs + range.count, inputs + sequence_, 0);
    std::fill(targets + range.count, targets + sequence_, ops::kIgnoredTarget);
    if (rows.document_starts != nullptr) valid -= keep_apart(range, targets, rows.document_starts + row * sequence_);
    return valid;
  }

 private:
  /// Returns the targets that lose their loss, since they begin a document. What doesn't fill the row is a document of its own.
  std::int64_t keep_apart(const RowRange& range, std::int32_t* targets, std::int32_t* starts) const {
    std::int64_t lost = 0, start = 0;
    const auto begin_at = [&](std::int64_t at) {
      std::fill(starts + start, starts + at, static_cast<std::int32_t>(start));
      start = at;
    };
    if (range.count > 0) {
      for (const std::int64_t begin : corpus_.begins_within(range.begin + 1, range.begin + range.count + 1)) {
        const std::int64_t at = begin - range.begin;
        begin_at(at);
        if (targets[at - 1] != ops::kIgnoredTarget) ++lost;
        targets[at - 1] = ops::kIgnoredTarget;
      }
    }
    begin_at(range.count);
    begin_at(sequence_);
    return lost;
  }

  const Corpus& corpus_;
  std::int64_t sequence_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> learned_;
};

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

TrainingSampler::TrainingSampler(const Corpus& corpus, std::int64_t sequence, Order order, std::uint64_t seed, Overlong overlong)
    : sequence_(sequence), samples_(0), order_(order), seed_(seed), pads_(true) {
  SLUICE_CHECK(sequence >= 1, "a sequence of ", sequence, " tokens");
  std::int64_t overlong_documents = 0, longest = 0, longest_begin = 0;
  check_documents(corpus);
  corpus.for_documents([&](std::int64_t document, std::int64_t begin, std::int64_t tokens) {
    if (tokens > longest) {
      longest = tokens;
      longest_begin = begin;
    }
    if (tokens > sequence + 1) {
      ++overlong_documents;
      if (overlong == Overlong::kTruncate) ++counts_.truncated;
      if (overlong == Overlong::kSkip) ++counts_.skipped;
    }
    const bool is_left_out = tokens < 2 || (tokens > sequence + 1 && overlong == Overlong::kSkip);
    if (tokens < 2) ++counts_.too_short;
    if (is_left_out) left_out_.push_back(document);
  });
  if (overlong == Overlong::kError && overlong_documents > 0) {
    throw RequestError(cat("training data: found ", overlong_documents, " of ", corpus.documents(),
                           " documents too long for a row, the longest with ", longest, " tokens (", corpus.place(longest_begin),
                           "), expected at most sequence_length + 1 = ", sequence + 1,
                           "; set sluice.data.overlong to \"truncate\" or \"skip\", or give a longer sequence_length"));
  }
  samples_ = counts_.rows = corpus.documents() - static_cast<std::int64_t>(left_out_.size());
  if (samples_ == 0) {
    throw RequestError(cat("training data: found ", corpus.documents(), " documents, none of which is a sample: ", counts_.skipped,
                           " have more than ", sequence + 1, " tokens and ", counts_.too_short, " fewer than 2; give others"));
  }
}

std::int64_t TrainingSampler::sample_at(std::int64_t number) const {
  const std::int64_t place = number % samples_;
  return order_ == Order::kSequential ? place : Permutation(samples_, seed_, number / samples_)(place);
}

RowRange TrainingSampler::range(const Corpus& corpus, std::int64_t sample) const {
  if (!pads_) return {sample * sequence_, sequence_};
  // left_out_[k] - k documents before it are samples, so the sample's document has the k's of those that stand before it in front.
  std::size_t low = 0, high = left_out_.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (left_out_[middle] - static_cast<std::int64_t>(middle) <= sample) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::int64_t begins[2];
  corpus.read_begins(sample + static_cast<std::int64_t>(low), 2, begins);
  return {begins[0], std::min(begins[1] - begins[0] - 1, sequence_)};
}

std::int64_t TrainingSampler::fill(const Corpus& corpus, std::int64_t consumed, std::int64_t micro, const RowLayout& layout,
                                   const Rows& rows) const {
  check_layout(layout);
  SLUICE_CHECK(consumed >= 0 && micro >= 0, "samples consumed ", consumed, ", micro-batch ", micro);
  RowFiller filler(corpus, sequence_);
  std::int64_t valid = 0;
  for (std::int64_t k = 0; k < layout.micro_batch; ++k) {
    const std::int64_t number = consumed + first_row(micro, layout) + k;
    valid += filler.fill(range(corpus, sample_at(number)), rows, k);
    rows.sample_ids[k] = number;
  }
  return valid;
}

EvaluationSampler::EvaluationSampler(std::int64_t tokens, std::int64_t sequence) : tokens_(tokens), sequence_(sequence) {
  SLUICE_CHECK(sequence >= 1, "a sequence of ", sequence, " tokens");
  if (tokens < 2) throw RequestError(cat("validation data: found ", tokens, " tokens, expected at least 2; give more data"));
  predictions_ = tokens - 1;
  documents_.push_back({0, predictions_, 0});
}

EvaluationSampler::EvaluationSampler(const Corpus& corpus, std::int64_t sequence, Packing packing)
    : EvaluationSampler(corpus.tokens(), sequence) {
  if (packing == Packing::kStream) return;
  documents_.clear();
  predictions_ = 0;
  std::int64_t rows = 0;
  check_documents(corpus);
  corpus.for_documents([&](std::int64_t /*document*/, std::int64_t begin, std::int64_t tokens) {
    if (tokens < 2) return;
    documents_.push_back({begin, tokens - 1, rows});
    predictions_ += tokens - 1;
    rows += divide_up(tokens - 1, sequence);
  });
  if (documents_.empty()) {
    throw RequestError(cat("validation data: found ", corpus.documents(), " documents, none with at least 2 tokens; give others"));
  }
}

std::int64_t EvaluationSampler::rows() const {
  return documents_.back().first_row + divide_up(documents_.back().predictions, sequence_);
}

std::int64_t EvaluationSampler::batches(const RowLayout& layout) const {
  return divide_up(rows(), layout.micro_batch * layout.ranks);
}

RowRange EvaluationSampler::range(std::int64_t row) const {
  if (row >= rows()) return {};
  const auto after = std::upper_bound(documents_.begin(), documents_.end(), row,
                                      [](std::int64_t r, const DocumentRows& document) { return r < document.first_row; });
  const DocumentRows& document = *std::prev(after);
  const std::int64_t done = (row - document.first_row) * sequence_;
  return {document.begin + done, std::min(document.predictions - done, sequence_)};
}

std::int64_t EvaluationSampler::fill(const Corpus& corpus, std::int64_t batch, const RowLayout& layout, const Rows& rows) const {
  check_layout(layout);
  SLUICE_CHECK(batch >= 0 && corpus.tokens() == tokens_, "batch ", batch, ", corpus of ", corpus.tokens(), " tokens, sampler of ", tokens_);
  RowFiller filler(corpus, sequence_);
  std::int64_t valid = 0;
  for (std::int64_t k = 0; k < layout.micro_batch; ++k) {
    const std::int64_t row = first_row(batch, layout) + k;
    valid += filler.fill(range(row), rows, k);
    rows.sample_ids[k] = row;
  }
  return valid;
}

}  // namespace sluice::data
