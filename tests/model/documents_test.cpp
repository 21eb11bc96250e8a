// Rows that hold several documents: each one is what it would be in a row of its own, through the whole model.

#include <gtest/gtest.h>

#include <cmath>

#include "model/random_model.hpp"
#include "ops/cross_entropy.hpp"
#include "support/op_contexts.hpp"

namespace sluice::model {
namespace {

using test::Batch;
using test::SegmentDriver;

constexpr std::int64_t kSequence = 11;
/// Documents of three rows, by their lengths; each row's last one goes on to its end.
const std::vector<std::vector<std::int64_t>> kLengths{{4, 1, 6}, {11}, {2, 9}};

/// The rows packed, and each document in a row of its own, the rest of it ignored.
struct Pair {
  Batch packed, apart;
  std::vector<std::int64_t> places;  // of the packed tokens in the others
};

Pair make_pair(std::int64_t vocab) {
  Pair pair{.packed = test::random_batch(3, kSequence, vocab, 8), .apart = {}, .places = {}};
  Batch &packed = pair.packed, &apart = pair.apart;
  std::int64_t at = 0;
  for (std::size_t row = 0; row < kLengths.size(); ++row) {
    std::int64_t start = 0;
    for (const std::int64_t length : kLengths[row]) {
      const std::int64_t begin = apart.shape.rows++ * kSequence;
      apart.inputs.resize(static_cast<std::size_t>(begin + kSequence), 0);
      apart.targets.resize(static_cast<std::size_t>(begin + kSequence), ops::kIgnoredTarget);
      apart.sample_ids.push_back(static_cast<std::int64_t>(apart.sample_ids.size()));
      // A document's first token is predicted from nothing.
      packed.targets[static_cast<std::size_t>(at + length - 1)] = ops::kIgnoredTarget;
      for (std::int64_t t = 0; t < length; ++t, ++at) {
        packed.document_starts.push_back(static_cast<std::int32_t>(start));
        pair.places.push_back(begin + t);
        apart.inputs[static_cast<std::size_t>(begin + t)] = packed.inputs[static_cast<std::size_t>(at)];
        apart.targets[static_cast<std::size_t>(begin + t)] = packed.targets[static_cast<std::size_t>(at)];
      }
      start += length;
    }
  }
  apart.shape.sequence = kSequence;
  return pair;
}

using Case = std::tuple<test::NamedContext, std::string>;  // and a family
class DocumentsTest : public ::testing::TestWithParam<Case> {
 protected:
  static spec::ModelSpec spec_of(double dropout) {
    spec::ModelSpec spec = test::small_spec_of(std::get<1>(GetParam()), dropout);
    if (spec.family == "mistral") spec.sliding_window = 4;
    return spec;
  }
  static const ops::Context& context() { return std::get<0>(GetParam()).context; }
};

TEST_P(DocumentsTest, AreRowsOfTheirOwn) {
  const spec::ModelSpec spec = spec_of(0);
  SegmentDriver packed(spec, context()), apart(spec, context());
  test::randomise_params(packed, 5);
  test::randomise_params(apart, 5);
  const Pair pair = make_pair(spec.vocab);
  const StepView step{.loss_scale = 1.0f};
  const double loss = packed.train(pair.packed, step), expected = apart.train(pair.apart, step);
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
  for (std::size_t s = 0; s < packed.boundaries.size(); ++s) {
    for (std::size_t i = 0; i < pair.places.size(); ++i) {
      for (std::int64_t c = 0; c < spec.hidden; ++c) {
        const std::int64_t at = static_cast<std::int64_t>(i) * spec.hidden + c, place = pair.places[i] * spec.hidden + c;
        ASSERT_NEAR(packed.boundaries[s].f32()[at], apart.boundaries[s].f32()[place], 1e-5) << "segment " << s << " token " << i;
      }
    }
  }
  double global = 0;
  for (const auto& grad : apart.grads) {
    for (std::int64_t i = 0; i < grad.float_count(); ++i) global = std::hypot(global, grad.f32()[i]);
  }
  for (std::size_t p = 0; p < packed.grads.size(); ++p) {
    double size = 0, error = 0;
    for (std::int64_t i = 0; i < packed.grads[p].float_count(); ++i) {
      size = std::hypot(size, apart.grads[p].f32()[i]);
      error = std::hypot(error, packed.grads[p].f32()[i] - apart.grads[p].f32()[i]);
    }
    EXPECT_LE(error, 1e-5 * std::max(size, 1e-3 * global)) << packed.model().params[p].name;
  }
  // It would not go unnoticed if documents ran into each other.
  Batch joined = pair.packed;
  joined.document_starts.clear();
  EXPECT_GT(std::abs(packed.evaluate(joined, step) - expected), 1e-3 * expected);
}

TEST_P(DocumentsTest, RecomputingGivesTheSameBits) {
  const spec::ModelSpec spec = spec_of(0.25);
  SegmentDriver kept(spec, context()), recomputed(spec, context());
  test::randomise_params(kept, 6);
  test::randomise_params(recomputed, 6);
  const Pair pair = make_pair(spec.vocab);
  const StepView step{.seed = 7, .step = 2, .training = true, .loss_scale = 1.0f};
  EXPECT_EQ(kept.train(pair.packed, step), recomputed.train(pair.packed, step, true));
  for (std::size_t p = 0; p < kept.grads.size(); ++p)
    EXPECT_EQ(std::memcmp(kept.grads[p].data(), recomputed.grads[p].data(), kept.grads[p].size()), 0) << kept.model().params[p].name;
}

INSTANTIATE_TEST_SUITE_P(Backends, DocumentsTest,
                         ::testing::Combine(test::single_thread_contexts(),
                                            ::testing::Values("gpt2", "opt", "llama", "mistral", "qwen2", "qwen3")),
                         [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });

}  // namespace
}  // namespace sluice::model
