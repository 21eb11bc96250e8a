#pragma once
// Which tokens each row of each micro-batch of each rank holds, and which of them are predicted with loss.
//
// Packing::kStream: sample i of a stream of N tokens is tokens i*T .. i*T+T inclusive: T inputs and, one further, T targets. Samples share
// their border token and cross documents, no target is ever predicted twice, and an epoch has floor((N-1)/T) of them (a tail shorter than T
// is left out).
// Packing::kPad: a sample is a document, its tokens but the last as inputs and, one further, as targets; an epoch has one of each document
// of at least two tokens. What doesn't fill the row has input 0 and no target.
//
// A target has loss where its own token is learned (Corpus::read_mask); else it is ops::kIgnoredTarget.
//
// Documents apart (Rows::document_starts): attention and positions restart at documents, so the first token of a document is predicted from
// nothing and has no loss, as with transformers' DataCollatorWithFlattening. A document that begins in one row and goes on in the next
// begins anew there, at position 0.

#include <cstdint>
#include <vector>

#include "data/corpus.hpp"
#include "data/corpus_options.hpp"

namespace sluice::data {

/// How the rows of a global batch lie over data-parallel ranks and micro-batches: row j belongs to micro-batch
/// floor(j / (micro_batch * ranks)) and there to rank floor((j mod (micro_batch * ranks)) / micro_batch).
struct RowLayout {
  std::int64_t micro_batch = 1;  // rows of one rank and micro-batch
  std::int64_t ranks = 1;        // of the data-parallel group
  std::int64_t rank = 0;         // this one's coordinate in it
};

enum class Order : std::uint8_t { kSequential, kShuffled };

/// Rows of one rank's micro-batch to be filled, row-major.
struct Rows {
  std::int32_t* inputs = nullptr;           // [micro_batch, T]
  std::int32_t* targets = nullptr;          // [micro_batch, T], inputs one token further
  std::int64_t* sample_ids = nullptr;       // [micro_batch]
  std::int32_t* document_starts = nullptr;  // [micro_batch, T], as ops::DocumentStarts; null: documents aren't kept apart
};

/// A row's tokens: [begin, begin + count] of the corpus, count inputs.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// What became of documents with Packing::kPad.
struct PadCounts {
  std::int64_t rows = 0;       // documents that are samples
  std::int64_t truncated = 0;  // of them, cut at T + 1 tokens
  std::int64_t skipped = 0;    // left out: more than T + 1 tokens
  std::int64_t too_short = 0;  // left out: fewer than two tokens, so nothing to predict
};

/// The endless order of training samples, epoch after epoch. A value: it holds no position and reads no file by itself.
class TrainingSampler {
 public:
  /// kStream. tokens: of the corpus; sequence: T. Throws RequestError with both numbers when the corpus has not one sample.
  TrainingSampler(std::int64_t tokens, std::int64_t sequence, Order order, std::uint64_t seed);
  /// kPad. Looks through all documents' lengths. Throws RequestError when there are no samples, when documents aren't known, and with
  /// Overlong::kError for documents that no row holds, with their number and the longest one.
  TrainingSampler(const Corpus& corpus, std::int64_t sequence, Order order, std::uint64_t seed, Overlong overlong);

  std::int64_t samples_per_epoch() const { return samples_; }
  /// Which sample of an epoch has this running number: number n is place n mod samples_per_epoch of epoch n / it, the same
  /// place in sequential order, that of Permutation(seed, epoch) when shuffled. So a global batch may cross an epoch's border.
  std::int64_t sample_at(std::int64_t number) const;
  /// The tokens of a sample. Reads the documents' places where these are samples.
  RowRange range(const Corpus& corpus, std::int64_t sample) const;
  /// All zero with kStream.
  const PadCounts& pad_counts() const { return counts_; }

  /// Fills micro-batch `micro` of this rank in the step before which `consumed` samples were consumed in all, by all ranks
  /// (step s, 0-based, of global batch G: s * G). sample_ids are running numbers: the same for every layout, and another one
  /// for the same sample in another epoch, so that its dropout differs. Returns the targets that have loss, perhaps none. Waits for the
  /// disk. Throws as Corpus::read.
  std::int64_t fill(const Corpus& corpus, std::int64_t consumed, std::int64_t micro, const RowLayout& layout, const Rows& rows) const;

 private:
  std::int64_t sequence_;
  std::int64_t samples_;
  Order order_;
  std::uint64_t seed_;
  bool pads_ = false;
  std::vector<std::int64_t> left_out_;  // kPad: documents that are no samples, ascending
  PadCounts counts_;
};

/// Every token of a corpus predicted once that has one before it (with documents apart: of its document): with kStream all but the first,
/// in samples in order and a last shorter one for the tail; with kPad all but the first of each document, and documents longer than a row
/// go on in further rows, whatever Overlong says. Positions past the end have target ops::kIgnoredTarget and input 0; so have whole rows
/// past the last one.
class EvaluationSampler {
 public:
  /// kStream. Throws RequestError when there are fewer than two tokens.
  EvaluationSampler(std::int64_t tokens, std::int64_t sequence);
  /// Either. Looks through all documents' lengths with kPad. Throws RequestError when nothing is predicted.
  EvaluationSampler(const Corpus& corpus, std::int64_t sequence, Packing packing);

  /// Targets, those without loss included.
  std::int64_t predictions() const { return predictions_; }
  std::int64_t rows() const;
  /// How many micro-batches every rank runs.
  std::int64_t batches(const RowLayout& layout) const;
  /// Fills micro-batch `batch` of this rank; sample_ids are row numbers. Returns the targets that have loss, perhaps none. Waits for the
  /// disk. Throws as Corpus::read.
  std::int64_t fill(const Corpus& corpus, std::int64_t batch, const RowLayout& layout, const Rows& rows) const;

 private:
  RowRange range(std::int64_t row) const;
  std::int64_t tokens_;
  std::int64_t sequence_;
  std::int64_t predictions_ = 0;
  /// Rows that follow each other in the corpus: a document's, or with kStream all of them.
  struct DocumentRows {
    std::int64_t begin;  // token
    std::int64_t predictions;
    std::int64_t first_row;
  };
  std::vector<DocumentRows> documents_;
};

}  // namespace sluice::data
