#include "ops/embedding.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "ops/convert.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

std::vector<std::int32_t> make_ids(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * i % vocab);  // with repeats
  return ids;
}

TEST(Embedding, ForwardAddsTokenAndPosition) {
  const std::int64_t rows = 3, tokens = 5, vocab = 11, first = 2;
  for (const std::int64_t c : {1, 16, 50, 768}) {
    const auto ids = make_ids(rows * tokens, vocab);
    const Values table = normal_values(vocab * c, 1), positions = normal_values(10 * c, 2);
    std::vector<Context> contexts = fast_contexts();
    contexts.push_back(reference_context());
    for (const Context& ctx : contexts) {
      Values y(static_cast<std::size_t>(rows * tokens * c));
      embedding_forward(ctx, {ids.data(), rows, tokens, first}, table.data(), vocab, positions.data(), c, y.data());
      for (std::int64_t i = 0; i < rows * tokens; ++i) {
        for (std::int64_t j = 0; j < c; ++j) {
          ASSERT_EQ(y[static_cast<std::size_t>(i * c + j)], table[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)] * c + j)] +
                                                                positions[static_cast<std::size_t>((first + i % tokens) * c + j)]);
        }
      }
    }
  }
}

TEST(Embedding, ForwardWidensAStoredTable) {
  const std::int64_t rows = 3, tokens = 5, vocab = 11, first = 2;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t c : {1, 16, 50, 768}) {
      const auto ids = make_ids(rows * tokens, vocab);
      const Values positions = normal_values(10 * c, 2);
      Values table = normal_values(vocab * c, 1);
      std::vector<std::uint16_t> stored(table.size());
      narrow(reference_context(), table.data(), vocab * c, dtype, stored.data());
      round_to(reference_context(), dtype, table.data(), vocab * c);
      std::vector<Context> contexts = fast_contexts();
      contexts.push_back(reference_context());
      for (const Context& ctx : contexts) {
        for (const float* added : {positions.data(), static_cast<const float*>(nullptr)}) {
          Values y(static_cast<std::size_t>(rows * tokens * c)), expected = y;
          embedding_forward(ctx, {ids.data(), rows, tokens, first}, table.data(), vocab, added, c, expected.data());
          embedding_forward(ctx, {ids.data(), rows, tokens, first}, stored.data(), dtype, vocab, added, c, y.data());
          EXPECT_TRUE(same_bits(y, expected)) << text_of(ctx) << " c " << c;
        }
      }
    }
  }
}

TEST(Embedding, BackwardScattersInOrder) {
  const std::int64_t rows = 4, tokens = 50, vocab = 23, context = 64, first = 3;
  for (const std::int64_t c : {1, 40, 129}) {
    const auto ids = make_ids(rows * tokens, vocab);
    const Values dy = normal_values(rows * tokens * c, 1);
    for (const bool accumulate : {false, true}) {
      const Values start_tokens = normal_values(vocab * c, 2), start_positions = normal_values(context * c, 3);
      Values expected_tokens = accumulate ? start_tokens : Values(start_tokens.size()),
             expected_positions = accumulate ? start_positions : Values(start_positions.size());
      for (std::int64_t i = 0; i < rows * tokens; ++i) {
        for (std::int64_t j = 0; j < c; ++j) {
          expected_tokens[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)] * c + j)] += dy[static_cast<std::size_t>(i * c + j)];
          expected_positions[static_cast<std::size_t>((first + i % tokens) * c + j)] += dy[static_cast<std::size_t>(i * c + j)];
        }
      }
      std::vector<Context> contexts = fast_contexts();
      contexts.push_back(reference_context());
      for (const Context& ctx : contexts) {
        Values t = start_tokens, p = start_positions;
        embedding_backward(ctx, {ids.data(), rows, tokens, first}, dy.data(), vocab, -1, context, c, t.data(), accumulate, p.data(),
                           accumulate);
        EXPECT_TRUE(same_bits(t, expected_tokens)) << text_of(ctx) << " c " << c;
        EXPECT_TRUE(same_bits(p, expected_positions)) << text_of(ctx) << " c " << c;
      }
    }
  }
}

TEST(Embedding, PositionsRestartAtDocuments) {
  const std::int64_t vocab = 11, c = 21, context = 12, first = 2;
  const std::vector<std::int32_t> starts{0, 0, 2, 2, 2, 5, 0, 1, 2, 2, 2, 2};
  const auto ids = make_ids(12, vocab);
  const Values table = normal_values(vocab * c, 1), positions = normal_values(context * c, 2), dy = normal_values(12 * c, 3);
  std::vector<std::uint16_t> stored(table.size());
  narrow(reference_context(), table.data(), vocab * c, DType::kBF16, stored.data());
  const EmbeddedTokens packed{ids.data(), 2, 6, first, starts.data()};
  Values gradient(positions.size());
  for (std::int64_t i = 0; i < 12; ++i) {
    const std::int64_t position = first + i % 6 - starts[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < c; ++j) gradient[static_cast<std::size_t>(position * c + j)] += dy[static_cast<std::size_t>(i * c + j)];
  }
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    Values y(static_cast<std::size_t>(12 * c)), expected = y, narrow_y = y, narrow_expected = y;
    embedding_forward(ctx, packed, table.data(), vocab, positions.data(), c, y.data());
    embedding_forward(ctx, packed, stored.data(), DType::kBF16, vocab, positions.data(), c, narrow_y.data());
    for (std::int64_t i = 0; i < 12; ++i) {  // token by token
      const EmbeddedTokens one{&ids[static_cast<std::size_t>(i)], 1, 1, first + i % 6 - starts[static_cast<std::size_t>(i)]};
      embedding_forward(ctx, one, table.data(), vocab, positions.data(), c, expected.data() + i * c);
      embedding_forward(ctx, one, stored.data(), DType::kBF16, vocab, positions.data(), c, narrow_expected.data() + i * c);
    }
    EXPECT_TRUE(same_bits(y, expected)) << text_of(ctx);
    EXPECT_TRUE(same_bits(narrow_y, narrow_expected)) << text_of(ctx);
    Values dtokens(table.size()), plain(table.size()), dpositions(positions.size(), 7.0f);
    embedding_backward(ctx, packed, dy.data(), vocab, -1, context, c, dtokens.data(), false, dpositions.data(), false);
    embedding_backward(ctx, {ids.data(), 2, 6, first}, dy.data(), vocab, -1, context, c, plain.data(), false, nullptr, false);
    EXPECT_TRUE(same_bits(dtokens, plain)) << "tokens are where they were";
    EXPECT_TRUE(same_bits(dpositions, gradient)) << text_of(ctx);
  }
}

TEST(Embedding, WithoutPositionsItIsTheTokenTable) {
  const std::int64_t vocab = 11, c = 37;
  const auto ids = make_ids(24, vocab);
  const Values table = normal_values(vocab * c, 1), dy = normal_values(24 * c, 2);
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    Values y(static_cast<std::size_t>(24 * c)), gradient(table.size(), 9.0f), expected(table.size());
    embedding_forward(ctx, {ids.data(), 4, 6}, table.data(), vocab, nullptr, c, y.data());
    embedding_backward(ctx, {ids.data(), 4, 6}, dy.data(), vocab, -1, 0, c, gradient.data(), false, nullptr, false);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t at =
          static_cast<std::size_t>(ids[i / static_cast<std::size_t>(c)]) * static_cast<std::size_t>(c) + i % static_cast<std::size_t>(c);
      ASSERT_EQ(y[i], table[at]);
      expected[at] += dy[i];
    }
    EXPECT_TRUE(same_bits(gradient, expected)) << text_of(ctx);
  }
}

TEST(Embedding, PaddingAddsNothingToItsRow) {
  const std::int64_t vocab = 7, c = 20, context = 6;
  const std::vector<std::int32_t> ids = {3, 2, 3, 5, 2, 6};
  const Values dy = normal_values(6 * c, 1);
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    Values plain(static_cast<std::size_t>(vocab * c)), padded = plain, positions(static_cast<std::size_t>(context * c)), same = positions;
    embedding_backward(ctx, {ids.data(), 1, 6}, dy.data(), vocab, -1, context, c, plain.data(), false, positions.data(), false);
    embedding_backward(ctx, {ids.data(), 1, 6}, dy.data(), vocab, 2, context, c, padded.data(), false, same.data(), false);
    EXPECT_TRUE(same_bits(positions, same));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const bool is_padding = i / 20 == 2;
      ASSERT_EQ(padded[i], is_padding ? 0.0f : plain[i]);
      if (is_padding) {
        ASSERT_NE(plain[i], 0.0f);
      }
    }
  }
}

TEST(Embedding, RefusesIdsOutsideTheVocabulary) {
  Values table(20), y(4);
  for (const std::int32_t bad : {-1, 10}) {
    const std::int32_t ids[2] = {3, bad};
    EXPECT_THROW(embedding_forward(make_cpu_context(1), {ids, 1, 2}, table.data(), 10, table.data(), 2, y.data()), LogicError);
  }
  const std::int32_t ids[2] = {3, 4};
  EXPECT_THROW(embedding_backward(make_cpu_context(1), {ids, 1, 2, 9}, y.data(), 10, -1, 10, 2, table.data(), false, table.data(), false),
               LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
