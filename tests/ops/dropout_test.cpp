#include "ops/dropout.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

const DropoutSite kSite{0.1f, {0x12345678u, 0x9ABCDEF0u}};
const std::vector<std::int64_t> kSamples = {5, 0x1234'89AB'CDEF, 7, 1000000007};

RowPositions positions_of(std::int64_t rows, std::int64_t tokens, std::int64_t first_position = 0) {
  return {kSamples.data(), rows, tokens, first_position};
}

TEST(Dropout, ReferenceFollowsTheDocumentedCounter) {
  const std::int64_t c = 11;
  Values x(static_cast<std::size_t>(2 * 3 * c), 1.0f), y(x.size());
  dropout_add(reference_context(), kSite, positions_of(2, 3, 40), c, x.data(), nullptr, y.data());
  for (std::uint32_t b = 0; b < 2; ++b) {
    for (std::uint32_t t = 0; t < 3; ++t) {
      for (std::uint32_t j = 0; j < c; ++j) {
        const auto sample = static_cast<std::uint64_t>(kSamples[b]);
        const Philox4 words =
            philox({j / 4, 40 + t, static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)}, kSite.key);
        const float expected = uniform_from(words[j % 4]) >= 0.1f ? 1.0f / 0.9f : 0.0f;
        ASSERT_FLOAT_EQ(y[(b * 3 + t) * c + j], expected);
      }
    }
  }
}

TEST(Dropout, FastBodiesHaveTheReferencesBits) {
  for (const std::int64_t c : {1, 4, 7, 16, 31, 32, 33, 64, 127, 129, 300, 768}) {
    for (const float rate : {0.0f, 0.1f, 0.5f, 0.999f}) {
      const DropoutSite site{rate, kSite.key};
      const RowPositions positions = positions_of(4, 9, 3);
      const Values x = normal_values(36 * c, 1), residual = normal_values(36 * c, 2);
      Values expected(x.size()), without(x.size());
      dropout_add(reference_context(), site, positions, c, x.data(), residual.data(), expected.data());
      dropout_add(reference_context(), site, positions, c, x.data(), nullptr, without.data());
      for (const Context& ctx : fast_contexts()) {
        Values y(x.size());
        dropout_add(ctx, site, positions, c, x.data(), residual.data(), y.data());
        EXPECT_TRUE(same_bits(y, expected)) << text_of(ctx) << " c " << c << " rate " << rate;
        dropout_add(ctx, site, positions, c, x.data(), nullptr, y.data());
        EXPECT_TRUE(same_bits(y, without)) << text_of(ctx) << " c " << c << " rate " << rate;
        y = residual;
        dropout_add(ctx, site, positions, c, x.data(), y.data(), y.data());
        EXPECT_TRUE(same_bits(y, expected)) << "in place of the residual";
        y = x;
        dropout_backward(ctx, site, positions, c, y.data(), y.data());
        EXPECT_TRUE(same_bits(y, without)) << "backward has forward's mask";
      }
    }
  }
}

TEST(Dropout, ARowAloneHasTheSameMask) {
  const std::int64_t c = 100, tokens = 6;
  const Values x(static_cast<std::size_t>(4 * tokens * c), 1.0f);
  for (const Context& ctx : fast_contexts()) {
    Values all(x.size());
    dropout_add(ctx, kSite, positions_of(4, tokens), c, x.data(), nullptr, all.data());
    for (std::int64_t b = 0; b < 4; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        Values one(static_cast<std::size_t>(c));
        dropout_add(ctx, kSite, {kSamples.data() + b, 1, 1, t}, c, x.data(), nullptr, one.data());
        const auto at = all.begin() + (b * tokens + t) * c;
        ASSERT_TRUE(same_bits(one, Values(at, at + c)));
      }
    }
  }
}

TEST(Dropout, DropsItsRate) {
  const std::int64_t c = 768, tokens = 128;
  const Values x(static_cast<std::size_t>(4 * tokens * c), 1.0f);
  for (const float rate : {0.05f, 0.1f, 0.5f}) {
    Values y(x.size());
    dropout_add(make_cpu_context(2), {rate, kSite.key}, positions_of(4, tokens), c, x.data(), nullptr, y.data());
    double dropped = 0, sum = 0;
    std::vector<double> per_word(4), per_row(4);
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += y[i];
      if (y[i] != 0.0f) continue;
      dropped += 1;
      per_word[i % 4] += 1;
      per_row[i / static_cast<std::size_t>(tokens * c)] += 1;
    }
    const double n = static_cast<double>(y.size()), deviation = std::sqrt(rate * (1 - rate) / n);
    EXPECT_NEAR(dropped / n, rate, 5 * deviation);
    EXPECT_NEAR(sum / n, 1.0, 5 * deviation / (1 - rate));
    for (const double count : per_word) EXPECT_NEAR(count / (n / 4), rate, 10 * deviation);
    for (const double count : per_row) EXPECT_NEAR(count / (n / 4), rate, 10 * deviation);
  }
}

TEST(Dropout, KeysAndSamplesGiveDifferentMasks) {
  const Values x(256, 1.0f);
  Values a(256), b(256), s(256);
  dropout_add(make_cpu_context(1), {0.5f, {1, 2}}, positions_of(1, 1), 256, x.data(), nullptr, a.data());
  dropout_add(make_cpu_context(1), {0.5f, {1, 3}}, positions_of(1, 1), 256, x.data(), nullptr, b.data());
  const std::int64_t other = 5 + (std::int64_t{1} << 32);
  dropout_add(make_cpu_context(1), {0.5f, {1, 2}}, {&other, 1, 1, 0}, 256, x.data(), nullptr, s.data());
  EXPECT_FALSE(same_bits(a, b));
  EXPECT_FALSE(same_bits(a, s)) << "bits 32-47 of the sample count";
}

TEST(Dropout, RefusesBadArguments) {
  Values x(8);
  EXPECT_THROW(dropout_add(make_cpu_context(1), {1.0f, {}}, positions_of(1, 1), 8, x.data(), nullptr, x.data()), LogicError);
  EXPECT_THROW(dropout_add(make_cpu_context(1), {-0.1f, {}}, positions_of(1, 1), 8, x.data(), nullptr, x.data()), LogicError);
  EXPECT_THROW(dropout_add(make_cpu_context(1), kSite, {nullptr, 1, 1, 0}, 8, x.data(), nullptr, x.data()), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
