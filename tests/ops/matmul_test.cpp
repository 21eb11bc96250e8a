#include "ops/matmul.hpp"

#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "ops/gelu.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

struct Product {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false, gelu = false;
  std::int64_t padding = 0;  // of every leading dimension
};

std::string describe(const Product& p) {
  return std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k) + (p.transpose_a ? " A^T" : "") +
         (p.transpose_b ? " B^T" : "") + (p.accumulate ? " +C" : "") + (p.bias ? " +bias" : "") + (p.gelu ? " gelu" : "");
}

struct Result {
  Values c, gelu;
};

Result run(const Context& ctx, const Product& p) {
  const std::int64_t ld_a = (p.transpose_a ? p.m : p.k) + p.padding, ld_b = (p.transpose_b ? p.k : p.n) + p.padding, ld_c = p.n + p.padding;
  const Values a = normal_values((p.transpose_a ? p.k : p.m) * ld_a, 1), b = normal_values((p.transpose_b ? p.n : p.k) * ld_b, 2),
               bias = normal_values(p.n, 3);
  Result r{normal_values(p.m * ld_c, 4), Values(static_cast<std::size_t>(p.m * ld_c), 9.0f)};
  MatmulArgs args{p.m, p.n, p.k, a.data(), ld_a, p.transpose_a, b.data(), ld_b, p.transpose_b, r.c.data(), ld_c};
  args.accumulate = p.accumulate;
  args.bias = p.bias ? bias.data() : nullptr;
  args.gelu_out = p.gelu ? r.gelu.data() : nullptr;
  matmul(ctx, args);
  return r;
}

TEST(Matmul, ReferenceByHand) {
  const Values a = {1, 2, 3, 4, 5, 6}, b = {1, 0, 2, 1, 3, 1}, bias = {10, 20};
  Values c(4);
  MatmulArgs args{2, 2, 3, a.data(), 3, false, b.data(), 2, false, c.data(), 2};
  args.bias = bias.data();
  matmul(reference_context(), args);
  EXPECT_TRUE(same_bits(c, {24, 25, 42, 31}));
}

TEST(Matmul, FastBodyAgreesWithTheReference) {
  std::vector<Product> products;
  const std::vector<std::array<std::int64_t, 3>> sizes = {{1, 1, 1},   {2, 3, 5},    {17, 33, 9},   {64, 48, 100},
                                                          {1, 77, 64}, {100, 1, 30}, {50, 130, 257}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        products.push_back({m, n, k, ta, tb, false, false, false, 0});
        products.push_back({m, n, k, ta, tb, true, false, false, 5});
        products.push_back({m, n, k, ta, tb, false, true, true, 3});
        products.push_back({m, n, k, ta, tb, true, true, false, 0});
      }
    }
  }
  products.push_back({256, 192, 320, false, false, false, true, true, 0});
  for (const Product& p : products) {
    const Result expected = run(reference_context(), p);
    for (const Context& ctx : fast_contexts()) {
      const Result r = run(ctx, p);
      const double tolerance = 4e-7 * std::sqrt(static_cast<double>(p.k)) + 1e-6;
      ASSERT_TRUE(all_near(r.c, expected.c, 3 * tolerance, 1e-6)) << describe(p) << ' ' << text_of(ctx);
      ASSERT_TRUE(all_near(r.gelu, expected.gelu, 4 * tolerance, 1e-6)) << describe(p) << ' ' << text_of(ctx);
    }
  }
}

TEST(Matmul, TeamsAreWholeThoughOpenMpMayChoose) {
  const Product p{64, 96, 80, false, false, false, false, false, 0};
  Context ctx = make_cpu_context(3);  // beyond the cores of many a machine, where OMP_DYNAMIC takes some away
  if (most_threads() < ctx.threads) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  const Result expected = run(ctx, p);
  std::thread([&] {
    omp_set_dynamic(1);
    EXPECT_TRUE(all_near(run(ctx, p).c, expected.c, 0, 0));
    omp_set_max_active_levels(0);
    EXPECT_TRUE(all_near(run(ctx, p).c, expected.c, 0, 0));
  }).join();
}

TEST(Matmul, MoreThreadsThanThereCanBeAreRefused) {
  Context ctx = make_cpu_context(1);
  ctx.threads = std::numeric_limits<int>::max();
  if (most_threads() == ctx.threads) GTEST_SKIP() << "no OMP_THREAD_LIMIT";
  EXPECT_THROW(run(ctx, {64, 96, 80, false, false, false, false, false, 0}), EnvironmentError);
}

TEST(Matmul, BaselineProcessorsGetTheSameProduct) {
  const Product p{20, 30, 40, false, false, false, true, true, 0};
  const Result expected = run(reference_context(), p), r = run({Backend::kCpu, device::Isa::kBaseline, 1}, p);
  EXPECT_TRUE(all_near(r.c, expected.c, 1e-5, 1e-6));
  EXPECT_TRUE(all_near(r.gelu, expected.gelu, 1e-5, 1e-6));
}

TEST(Matmul, SameBitsInEveryCallAndAtEveryAddress) {
  constexpr std::int64_t kMore = 64;  // floats
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{{96, 200, 130}, {65, 97, 64}}) {
        const Values a = normal_values(m * k, 1), b = normal_values(k * n, 2);
        for (const Context& ctx : fast_contexts()) {
          Values first;
          for (const std::int64_t shift : {0, 0, 16, 1, 3}) {  // floats: whole cache lines, then odd addresses
            std::vector<float> space_a(a.size() + kMore), space_b(b.size() + kMore), space_c(static_cast<std::size_t>(m * n + kMore));
            const auto place = [&](std::vector<float>& space, std::int64_t offset) {
              auto* raw = static_cast<void*>(space.data());
              std::size_t room = space.size() * sizeof(float);
              return static_cast<float*>(std::align(64, 1, raw, room)) + offset;
            };
            float* at_a = place(space_a, shift);
            float* at_b = place(space_b, 2 * shift);
            float* at_c = place(space_c, shift);
            std::memcpy(at_a, a.data(), a.size() * sizeof(float));
            std::memcpy(at_b, b.data(), b.size() * sizeof(float));
            matmul(ctx, {m, n, k, at_a, ta ? m : k, ta, at_b, tb ? k : n, tb, at_c, n});
            const Values c(at_c, at_c + m * n);
            if (first.empty()) {
              first = c;
            } else {
              ASSERT_TRUE(same_bits(c, first)) << "shifted by " << shift << " floats, " << text_of(ctx);
            }
          }
        }
      }
    }
  }
}

TEST(Matmul, ThreadsOfOneProcessDoNotDisturbEachOther) {
  const Product p{70, 90, 110, false, true, false, true, false, 0};
  for (const int threads : {1, 2}) {
    if (threads > most_threads()) continue;
    Context ctx = make_cpu_context(threads);
    const Result expected = run(ctx, p);
    std::vector<std::thread> callers;
    std::vector<int> same(4);
    for (std::size_t i = 0; i < same.size(); ++i) {
      callers.emplace_back([&, i] {
        for (int repeat = 0; repeat < 10; ++repeat) same[i] += same_bits(run(ctx, p).c, expected.c) ? 1 : 0;
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const int count : same) EXPECT_EQ(count, 10);
  }
}

TEST(Matmul, RefusesBadArguments) {
  Values x(100);
  const Context ctx = make_cpu_context(1);
  const auto args = [&](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t ld) {
    return MatmulArgs{m, n, k, x.data(), ld, false, x.data() + 30, ld, false, x.data() + 60, ld};
  };
  EXPECT_NO_THROW(matmul(ctx, args(3, 3, 3, 3)));
  EXPECT_THROW(matmul(ctx, args(0, 3, 3, 3)), LogicError);
  EXPECT_THROW(matmul(ctx, args(3, 3, 3, 2)), LogicError);
  MatmulArgs overlapping = args(3, 3, 3, 3);
  overlapping.c = x.data() + 38;
  EXPECT_THROW(matmul(ctx, overlapping), LogicError);
  MatmulArgs missing = args(3, 3, 3, 3);
  missing.b = nullptr;
  EXPECT_THROW(matmul(ctx, missing), LogicError);
}

TEST(ColumnSum, AgreesWithTheReferenceAndIgnoresThreads) {
  for (const auto& [m, n, ld] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {7, 5, 6}, {8, 16, 16}, {100, 33, 40}, {64, 2304, 2304}}) {
    const Values dy = normal_values(m * ld, 1);
    for (const bool accumulate : {false, true}) {
      Values expected = normal_values(n, 2);
      column_sum(reference_context(), dy.data(), m, n, ld, expected.data(), accumulate);
      for (const Context& ctx : fast_contexts()) {
        Values db = normal_values(n, 2), one = db;
        column_sum(ctx, dy.data(), m, n, ld, db.data(), accumulate);
        EXPECT_TRUE(all_near(db, expected, 1e-5, 1e-6)) << m << 'x' << n << ' ' << text_of(ctx);
        column_sum({Backend::kCpu, ctx.isa, 1}, dy.data(), m, n, ld, one.data(), accumulate);
        EXPECT_TRUE(same_bits(db, one));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::ops::test
