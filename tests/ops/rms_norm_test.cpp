#include "ops/rms_norm.hpp"

#include <cmath>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

constexpr double kEps = 1e-5;
constexpr float kUntouched = 7.0f;

struct Problem {
  RmsNormShape shape;
  Values x, gain, dy;  // between the groups and the next row x and dy hold what nobody may read or write
};

std::size_t size_of(const RmsNormShape& s) {
  return static_cast<std::size_t>(s.rows * s.ld);
}

bool is_inside(const RmsNormShape& s, std::size_t i) {
  return static_cast<std::int64_t>(i) % s.ld < s.groups * s.width;
}

Problem make_problem(const RmsNormShape& shape) {
  Problem p{shape, normal_values(shape.rows * shape.ld, 1, 2.0f), normal_values(shape.width, 2), normal_values(shape.rows * shape.ld, 3)};
  for (std::size_t i = 0; i < p.x.size(); ++i) {
    if (is_inside(shape, i)) {
      p.x[i] += 0.75f;
    } else {
      p.x[i] = p.dy[i] = std::nanf("");
    }
  }
  return p;
}

struct Result {
  Values y, rstd, dx, dgain;
};

/// Forward and backward; with `accumulate` onto gradients that hold 0.5.
Result run(const Context& ctx, const Problem& p, bool accumulate) {
  const RmsNormShape& s = p.shape;
  Result r{Values(size_of(s), kUntouched), Values(static_cast<std::size_t>(s.rows * s.groups)), Values(size_of(s), kUntouched),
           Values(static_cast<std::size_t>(s.width), 0.5f)};
  for (std::size_t i = 0; i < r.dx.size(); ++i) {
    if (is_inside(s, i)) r.dx[i] = 0.5f;
  }
  rms_norm_forward(ctx, s, p.x.data(), p.gain.data(), kEps, r.y.data(), r.rstd.data());
  std::vector<char> workspace(static_cast<std::size_t>(rms_norm_workspace_bytes(ctx.threads, s.width)));
  rms_norm_backward(ctx, s, p.x.data(), p.gain.data(), r.rstd.data(), p.dy.data(), r.dx.data(), accumulate, r.dgain.data(), accumulate,
                    workspace.data());
  return r;
}

const std::vector<RmsNormShape>& shapes() {
  static const std::vector<RmsNormShape> kShapes = {{1, 1},        {3, 5},           {7, 768},       {33, 129},       {64, 256},
                                                    {4, 6, 3, 40}, {50, 64, 4, 400}, {9, 17, 2, 34}, {3, 128, 1, 384}};
  return kShapes;
}

TEST(RmsNorm, FastBodiesAgreeWithTheReference) {
  for (const RmsNormShape& shape : shapes()) {
    const Problem p = make_problem(shape);
    for (const bool accumulate : {false, true}) {
      const Result expected = run(reference_context(), p, accumulate);
      for (const Context& ctx : fast_contexts()) {
        const Result r = run(ctx, p, accumulate);
        const std::string where =
            text_of(ctx) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.groups) + "x" + std::to_string(shape.width);
        EXPECT_TRUE(all_near(r.y, expected.y, 2e-6, 2e-6)) << where;
        EXPECT_TRUE(all_near(r.rstd, expected.rstd, 0, 2e-6)) << where;
        EXPECT_TRUE(all_near(r.dx, expected.dx, 5e-6, 5e-6)) << where;
        EXPECT_TRUE(all_near(r.dgain, expected.dgain, 1e-5, 1e-5)) << where;
        const Result again = run(ctx, p, accumulate);
        EXPECT_TRUE(same_bits(again.dx, r.dx));
        EXPECT_TRUE(same_bits(again.dgain, r.dgain));
      }
    }
  }
}

TEST(RmsNorm, IsTheFormula) {
  const Problem p = make_problem({3, 4, 2, 11});
  const Result r = run(reference_context(), p, false);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t group = 0; group < 2; ++group) {
      const float* x = p.x.data() + row * 11 + group * 4;
      double squares = 0;
      for (std::size_t j = 0; j < 4; ++j) squares += static_cast<double>(x[j]) * x[j];
      const double rstd = 1 / std::sqrt(squares / 4 + kEps);
      EXPECT_NEAR(r.rstd[row * 2 + group], rstd, 1e-6);
      for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(r.y[row * 11 + group * 4 + j], x[j] * rstd * p.gain[j], 1e-6);
    }
    for (std::size_t j = 8; j < 11; ++j) EXPECT_EQ(r.y[row * 11 + j], kUntouched);
  }
}

TEST(RmsNorm, GradientsAreCentralDifferences) {
  const Problem p = make_problem({3, 5, 2, 10});
  const Result r = run(reference_context(), p, false);
  const auto loss = [&](const Problem& at) { return weighted_sum(p.dy, run(reference_context(), at, false).y); };
  const auto check = [&](Values Problem::*field, const Values& gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      Problem up = p, down = p;
      (up.*field)[i] += 1e-2f;
      (down.*field)[i] -= 1e-2f;
      const double step = static_cast<double>((up.*field)[i]) - (down.*field)[i];
      EXPECT_NEAR(gradient[i], (loss(up) - loss(down)) / step, 2e-3) << i;
    }
  };
  check(&Problem::x, r.dx);
  check(&Problem::gain, r.dgain);
}

TEST(RmsNorm, WorksInPlace) {
  const Problem p = make_problem({5, 24, 3, 100});
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    const Result expected = run(ctx, p, false);
    Values y = p.x, d = p.dy, rstd(15), dgain(24);
    rms_norm_forward(ctx, p.shape, y.data(), p.gain.data(), kEps, y.data(), rstd.data());
    std::vector<char> workspace(static_cast<std::size_t>(rms_norm_workspace_bytes(ctx.threads, 24)));
    rms_norm_backward(ctx, p.shape, p.x.data(), p.gain.data(), rstd.data(), d.data(), d.data(), false, dgain.data(), false,
                      workspace.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (!is_inside(p.shape, i)) continue;
      ASSERT_TRUE(bits_equal(y[i], expected.y[i])) << i;
      ASSERT_TRUE(bits_equal(d[i], expected.dx[i])) << i;
    }
  }
}

TEST(RmsNorm, RefusesBadArguments) {
  Values x(12), gain(4), rstd(3);
  const Context ctx = make_cpu_context(1);
  EXPECT_THROW(rms_norm_forward(ctx, {3, 4, 2, 7}, x.data(), gain.data(), kEps, x.data(), rstd.data()), LogicError);
  EXPECT_THROW(rms_norm_forward(ctx, {0, 4}, x.data(), gain.data(), kEps, x.data(), rstd.data()), LogicError);
  EXPECT_THROW(rms_norm_forward(ctx, {3, 4}, x.data(), gain.data(), 0, x.data(), rstd.data()), LogicError);
  EXPECT_THROW(rms_norm_forward(ctx, {3, 4}, x.data(), nullptr, kEps, x.data(), rstd.data()), LogicError);
  std::vector<char> workspace(64);
  EXPECT_THROW(
      rms_norm_backward(ctx, {3, 4}, x.data(), gain.data(), rstd.data(), x.data(), x.data(), true, gain.data(), false, workspace.data()),
      LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
