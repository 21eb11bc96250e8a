#include "data/sampler.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "ops/cross_entropy.hpp"
#include "support/expect_error.hpp"
#include "support/llmc_bytes.hpp"
#include "support/temp_dir.hpp"

namespace sluice::data {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TempDir;

/// Rows with their memory, poisoned.
struct Batch {
  std::int64_t sequence;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> starts;
  Batch(std::int64_t rows, std::int64_t t)
      : sequence(t),
        inputs(static_cast<std::size_t>(rows * t), -99),
        targets(inputs),
        ids(static_cast<std::size_t>(rows), -99),
        starts(inputs) {}
  Rows rows() { return {inputs.data(), targets.data(), ids.data()}; }
  Rows rows_apart() { return {inputs.data(), targets.data(), ids.data(), starts.data()}; }
  std::vector<std::int32_t> input(std::int64_t row) const {
    return {inputs.begin() + row * sequence, inputs.begin() + (row + 1) * sequence};
  }
  std::vector<std::int32_t> target(std::int64_t row) const {
    return {targets.begin() + row * sequence, targets.begin() + (row + 1) * sequence};
  }
  std::vector<std::int32_t> start(std::int64_t row) const {
    return {starts.begin() + row * sequence, starts.begin() + (row + 1) * sequence};
  }
};

/// A text of `tokens` tokens (its end-of-document included), byte i being i + 1.
Corpus counting(const TempDir& dir, int tokens) {
  std::string text;
  for (int i = 0; i + 1 < tokens; ++i) text += static_cast<char>(i + 1);
  return Corpus({dir.write("counting.txt", text)}, 257);
}

TEST(TrainingSampler, CountsWholeSamples) {
  const auto samples = [](std::int64_t tokens, std::int64_t t) {
    return TrainingSampler(tokens, t, Order::kSequential, 1).samples_per_epoch();
  };
  EXPECT_EQ(samples(9, 4), 2);  // tokens 0-4 and 4-8
  EXPECT_EQ(samples(8, 4), 1);
  EXPECT_EQ(samples(5, 4), 1);
  EXPECT_EQ(samples(std::int64_t{1} << 45, 1024), (std::int64_t{1} << 35) - 1);
  expect_error<RequestError>([&] { samples(4, 4); }, {"found 4 tokens", "at least 5", "sequence_length"});
  expect_error<RequestError>([&] { samples(0, 4); }, {"found 0 tokens"});
}

TEST(TrainingSampler, SequentialRowsAreTheNextSamplesInOrder) {
  const TempDir dir;
  const Corpus corpus = counting(dir, 40);
  const TrainingSampler sampler(corpus.tokens(), 3, Order::kSequential, 1);
  ASSERT_EQ(sampler.samples_per_epoch(), 13);
  // Two ranks, two rows each, two micro-batches: a global batch of 8; the second step begins at sample 8 and crosses the epoch.
  for (std::int64_t step = 0; step < 3; ++step) {
    for (std::int64_t micro = 0; micro < 2; ++micro) {
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        Batch batch(2, 3);
        sampler.fill(corpus, step * 8, micro, {2, 2, rank}, batch.rows());
        for (std::int64_t k = 0; k < 2; ++k) {
          const std::int64_t j = micro * 4 + rank * 2 + k;  // its row in the global batch
          const std::int64_t number = step * 8 + j;
          const auto first = static_cast<std::int32_t>(number % 13 * 3 + 1);
          EXPECT_EQ(batch.ids[static_cast<std::size_t>(k)], number);
          EXPECT_THAT(batch.input(k), ElementsAre(first, first + 1, first + 2));
          EXPECT_THAT(batch.target(k), ElementsAre(first + 1, first + 2, first + 3 == 40 ? 256 : first + 3));
        }
      }
    }
  }
}

TEST(TrainingSampler, AnyLayoutHoldsTheSameGlobalBatch) {
  const TempDir dir;
  const Corpus corpus = counting(dir, 200);
  const TrainingSampler sampler(corpus.tokens(), 4, Order::kShuffled, 9);
  const auto global_batch = [&](std::int64_t micro_batch, std::int64_t ranks) {
    std::map<std::int64_t, std::vector<std::int32_t>> rows;  // by running number
    for (std::int64_t micro = 0; micro < 24 / (micro_batch * ranks); ++micro) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Batch batch(micro_batch, 4);
        sampler.fill(corpus, 36, micro, {micro_batch, ranks, rank}, batch.rows());
        for (std::int64_t k = 0; k < micro_batch; ++k) rows[batch.ids[static_cast<std::size_t>(k)]] = batch.input(k);
      }
    }
    return rows;
  };
  const auto whole = global_batch(24, 1);
  EXPECT_EQ(whole.size(), 24U);
  EXPECT_EQ(whole.begin()->first, 36);
  EXPECT_EQ(global_batch(1, 1), whole);
  EXPECT_EQ(global_batch(2, 3), whole);
  EXPECT_EQ(global_batch(3, 8), whole);
}

TEST(TrainingSampler, ShuffledEpochsHoldEverySampleOnceInTheirOwnOrder) {
  const TrainingSampler sampler(1001, 10, Order::kShuffled, 4);
  ASSERT_EQ(sampler.samples_per_epoch(), 100);
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (std::int64_t number = 0; number < 300; ++number) epochs[static_cast<std::size_t>(number / 100)].push_back(sampler.sample_at(number));
  for (const std::vector<std::int64_t>& epoch : epochs) {
    EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 100U);
    EXPECT_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(TrainingSampler(1001, 10, Order::kShuffled, 5).sample_at(0), sampler.sample_at(0));
}

TEST(EvaluationSampler, PredictsEveryTokenOnce) {
  const TempDir dir;
  for (const int tokens : {2, 3, 7, 8, 9, 25}) {
    const Corpus corpus = counting(dir, tokens);
    const EvaluationSampler sampler(corpus.tokens(), 4);
    EXPECT_EQ(sampler.predictions(), tokens - 1);
    for (const std::int64_t ranks : {1, 2, 3}) {
      std::vector<std::int32_t> predicted;
      std::int64_t batches = -1;
      std::map<std::int64_t, std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>> rows;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const RowLayout layout{2, ranks, rank};
        EXPECT_TRUE(batches < 0 || batches == sampler.batches(layout)) << "all ranks run as many";
        batches = sampler.batches(layout);
        for (std::int64_t b = 0; b < batches; ++b) {
          Batch batch(2, 4);
          sampler.fill(corpus, b, layout, batch.rows());
          for (std::int64_t k = 0; k < 2; ++k) rows[batch.ids[static_cast<std::size_t>(k)]] = {batch.input(k), batch.target(k)};
        }
      }
      EXPECT_EQ(rows.size(), static_cast<std::size_t>(batches * 2 * ranks));
      for (const auto& [id, row] : rows) {
        for (std::size_t t = 0; t < 4; ++t) {
          if (row.second[t] == ops::kIgnoredTarget) {
            EXPECT_EQ(row.first[t], 0) << "an ignored position still has a valid input";
          } else {
            EXPECT_EQ(row.first[t], static_cast<std::int32_t>(predicted.size()) + 1);
            predicted.push_back(row.second[t]);
          }
        }
      }
      std::vector<std::int32_t> expected;
      for (int i = 1; i + 1 < tokens; ++i) expected.push_back(i + 1);
      expected.push_back(256);
      EXPECT_EQ(predicted, expected) << tokens << " tokens, " << ranks << " ranks";
    }
  }
}

TEST(EvaluationSampler, MasksTheTailAndTheRowsPastIt) {
  const TempDir dir;
  const Corpus corpus = counting(dir, 7);  // 6 predictions: a row of 4, a row of 2
  const EvaluationSampler sampler(corpus.tokens(), 4);
  EXPECT_EQ(sampler.rows(), 2);
  EXPECT_EQ(sampler.batches({3, 1, 0}), 1);
  Batch batch(3, 4);
  sampler.fill(corpus, 0, {3, 1, 0}, batch.rows());
  EXPECT_THAT(batch.input(0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch.target(0), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(batch.input(1), ElementsAre(5, 6, 0, 0));
  EXPECT_THAT(batch.target(1), ElementsAre(6, 256, -1, -1));
  EXPECT_THAT(batch.input(2), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(batch.target(2), ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(batch.ids, ElementsAre(0, 1, 2));
  expect_error<RequestError>([] { EvaluationSampler(1, 4); }, {"found 1 tokens", "at least 2"});
}

/// Documents of these lengths, end-of-document included; document d's bytes are 10 * (d + 1), 10 * (d + 1) + 1, ...
Corpus documents(const TempDir& dir, const std::vector<int>& lengths) {
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    std::string text;
    for (int i = 0; i + 1 < lengths[d]; ++i) text += static_cast<char>(10 * (d + 1) + static_cast<std::size_t>(i));
    dir.write("document-" + std::to_string(100 + d), text);
  }
  return Corpus({dir / "document-*"}, 257);
}

TEST(TrainingSampler, PadGivesEachDocumentARow) {
  const TempDir dir;
  const Corpus corpus = documents(dir, {3, 5, 2, 4});
  const TrainingSampler sampler(corpus, 4, Order::kSequential, 1, Overlong::kError);
  EXPECT_EQ(sampler.samples_per_epoch(), 4);
  Batch batch(4, 4);
  EXPECT_EQ(sampler.fill(corpus, 0, 0, {4, 1, 0}, batch.rows()), 2 + 4 + 1 + 3);
  EXPECT_THAT(batch.input(0), ElementsAre(10, 11, 0, 0));
  EXPECT_THAT(batch.target(0), ElementsAre(11, 256, -1, -1));
  EXPECT_THAT(batch.input(1), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(batch.target(1), ElementsAre(21, 22, 23, 256));
  EXPECT_THAT(batch.input(2), ElementsAre(30, 0, 0, 0));
  EXPECT_THAT(batch.target(2), ElementsAre(256, -1, -1, -1));
  EXPECT_THAT(batch.input(3), ElementsAre(40, 41, 42, 0));
  EXPECT_THAT(batch.target(3), ElementsAre(41, 42, 256, -1));
}

TEST(TrainingSampler, PadDealsWithDocumentsThatAreTooLong) {
  const TempDir dir;
  const Corpus corpus = documents(dir, {6, 3, 9, 4, 9});
  const auto sampler = [&](Overlong overlong) { return TrainingSampler(corpus, 3, Order::kSequential, 1, overlong); };
  expect_error<RequestError>([&] { sampler(Overlong::kError); }, {"3 of 5 documents", "the longest with 9 tokens", "document-102",
                                                                  "sequence_length + 1 = 4", "sluice.data.overlong"});
  const TrainingSampler truncated = sampler(Overlong::kTruncate);
  EXPECT_EQ(truncated.samples_per_epoch(), 5);
  EXPECT_EQ(truncated.pad_counts().truncated, 3);
  Batch batch(1, 3);
  EXPECT_EQ(truncated.fill(corpus, 2, 0, {1, 1, 0}, batch.rows()), 3);
  EXPECT_THAT(batch.input(0), ElementsAre(30, 31, 32));
  EXPECT_THAT(batch.target(0), ElementsAre(31, 32, 33));
  const TrainingSampler skipping = sampler(Overlong::kSkip);
  EXPECT_EQ(skipping.samples_per_epoch(), 2);
  EXPECT_EQ(skipping.pad_counts().skipped, 3);
  EXPECT_EQ(skipping.range(corpus, 0).begin, 6);
  EXPECT_EQ(skipping.range(corpus, 1).begin, 18);
  EXPECT_EQ(skipping.range(corpus, 1).count, 3);
  expect_error<RequestError>([&] { TrainingSampler(corpus, 1, Order::kSequential, 1, Overlong::kSkip); }, {"5 documents", "none of which"});
  const Corpus tokens({dir.write("a.bin", testing::llmc_bytes({1, 2, 3}))}, 257);
  expect_error<RequestError>([&] { TrainingSampler(tokens, 3, Order::kSequential, 1, Overlong::kSkip); }, {"a.bin", "packing"});
}

TEST(TrainingSampler, PadFindsTheDocumentsBetweenThoseLeftOut) {
  const TempDir dir;
  std::vector<int> lengths;
  std::vector<std::int64_t> expected;  // first tokens of the documents that are samples
  std::int64_t at = 0;
  for (int d = 0; d < 24; ++d) {
    lengths.push_back(d % 5 == 0 || d % 7 == 3 || d > 20 ? 6 : 2 + d % 3);
    if (lengths.back() <= 4) expected.push_back(at);
    at += lengths.back();
  }
  const Corpus corpus = documents(dir, lengths);
  const TrainingSampler sampler(corpus, 3, Order::kSequential, 1, Overlong::kSkip);
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < sampler.samples_per_epoch(); ++i) begins.push_back(sampler.range(corpus, i).begin);
  EXPECT_EQ(begins, expected);
}

TEST(EvaluationSampler, PadPredictsEveryTokenButTheFirstOfEachDocument) {
  const TempDir dir;
  const Corpus corpus = documents(dir, {6, 3, 9, 4});
  const EvaluationSampler sampler(corpus, 4, Packing::kPad);
  EXPECT_EQ(sampler.predictions(), 5 + 2 + 8 + 3);
  EXPECT_EQ(sampler.rows(), 2 + 1 + 2 + 1);
  std::multiset<std::int32_t> predicted;
  std::int64_t valid = 0;
  const RowLayout layout{2, 2, 0};
  for (std::int64_t b = 0; b < sampler.batches(layout); ++b) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      Batch batch(2, 4);
      valid += sampler.fill(corpus, b, {2, 2, rank}, batch.rows());
      for (std::size_t i = 0; i < batch.targets.size(); ++i) {
        if (batch.targets[i] == ops::kIgnoredTarget) continue;
        predicted.insert(batch.targets[i]);
        if (batch.targets[i] != 256) {
          EXPECT_EQ(batch.targets[i], batch.inputs[i] + 1);
        }
      }
    }
  }
  EXPECT_EQ(valid, sampler.predictions());
  std::multiset<std::int32_t> expected{256, 256, 256, 256};
  const std::vector<int> lengths{6, 3, 9, 4};
  for (int d = 0; d < 4; ++d) {
    for (int i = 1; i + 1 < lengths[static_cast<std::size_t>(d)]; ++i) expected.insert(10 * (d + 1) + i);
  }
  EXPECT_EQ(predicted, expected);
}

/// Tokenised documents of these ids and, where given, marks of what is learned.
Corpus stored(const TempDir& dir, const std::vector<EncodedDocument>& documents) {
  TokenStoreWriter writer(dir / "s", 300);
  for (EncodedDocument document : documents) {
    if (document.learned.empty()) document.learned.assign(document.ids.size(), 1);
    writer.add(document);
  }
  writer.finish({});
  return Corpus(find_files({dir.write("a.jsonl", "{}")}), std::make_shared<TokenStore>(dir / "s", true), "bpe");
}

TEST(Samplers, DocumentsApartRestartAndTheirFirstTokensHaveNoLoss) {
  const TempDir dir;
  const Corpus corpus =
      stored(dir, {{{10, 11, 256}, {}}, {{20, 21, 22, 23, 256}, {}}, {{256}, {}}, {{40, 256}, {}}, {{50, 51, 52, 256}, {}}});
  const TrainingSampler sampler(corpus.tokens(), 4, Order::kSequential, 1);
  ASSERT_EQ(sampler.samples_per_epoch(), 3);
  Batch batch(3, 4);
  EXPECT_EQ(sampler.fill(corpus, 0, 0, {3, 1, 0}, batch.rows_apart()), 3 + 3 + 2);
  EXPECT_THAT(batch.input(0), ElementsAre(10, 11, 256, 20));
  EXPECT_THAT(batch.target(0), ElementsAre(11, 256, -1, 21));
  EXPECT_THAT(batch.start(0), ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(batch.input(1), ElementsAre(21, 22, 23, 256)) << "goes on, as a document that begins here";
  EXPECT_THAT(batch.target(1), ElementsAre(22, 23, 256, -1)) << "the target begins a document of one token";
  EXPECT_THAT(batch.start(1), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(batch.input(2), ElementsAre(256, 40, 256, 50));
  EXPECT_THAT(batch.target(2), ElementsAre(-1, 256, -1, 51));
  EXPECT_THAT(batch.start(2), ElementsAre(0, 1, 1, 3));
  EXPECT_EQ(sampler.fill(corpus, 0, 0, {3, 1, 0}, batch.rows()), 12) << "not where nobody asks for it";

  const EvaluationSampler evaluation(corpus, 4, Packing::kStream);
  Batch rows(5, 4);
  EXPECT_EQ(evaluation.fill(corpus, 0, {5, 1, 0}, rows.rows_apart()), corpus.tokens() - corpus.documents());
  EXPECT_THAT(rows.target(3), ElementsAre(52, 256, -1, -1));
  EXPECT_THAT(rows.start(3), ElementsAre(0, 0, 2, 2)) << "what doesn't fill the row is a document of its own";
  EXPECT_THAT(rows.start(4), ElementsAre(0, 0, 0, 0));

  // Any layout says the same, and so does a shuffled order of the same sample.
  const TrainingSampler shuffled(corpus.tokens(), 4, Order::kShuffled, 5);
  Batch one(1, 4);
  for (std::int64_t number = 0; number < 3; ++number) {
    shuffled.fill(corpus, number, 0, {1, 1, 0}, one.rows_apart());
    EXPECT_EQ(one.start(0), batch.start(shuffled.sample_at(number)));
  }
}

TEST(Samplers, DocumentsApartKeepTheMaskOfWhatIsLearned) {
  const TempDir dir;
  const Corpus corpus = stored(dir, {{{1, 2, 3}, {0, 0, 1}}, {{4, 5}, {1, 1}}, {{6, 7, 8}, {0, 0, 1}}});
  Batch batch(1, 7);
  EXPECT_EQ(TrainingSampler(corpus.tokens(), 7, Order::kSequential, 1).fill(corpus, 0, 0, {1, 1, 0}, batch.rows_apart()), 3);
  EXPECT_THAT(batch.target(0), ElementsAre(-1, 3, -1, 5, -1, -1, 8)) << "4 is learned, but begins a document";
  EXPECT_THAT(batch.start(0), ElementsAre(0, 0, 0, 3, 3, 5, 5));
}

TEST(Samplers, TargetsThatAreOnlyReadHaveNoLoss) {
  const TempDir dir;
  const Corpus corpus = stored(dir, {{{1, 2, 3, 4}, {0, 0, 1, 1}}, {{5, 6, 7}, {0, 1, 0}}, {{8, 9}, {0, 0}}});
  Batch batch(2, 4);
  EXPECT_EQ(TrainingSampler(corpus.tokens(), 4, Order::kSequential, 1).fill(corpus, 0, 0, {2, 1, 0}, batch.rows()), 3);
  EXPECT_THAT(batch.input(0), ElementsAre(1, 2, 3, 4)) << "what is only read is read all the same";
  EXPECT_THAT(batch.target(0), ElementsAre(-1, 3, 4, -1));
  EXPECT_THAT(batch.target(1), ElementsAre(6, -1, -1, -1));
  const TrainingSampler rows(corpus, 4, Order::kSequential, 1, Overlong::kError);
  EXPECT_EQ(rows.fill(corpus, 1, 0, {2, 1, 0}, batch.rows()), 1);
  EXPECT_THAT(batch.target(0), ElementsAre(6, -1, -1, -1));
  EXPECT_THAT(batch.target(1), ElementsAre(-1, -1, -1, -1));
  EXPECT_EQ(EvaluationSampler(corpus, 4, Packing::kPad).fill(corpus, 0, {3, 1, 0}, Batch(3, 4).rows()), 3);
}

}  // namespace
}  // namespace sluice::data
