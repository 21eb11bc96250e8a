#pragma once
// Which tokens each row of each micro-batch of each rank holds.
//
// Sample i of a stream of N tokens is tokens i*T .. i*T+T inclusive: T inputs and, one further, T targets. Samples share their
// border token, no target is ever predicted twice, and an epoch has floor((N-1)/T) of them (a tail shorter than T is left out).

#include <cstdint>

#include "data/corpus.hpp"

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
  std::int32_t* inputs;      // [micro_batch, T]
  std::int32_t* targets;     // [micro_batch, T], inputs one token further
  std::int64_t* sample_ids;  // [micro_batch]
};

/// The endless order of training samples, epoch after epoch. A value: it holds no position and reads no file by itself.
class TrainingSampler {
 public:
  /// tokens: of the corpus; sequence: T. Throws RequestError with both numbers when the corpus has not one sample.
  TrainingSampler(std::int64_t tokens, std::int64_t sequence, Order order, std::uint64_t seed);

  std::int64_t samples_per_epoch() const { return samples_; }
  /// Which sample of the stream has this running number: number n is place n mod samples_per_epoch of epoch n / it, the same
  /// place in sequential order, that of Permutation(seed, epoch) when shuffled. So a global batch may cross an epoch's border.
  std::int64_t sample_at(std::int64_t number) const;

  /// Fills micro-batch `micro` of this rank in the step before which `consumed` samples were consumed in all, by all ranks
  /// (step s, 0-based, of global batch G: s * G). sample_ids are running numbers: the same for every layout, and another one
  /// for the same sample in another epoch, so that its dropout differs. Waits for the disk. Throws as Corpus::read.
  void fill(const Corpus& corpus, std::int64_t consumed, std::int64_t micro, const RowLayout& layout, const Rows& rows) const;

 private:
  std::int64_t sequence_;
  std::int64_t samples_;
  Order order_;
  std::uint64_t seed_;
};

/// Every token of a stream but the first predicted once: its samples in order, then a last shorter one for the tail. Positions
/// past the end have target ops::kIgnoredTarget and input 0; so have whole rows past the last one.
class EvaluationSampler {
 public:
  /// Throws RequestError when there are fewer than two tokens.
  EvaluationSampler(std::int64_t tokens, std::int64_t sequence);

  std::int64_t predictions() const { return tokens_ - 1; }
  std::int64_t rows() const;
  /// How many micro-batches every rank runs.
  std::int64_t batches(const RowLayout& layout) const;
  /// Fills micro-batch `batch` of this rank; sample_ids are row numbers. Waits for the disk. Throws as Corpus::read.
  void fill(const Corpus& corpus, std::int64_t batch, const RowLayout& layout, const Rows& rows) const;

 private:
  std::int64_t tokens_;
  std::int64_t sequence_;
};

}  // namespace sluice::data
