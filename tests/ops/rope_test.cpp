#include "ops/rope.hpp"

#include <cmath>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

Values frequencies(std::int64_t half, double theta) {
  Values f;
  for (std::int64_t i = 0; i < half; ++i)
    f.push_back(static_cast<float>(1 / std::pow(theta, static_cast<double>(i) / static_cast<double>(half))));
  return f;
}

std::vector<Context> all() {
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  return contexts;
}

TEST(Rope, TurnsHalvesByPositionTimesFrequency) {
  const RopeShape s{.rows = 2, .tokens = 7, .heads = 3, .head_dim = 10, .ld = 41, .first_position = 5};
  const Values f = frequencies(5, 100.0), x = normal_values(2 * 7 * 41, 1);
  for (const Context& ctx : all()) {
    Values y = x;
    rotate(ctx, s, f.data(), false, y.data());
    for (std::size_t n = 0; n < 14; ++n) {
      for (std::size_t h = 0; h < 3; ++h) {
        for (std::size_t i = 0; i < 5; ++i) {
          const double angle = static_cast<double>(5 + n % 7) * f[i];
          const std::size_t at = n * 41 + h * 10 + i;
          EXPECT_NEAR(y[at], x[at] * std::cos(angle) - x[at + 5] * std::sin(angle), 2e-6);
          EXPECT_NEAR(y[at + 5], x[at + 5] * std::cos(angle) + x[at] * std::sin(angle), 2e-6);
        }
      }
      for (std::size_t i = 30; i < 41; ++i) EXPECT_EQ(y[n * 41 + i], x[n * 41 + i]);  // values are not turned
    }
  }
}

TEST(Rope, FastBodiesAgreeWithTheReferenceAtLongPositions) {
  for (const std::int64_t head_dim : {2, 6, 16, 64, 80, 128}) {
    for (const std::int64_t first : {0, 4000, 131000}) {
      const RopeShape s{.rows = 2, .tokens = 40, .heads = 2, .head_dim = head_dim, .ld = 3 * head_dim, .first_position = first};
      const Values f = frequencies(head_dim / 2, 500000.0), x = normal_values(s.rows * s.tokens * s.ld, 2);
      for (const bool backward : {false, true}) {
        Values expected = x;
        rotate(reference_context(), s, f.data(), backward, expected.data());
        for (const Context& ctx : fast_contexts()) {
          Values y = x;
          rotate(ctx, s, f.data(), backward, y.data());
          EXPECT_TRUE(all_near(y, expected, 1e-6, 1e-6)) << text_of(ctx) << " " << head_dim << " from " << first;
        }
      }
    }
  }
}

TEST(Rope, BackwardTurnsBack) {
  const RopeShape s{.rows = 1, .tokens = 100, .heads = 2, .head_dim = 24, .ld = 48};
  const Values f = frequencies(12, 10000.0), x = normal_values(100 * 48, 3);
  for (const Context& ctx : all()) {
    Values y = x;
    rotate(ctx, s, f.data(), false, y.data());
    EXPECT_FALSE(all_near(y, x, 1e-3, 0));
    rotate(ctx, s, f.data(), true, y.data());
    EXPECT_TRUE(all_near(y, x, 2e-6, 2e-6)) << text_of(ctx);
  }
}

TEST(Rope, BitsDependNeitherOnThreadsNorOnWhereARowBegins) {
  const RopeShape s{.rows = 4, .tokens = 300, .heads = 4, .head_dim = 20, .ld = 120};
  const Values f = frequencies(10, 10000.0), x = normal_values(4 * 300 * 120, 4);
  for (const device::Isa isa : fast_isas()) {
    Values one = x;
    rotate({Backend::kCpu, isa, 1}, s, f.data(), false, one.data());
    for (const int threads : {2, 5}) {
      Values y = x;
      rotate({Backend::kCpu, isa, threads}, s, f.data(), false, y.data());
      EXPECT_TRUE(same_bits(y, one));
    }
    Values y = x;  // token by token
    for (std::int64_t n = 0; n < 1200; ++n) {
      rotate({Backend::kCpu, isa, 1}, {1, 1, 4, 20, 120, n % 300}, f.data(), false, y.data() + n * 120);
    }
    EXPECT_TRUE(same_bits(y, one));
  }
}

TEST(Rope, PositionsRestartAtDocuments) {
  const RopeShape s{.rows = 2, .tokens = 9, .heads = 2, .head_dim = 6, .ld = 14};
  const std::vector<std::int32_t> starts{0, 0, 0, 3, 3, 5, 6, 6, 6, 0, 1, 1, 1, 1, 1, 1, 1, 8};
  const Values f = frequencies(3, 100.0), x = normal_values(18 * 14, 5);
  for (const Context& ctx : all()) {
    for (const bool backward : {false, true}) {
      Values y = x, expected = x;
      RopeShape restarting = s;
      restarting.document_starts = starts.data();
      rotate(ctx, restarting, f.data(), backward, y.data());
      for (std::int64_t n = 0; n < 18; ++n)
        rotate(ctx, {1, 1, 2, 6, 14, n % 9 - starts[static_cast<std::size_t>(n)]}, f.data(), backward, expected.data() + n * 14);
      EXPECT_TRUE(same_bits(y, expected)) << text_of(ctx);
    }
  }
}

TEST(Rope, RefusesBadArguments) {
  Values x(64), f = {1.0f, 0.5f};
  const Context ctx = make_cpu_context(1);
  EXPECT_NO_THROW(rotate(ctx, {1, 4, 2, 4, 8}, f.data(), false, x.data()));
  EXPECT_THROW(rotate(ctx, {1, 4, 2, 3, 8}, f.data(), false, x.data()), LogicError);
  EXPECT_THROW(rotate(ctx, {1, 4, 2, 4, 7}, f.data(), false, x.data()), LogicError);
  EXPECT_THROW(rotate(ctx, {1, 4, 2, 4, 8, -1}, f.data(), false, x.data()), LogicError);
  EXPECT_THROW(rotate(ctx, {1, 4, 2, 4, 8, 1 << 20}, f.data(), false, x.data()), LogicError);
  EXPECT_THROW(rotate(ctx, {1, 4, 2, 4, 8}, nullptr, false, x.data()), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
