#include "ops/attention.hpp"

#include <cmath>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

const std::vector<std::int64_t> kSamples = {3, 0x7FFF'0000'0001, 12, 99};
const DropoutSite kNoDropout{};
const DropoutSite kDropout{0.2f, {77u, 88u}};

std::int64_t elements(const AttentionShape& s) {
  return s.rows * s.tokens * s.heads * s.head_dim;
}

std::int64_t qkv_elements(const AttentionShape& s) {
  return s.rows * s.tokens * s.width();
}

std::string describe(const AttentionShape& s) {
  return std::to_string(s.rows) + " rows, " + std::to_string(s.tokens) + " tokens, " + std::to_string(s.heads) + " heads of " +
         std::to_string(s.head_dim) + " on " + std::to_string(s.kv_heads) + ", window " + std::to_string(s.window);
}

struct Result {
  Values out, lse, dqkv;
};

Result run(const Context& ctx, const AttentionShape& s, const Values& qkv, const Values& dout, const DropoutSite& site,
           std::int64_t first_position = 0, const std::int64_t* samples = kSamples.data(), std::size_t workspace_shift = 0,
           DocumentStarts starts = nullptr) {
  Result r{Values(static_cast<std::size_t>(elements(s))), Values(static_cast<std::size_t>(s.rows * s.heads * s.tokens)),
           Values(qkv.size(), 5.0f)};
  std::vector<float> workspace(static_cast<std::size_t>(attention_workspace_bytes(s, ctx.threads)) / sizeof(float) + workspace_shift,
                               std::nanf(""));
  const RowPositions positions{samples, s.rows, s.tokens, first_position, starts};
  const float* const v = qkv.data() + (s.heads + s.kv_heads) * s.head_dim;
  attention_forward(ctx, s, qkv.data(), v, site, positions, r.out.data(), r.lse.data(), workspace.data() + workspace_shift);
  attention_backward(ctx, s, qkv.data(), v, r.out.data(), r.lse.data(), dout.data(), site, positions, r.dqkv.data(),
                     workspace.data() + workspace_shift);
  return r;
}

const std::vector<AttentionShape>& shapes() {
  static const std::vector<AttentionShape> kShapes = {{1, 1, 1, 1},     {2, 5, 3, 4},       {1, 16, 2, 16},  {1, 63, 1, 8},
                                                      {1, 64, 2, 64},   {2, 65, 2, 7},      {1, 128, 1, 32}, {1, 130, 3, 64},
                                                      {1, 200, 1, 33},  {1, 257, 1, 80},    {3, 31, 2, 17},  {1, 70, 2, 128},
                                                      {2, 65, 6, 7, 3}, {1, 130, 4, 16, 1}, {2, 20, 9, 4, 3}};
  return kShapes;
}

TEST(Attention, UniformScoresAverageTheValues) {
  const AttentionShape s{1, 100, 1, 3};
  Values qkv(static_cast<std::size_t>(3 * elements(s)));
  for (std::size_t t = 0; t < 100; ++t) {
    for (std::size_t i = 0; i < 3; ++i) qkv[t * 9 + 6 + i] = static_cast<float>(t * (i + 1));
  }
  for (const Context& ctx : fast_contexts()) {
    const Result r = run(ctx, s, qkv, Values(300), kNoDropout);
    for (std::size_t t = 0; t < 100; ++t) {
      EXPECT_NEAR(r.lse[t], std::log(static_cast<double>(t + 1)), 1e-6);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(r.out[t * 3 + i], 0.5 * static_cast<double>(t * (i + 1)), 1e-4);
    }
  }
}

TEST(Attention, FastBodiesAgreeWithTheReference) {
  for (const AttentionShape& s : shapes()) {
    const Values qkv = normal_values(qkv_elements(s), 1), dout = normal_values(elements(s), 2);
    for (const DropoutSite& site : {kNoDropout, kDropout}) {
      const std::int64_t first_position = site.rate > 0 ? s.tokens % 4 : 0;
      const Result expected = run(reference_context(), s, qkv, dout, site, first_position);
      for (const Context& ctx : fast_contexts()) {
        const Result r = run(ctx, s, qkv, dout, site, first_position);
        ASSERT_TRUE(all_near(r.out, expected.out, 2e-6, 2e-6)) << describe(s) << ' ' << text_of(ctx);
        ASSERT_TRUE(all_near(r.lse, expected.lse, 1e-6, 1e-6)) << describe(s) << ' ' << text_of(ctx);
        ASSERT_TRUE(all_near(r.dqkv, expected.dqkv, 1e-5, 1e-5)) << describe(s) << ' ' << text_of(ctx) << " dropout " << site.rate;
      }
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const AttentionShape s{1, 150, 1, 16};
  const Values qkv = normal_values(3 * elements(s), 3, 20.0f), dout = normal_values(elements(s), 4);
  const Result expected = run(reference_context(), s, qkv, dout, kNoDropout);
  for (const Context& ctx : fast_contexts()) {
    const Result r = run(ctx, s, qkv, dout, kNoDropout);
    EXPECT_TRUE(all_near(r.out, expected.out, 0.02, 1e-3)) << text_of(ctx);
    EXPECT_TRUE(all_near(r.lse, expected.lse, 1e-3, 1e-6)) << text_of(ctx);
    EXPECT_TRUE(all_near(r.dqkv, expected.dqkv, 0.3, 1e-2)) << text_of(ctx);
  }
}

TEST(Attention, GradientsAreCentralDifferences) {
  for (const AttentionShape& s : {AttentionShape{1, 7, 2, 3}, AttentionShape{1, 5, 6, 2, 3}}) {
    const Values qkv = normal_values(qkv_elements(s), 5), dout = normal_values(elements(s), 6);
    for (const DropoutSite& site : {kNoDropout, kDropout}) {
      const Result r = run(reference_context(), s, qkv, dout, site);
      for (std::size_t i = 0; i < qkv.size(); ++i) {
        Values up = qkv, down = qkv;
        up[i] += 1e-2f;
        down[i] -= 1e-2f;
        const double slope = (weighted_sum(dout, run(reference_context(), s, up, dout, site).out) -
                              weighted_sum(dout, run(reference_context(), s, down, dout, site).out)) /
                             (static_cast<double>(up[i]) - down[i]);
        EXPECT_NEAR(r.dqkv[i], slope, 3e-3) << i;
      }
    }
  }
}

// Heads that share keys and values are heads with equal keys and values; the shared gradient is the sum of theirs.
TEST(Attention, GroupsAreHeadsWithEqualKeysAndValues) {
  const AttentionShape grouped{2, 70, 6, 10, 2}, whole{2, 70, 6, 10};
  const Values qkv = normal_values(qkv_elements(grouped), 13), dout = normal_values(elements(grouped), 14);
  Values repeated(static_cast<std::size_t>(qkv_elements(whole)));
  const auto offset = [](const AttentionShape& s, std::size_t token, std::size_t part, std::size_t head) {
    const std::size_t vector =
        part == 0 ? head : static_cast<std::size_t>(s.heads + (static_cast<std::int64_t>(part) - 1) * s.kv_heads) + head;
    return token * static_cast<std::size_t>(s.width()) + vector * 10;
  };
  for (std::size_t token = 0; token < 140; ++token) {
    for (std::size_t part = 0; part < 3; ++part) {
      for (std::size_t head = 0; head < 6; ++head) {
        std::copy_n(qkv.begin() + static_cast<std::ptrdiff_t>(offset(grouped, token, part, part == 0 ? head : head / 3)), 10,
                    repeated.begin() + static_cast<std::ptrdiff_t>(offset(whole, token, part, head)));
      }
    }
  }
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    for (const DropoutSite& site : {kNoDropout, kDropout}) {
      const Result r = run(ctx, grouped, qkv, dout, site), expected = run(ctx, whole, repeated, dout, site);
      EXPECT_TRUE(same_bits(r.out, expected.out)) << text_of(ctx);
      EXPECT_TRUE(same_bits(r.lse, expected.lse));
      Values sums(r.dqkv.size());
      for (std::size_t token = 0; token < 140; ++token) {
        for (std::size_t part = 0; part < 3; ++part) {
          for (std::size_t head = 0; head < 6; ++head) {
            for (std::size_t i = 0; i < 10; ++i)
              sums[offset(grouped, token, part, part == 0 ? head : head / 3) + i] += expected.dqkv[offset(whole, token, part, head) + i];
          }
        }
      }
      EXPECT_TRUE(all_near(r.dqkv, sums, 1e-5, 1e-5)) << text_of(ctx);
    }
  }
}

TEST(Attention, TokensSeeOnlyTheirPast) {
  const AttentionShape s{1, 100, 1, 16};
  Values qkv = normal_values(3 * elements(s), 7);
  const Values dout = normal_values(elements(s), 8);
  for (const Context& ctx : fast_contexts()) {
    const Result before = run(ctx, s, qkv, dout, kNoDropout);
    Values changed = qkv;
    for (std::size_t i = 60 * 48; i < changed.size(); ++i) changed[i] = 100.0f;
    const Result after = run(ctx, s, changed, dout, kNoDropout);
    EXPECT_TRUE(
        same_bits(Values(after.out.begin(), after.out.begin() + 60 * 16), Values(before.out.begin(), before.out.begin() + 60 * 16)));
    EXPECT_FALSE(same_bits(after.out, before.out));
  }
}

TEST(Attention, BitsDependNeitherOnThreadsNorCallsNorAddresses) {
  for (const AttentionShape& s : {AttentionShape{2, 90, 3, 40}, AttentionShape{2, 90, 6, 12, 3}}) {
    const Values qkv = normal_values(qkv_elements(s), 9), dout = normal_values(elements(s), 10);
    for (const device::Isa isa : fast_isas()) {
      const Result one = run({Backend::kCpu, isa, 1}, s, qkv, dout, kDropout);
      for (const int threads : {1, 2, 3, 8}) {
        const Result r = run({Backend::kCpu, isa, threads}, s, qkv, dout, kDropout, 0, kSamples.data(), static_cast<std::size_t>(threads));
        EXPECT_TRUE(same_bits(r.out, one.out));
        EXPECT_TRUE(same_bits(r.lse, one.lse));
        EXPECT_TRUE(same_bits(r.dqkv, one.dqkv));
      }
    }
  }
}

TEST(Attention, ARowAloneHasTheSameMask) {
  const AttentionShape s{3, 50, 2, 8}, alone{1, 50, 2, 8};
  const Values qkv = normal_values(3 * elements(s), 11), dout = normal_values(elements(s), 12);
  for (const Context& ctx : fast_contexts()) {
    const Result all = run(ctx, s, qkv, dout, kDropout);
    for (std::int64_t row = 0; row < 3; ++row) {
      const std::int64_t n = elements(alone);
      const Result r = run(ctx, alone, Values(qkv.begin() + 3 * row * n, qkv.begin() + 3 * (row + 1) * n),
                           Values(dout.begin() + row * n, dout.begin() + (row + 1) * n), kDropout, 0, kSamples.data() + row);
      EXPECT_TRUE(same_bits(r.out, Values(all.out.begin() + row * n, all.out.begin() + (row + 1) * n)));
      EXPECT_TRUE(same_bits(r.dqkv, Values(all.dqkv.begin() + 3 * row * n, all.dqkv.begin() + 3 * (row + 1) * n)));
    }
  }
}

/// Starts of documents of these lengths, one row after another; the last one of a row goes on to its end.
std::vector<std::int32_t> starts_of(const AttentionShape& s, const std::vector<std::vector<std::int64_t>>& lengths) {
  std::vector<std::int32_t> starts;
  for (const std::vector<std::int64_t>& row : lengths) {
    std::int64_t start = 0;
    std::size_t next = 0;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      if (next < row.size() && t == start + row[next]) {
        start = t;
        ++next;
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return starts;
}

struct MaskCase {
  AttentionShape shape;
  std::vector<std::vector<std::int64_t>> lengths;  // empty: no documents
};

/// Borders within tiles and panels, at their edges, one after another, and tiles that a query's document begins after.
std::vector<MaskCase> mask_cases() {
  return {
      {{1, 1, 1, 1}, {{1}}},
      {{2, 7, 3, 4}, {{1, 1, 3}, {5}}},
      {{1, 64, 1, 16}, {{16, 16, 32}}},
      {{1, 70, 2, 33}, {{63, 2}}},
      {{2, 130, 2, 8}, {{64, 64}, {65, 1, 1, 20}}},
      {{1, 200, 4, 16, 2}, {{10, 120, 5, 30}}},
      {{1, 330, 1, 64}, {{100, 29, 150, 3}}},
      {{1, 200, 2, 16, 2, 1}, {}},
      {{2, 90, 2, 7, 2, 13}, {}},
      {{1, 257, 4, 16, 1, 64}, {}},
      {{1, 300, 1, 32, 1, 100}, {}},
      {{1, 40, 1, 8, 1, 40}, {}},
      {{2, 200, 2, 20, 1, 50}, {{30, 120, 7}, {199}}},
  };
}

TEST(Attention, FastBodiesAgreeWithTheReferenceOnDocumentsAndWindows) {
  for (const MaskCase& c : mask_cases()) {
    const AttentionShape& s = c.shape;
    const Values qkv = normal_values(qkv_elements(s), 21), dout = normal_values(elements(s), 22);
    const std::vector<std::int32_t> starts = starts_of(s, c.lengths);
    const DocumentStarts documents = c.lengths.empty() ? nullptr : starts.data();
    for (const DropoutSite& site : {kNoDropout, kDropout}) {
      const std::int64_t first_position = site.rate > 0 ? s.tokens % 4 : 0;
      const Result expected = run(reference_context(), s, qkv, dout, site, first_position, kSamples.data(), 0, documents);
      for (const Context& ctx : fast_contexts()) {
        const Result r = run(ctx, s, qkv, dout, site, first_position, kSamples.data(), 0, documents);
        ASSERT_TRUE(all_near(r.out, expected.out, 2e-6, 2e-6)) << describe(s) << ' ' << text_of(ctx);
        ASSERT_TRUE(all_near(r.lse, expected.lse, 1e-6, 1e-6)) << describe(s) << ' ' << text_of(ctx);
        ASSERT_TRUE(all_near(r.dqkv, expected.dqkv, 1e-5, 1e-5)) << describe(s) << ' ' << text_of(ctx) << " dropout " << site.rate;
      }
    }
  }
}

TEST(Attention, DocumentsAreRowsOfTheirOwn) {
  const AttentionShape packed{1, 150, 4, 16, 2};
  const std::vector<std::int64_t> lengths{40, 64, 1, 45};
  const std::vector<std::int32_t> starts = starts_of(packed, {lengths});
  const Values qkv = normal_values(qkv_elements(packed), 23), dout = normal_values(elements(packed), 24);
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  const auto part = [](const Values& all, std::int64_t begin, std::int64_t tokens, std::int64_t width) {
    return Values(all.begin() + begin * width, all.begin() + (begin + tokens) * width);
  };
  for (const Context& ctx : contexts) {
    const Result whole = run(ctx, packed, qkv, dout, kNoDropout, 0, kSamples.data(), 0, starts.data());
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      const AttentionShape alone{1, length, 4, 16, 2};
      const Result r = run(ctx, alone, part(qkv, begin, length, packed.width()), part(dout, begin, length, 64), kNoDropout);
      EXPECT_TRUE(all_near(part(whole.out, begin, length, 64), r.out, 2e-6, 2e-6)) << text_of(ctx) << " from " << begin;
      EXPECT_TRUE(all_near(part(whole.dqkv, begin, length, packed.width()), r.dqkv, 1e-5, 1e-5)) << text_of(ctx) << " from " << begin;
      begin += length;
    }
  }
}

TEST(Attention, NothingOfAnotherDocumentOrOutsideTheWindowComesThrough) {
  const AttentionShape s{1, 180, 1, 16};
  const std::vector<std::int32_t> starts = starts_of(s, {{90, 90}});
  AttentionShape sliding = s;
  sliding.window = 20;
  Values qkv = normal_values(qkv_elements(s), 25);
  Values changed = qkv;
  for (std::size_t i = 0; i < 90 * 48; ++i) changed[i] = 1000.0f;
  const Values dout = normal_values(elements(s), 26);
  for (const Context& ctx : fast_contexts()) {
    const Result before = run(ctx, s, qkv, dout, kNoDropout, 0, kSamples.data(), 0, starts.data());
    const Result after = run(ctx, s, changed, dout, kNoDropout, 0, kSamples.data(), 0, starts.data());
    EXPECT_TRUE(same_bits(Values(after.out.begin() + 90 * 16, after.out.end()), Values(before.out.begin() + 90 * 16, before.out.end())));
    EXPECT_TRUE(
        same_bits(Values(after.dqkv.begin() + 90 * 48, after.dqkv.end()), Values(before.dqkv.begin() + 90 * 48, before.dqkv.end())));
    const Result slid = run(ctx, sliding, qkv, dout, kNoDropout), slid_after = run(ctx, sliding, changed, dout, kNoDropout);
    const std::ptrdiff_t clean = 90 + 19;  // the first token whose window begins at 90
    EXPECT_TRUE(same_bits(Values(slid_after.out.begin() + clean * 16, slid_after.out.end()),
                          Values(slid.out.begin() + clean * 16, slid.out.end())));
    EXPECT_FALSE(same_bits(Values(slid_after.out.begin() + (clean - 1) * 16, slid_after.out.end()),
                           Values(slid.out.begin() + (clean - 1) * 16, slid.out.end())));
  }
}

TEST(Attention, OneDocumentOrAWideWindowIsPlainCausalAttention) {
  for (const AttentionShape& s : {AttentionShape{2, 130, 2, 16}, AttentionShape{1, 200, 6, 12, 3}}) {
    const Values qkv = normal_values(qkv_elements(s), 27), dout = normal_values(elements(s), 28);
    const std::vector<std::int32_t> starts(static_cast<std::size_t>(s.rows * s.tokens), 0);
    AttentionShape wide = s;
    wide.window = s.tokens;
    for (const Context& ctx : fast_contexts()) {
      const Result plain = run(ctx, s, qkv, dout, kDropout);
      for (const Result& r :
           {run(ctx, s, qkv, dout, kDropout, 0, kSamples.data(), 0, starts.data()), run(ctx, wide, qkv, dout, kDropout)}) {
        EXPECT_TRUE(same_bits(r.out, plain.out)) << text_of(ctx);
        EXPECT_TRUE(same_bits(r.lse, plain.lse)) << text_of(ctx);
        EXPECT_TRUE(same_bits(r.dqkv, plain.dqkv)) << text_of(ctx);
      }
    }
  }
}

TEST(Attention, RefusesDocumentsThatCannotBe) {
  const AttentionShape s{1, 4, 1, 2};
  Values qkv(24), out(8), lse(4);
  std::vector<char> workspace(static_cast<std::size_t>(attention_workspace_bytes(s, 1)));
  for (const std::vector<std::int32_t>& starts : {std::vector<std::int32_t>{0, 2, 2, 2}, {0, 1, 0, 0}, {-1, 0, 0, 0}}) {
    const RowPositions positions{nullptr, 1, 4, 0, starts.data()};
    EXPECT_THROW(attention_forward(make_cpu_context(1), s, qkv.data(), qkv.data() + 4, kNoDropout, positions, out.data(), lse.data(),
                                   workspace.data()),
                 LogicError);
  }
}

TEST(Attention, ValuesMayStandApart) {
  const AttentionShape s{2, 70, 4, 12, 2};
  const Values qkv = normal_values(qkv_elements(s), 15), dout = normal_values(elements(s), 16);
  Values qk = qkv, values(qkv.size() + 8, std::nanf(""));  // neither holds what belongs to the other
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    if (i % 96 < 72) continue;
    qk[i] = std::nanf("");
    values[i - 72 + 8] = qkv[i];
  }
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  const RowPositions positions{kSamples.data(), 2, 70, 0};
  for (const Context& ctx : contexts) {
    const Result expected = run(ctx, s, qkv, dout, kDropout);
    Values out(expected.out.size()), lse(expected.lse.size()), dqkv(qkv.size());
    std::vector<float> workspace(static_cast<std::size_t>(attention_workspace_bytes(s, ctx.threads)) / sizeof(float));
    attention_forward(ctx, s, qk.data(), values.data() + 8, kDropout, positions, out.data(), lse.data(), workspace.data());
    attention_backward(ctx, s, qk.data(), values.data() + 8, out.data(), lse.data(), dout.data(), kDropout, positions, dqkv.data(),
                       workspace.data());
    EXPECT_TRUE(same_bits(out, expected.out)) << text_of(ctx);
    EXPECT_TRUE(same_bits(dqkv, expected.dqkv)) << text_of(ctx);
  }
}

TEST(Attention, RefusesBadArguments) {
  const AttentionShape s{1, 4, 1, 2};
  Values qkv(24), out(8), lse(4), dqkv(24);
  const float* const v = qkv.data() + 4;
  std::vector<char> workspace(static_cast<std::size_t>(attention_workspace_bytes(s, 1)));
  const Context ctx = make_cpu_context(1);
  const RowPositions positions{kSamples.data(), 1, 4, 0}, other{kSamples.data(), 1, 5, 0};
  EXPECT_THROW(attention_forward(ctx, {1, 0, 1, 2}, qkv.data(), v, kNoDropout, positions, out.data(), lse.data(), workspace.data()),
               LogicError);
  EXPECT_THROW(attention_forward(ctx, {1, 4, 3, 2, 2}, qkv.data(), v, kNoDropout, positions, out.data(), lse.data(), workspace.data()),
               LogicError);
  EXPECT_THROW(attention_forward(ctx, s, qkv.data(), v, kDropout, other, out.data(), lse.data(), workspace.data()), LogicError);
  EXPECT_THROW(attention_forward(ctx, s, qkv.data(), v, kNoDropout, positions, out.data(), nullptr, workspace.data()), LogicError);
  EXPECT_THROW(
      attention_backward(ctx, s, qkv.data(), v, out.data(), lse.data(), out.data(), kNoDropout, positions, qkv.data(), workspace.data()),
      LogicError);
  // Values of their own, which the gradient overwrites.
  EXPECT_THROW(attention_backward(ctx, s, qkv.data(), dqkv.data() + 20, out.data(), lse.data(), out.data(), kNoDropout, positions,
                                  dqkv.data(), workspace.data()),
               LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
