#include "ops/layer_norm.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

constexpr double kEps = 1e-5;

struct Problem {
  std::int64_t n, c;
  Values x, gain, bias, dy;
};

Problem make_problem(std::int64_t n, std::int64_t c) {
  Problem p{n, c, normal_values(n * c, 1, 2.0f), normal_values(c, 2), normal_values(c, 3), normal_values(n * c, 4)};
  for (float& v : p.x) v += 0.75f;
  return p;
}

struct Result {
  Values y, mean, rstd, dx, dgain, dbias;
};

/// Forward and backward; with `accumulate` onto gradients that hold 0.5.
Result run(const Context& ctx, const Problem& p, bool accumulate) {
  const auto nc = static_cast<std::size_t>(p.n * p.c), n = static_cast<std::size_t>(p.n), c = static_cast<std::size_t>(p.c);
  Result r{Values(nc), Values(n), Values(n), Values(nc, 0.5f), Values(c, 0.5f), Values(c, 0.5f)};
  layer_norm_forward(ctx, p.x.data(), p.gain.data(), p.bias.data(), kEps, p.n, p.c, r.y.data(), r.mean.data(), r.rstd.data());
  std::vector<char> workspace(static_cast<std::size_t>(layer_norm_workspace_bytes(ctx.threads, p.c)));
  layer_norm_backward(ctx, p.x.data(), p.gain.data(), r.mean.data(), r.rstd.data(), p.dy.data(), p.n, p.c, r.dx.data(), accumulate,
                      r.dgain.data(), r.dbias.data(), accumulate, workspace.data());
  return r;
}

TEST(LayerNorm, FastBodiesAgreeWithTheReference) {
  for (const auto& [n, c] : {std::pair{1, 1}, {3, 5}, {2, 16}, {5, 31}, {7, 768}, {33, 129}, {64, 256}, {130, 100}}) {
    const Problem p = make_problem(n, c);
    for (const bool accumulate : {false, true}) {
      const Result expected = run(reference_context(), p, accumulate);
      for (const Context& ctx : fast_contexts()) {
        const Result r = run(ctx, p, accumulate);
        EXPECT_TRUE(all_near(r.y, expected.y, 2e-6, 2e-6)) << text_of(ctx) << ' ' << n << 'x' << c;
        EXPECT_TRUE(all_near(r.mean, expected.mean, 1e-6, 1e-6)) << text_of(ctx) << ' ' << n << 'x' << c;
        EXPECT_TRUE(all_near(r.rstd, expected.rstd, 0, 2e-6)) << text_of(ctx) << ' ' << n << 'x' << c;
        EXPECT_TRUE(all_near(r.dx, expected.dx, 5e-6, 5e-6)) << text_of(ctx) << ' ' << n << 'x' << c;
        EXPECT_TRUE(all_near(r.dgain, expected.dgain, 1e-5, 1e-5)) << text_of(ctx) << ' ' << n << 'x' << c;
        EXPECT_TRUE(all_near(r.dbias, expected.dbias, 1e-5, 1e-5)) << text_of(ctx) << ' ' << n << 'x' << c;
        const Result again = run(ctx, p, accumulate);
        EXPECT_TRUE(same_bits(again.dx, r.dx));
        EXPECT_TRUE(same_bits(again.dgain, r.dgain));
      }
    }
  }
}

TEST(LayerNorm, GradientsAreCentralDifferences) {
  Problem p = make_problem(3, 10);
  const Result r = run(reference_context(), p, false);
  const auto loss = [&](const Problem& at) { return weighted_sum(p.dy, run(reference_context(), at, false).y); };
  const auto check = [&](Values Problem::*field, const Values& gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const float h = 1e-2f;
      Problem up = p, down = p;
      (up.*field)[i] += h;
      (down.*field)[i] -= h;
      const double step = static_cast<double>((up.*field)[i]) - (down.*field)[i];
      EXPECT_NEAR(gradient[i], (loss(up) - loss(down)) / step, 2e-3) << i;
    }
  };
  check(&Problem::x, r.dx);
  check(&Problem::gain, r.dgain);
  check(&Problem::bias, r.dbias);
}

TEST(LayerNorm, RowsDoNotDependOnTheirNeighbours) {
  const Problem p = make_problem(9, 77);
  for (const Context& ctx : fast_contexts()) {
    const Result all = run(ctx, p, false);
    for (std::int64_t row = 0; row < p.n; ++row) {
      Problem one{1,      p.c,    Values(p.x.begin() + row * p.c, p.x.begin() + (row + 1) * p.c),
                  p.gain, p.bias, Values(p.dy.begin() + row * p.c, p.dy.begin() + (row + 1) * p.c)};
      const Result r = run(ctx, one, false);
      EXPECT_TRUE(same_bits(r.y, Values(all.y.begin() + row * p.c, all.y.begin() + (row + 1) * p.c)));
      EXPECT_TRUE(same_bits(r.dx, Values(all.dx.begin() + row * p.c, all.dx.begin() + (row + 1) * p.c)));
    }
  }
}

TEST(LayerNorm, ForwardMayBeInPlace) {
  const Problem p = make_problem(4, 50);
  for (const Context& ctx : fast_contexts()) {
    const Result r = run(ctx, p, false);
    Values y = p.x, mean(4), rstd(4);
    layer_norm_forward(ctx, y.data(), p.gain.data(), p.bias.data(), kEps, 4, 50, y.data(), mean.data(), rstd.data());
    EXPECT_TRUE(same_bits(y, r.y));
  }
}

TEST(LayerNorm, RefusesBadArguments) {
  const Problem p = make_problem(2, 4);
  Values y(8), mean(2), rstd(2);
  EXPECT_THROW(
      layer_norm_forward(make_cpu_context(1), p.x.data(), p.gain.data(), p.bias.data(), 0, 2, 4, y.data(), mean.data(), rstd.data()),
      LogicError);
  EXPECT_THROW(layer_norm_forward(make_cpu_context(1), p.x.data(), nullptr, p.bias.data(), kEps, 2, 4, y.data(), mean.data(), rstd.data()),
               LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
