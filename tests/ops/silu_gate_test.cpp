#include "ops/silu_gate.hpp"

#include <cmath>

#include "base/error.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(SiluGate, KnownValues) {
  // torch.nn.functional.silu at -200, -3, -1, 0, 0.5, 2, 200 in f64, times up.
  const Values gate = {-200.0f, -3.0f, -1.0f, 0.0f, 0.5f, 2.0f, 200.0f}, up = {5.0f, 1.0f, -2.0f, 3.0f, 1.0f, 1.0f, 0.5f};
  const Values expected = {0.0f, -0.14227762f, 0.53788284f, 0.0f, 0.31122967f, 1.76159416f, 100.0f};
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  for (const Context& ctx : contexts) {
    Values y(7), dgate(7), dup(7);
    silu_gate_forward(ctx, gate.data(), up.data(), 7, y.data());
    EXPECT_TRUE(all_near(y, expected, 2e-8, 1e-6)) << text_of(ctx);
    silu_gate_backward(ctx, gate.data(), up.data(), Values(7, 1.0f).data(), 7, dgate.data(), dup.data());
    EXPECT_NEAR(dgate[0], 0, 1e-30);
    EXPECT_NEAR(dgate[3], 0.5 * 3, 1e-6);
    EXPECT_NEAR(dgate[6], 0.5, 1e-6);
    EXPECT_NEAR(dup[5], 1.76159416, 1e-6);
  }
}

TEST(SiluGate, FastBodiesAgreeWithTheReference) {
  for (const std::int64_t n : {1, 7, 16, 17, 100, 50001}) {
    const Values gate = normal_values(n, 1, 4.0f), up = normal_values(n, 2), dy = normal_values(n, 3);
    const auto size = static_cast<std::size_t>(n);
    Values y(size), dgate(size), dup(size);
    silu_gate_forward(reference_context(), gate.data(), up.data(), n, y.data());
    silu_gate_backward(reference_context(), gate.data(), up.data(), dy.data(), n, dgate.data(), dup.data());
    for (const Context& ctx : fast_contexts()) {
      Values fast(size), fast_gate(size), fast_up(size);
      silu_gate_forward(ctx, gate.data(), up.data(), n, fast.data());
      EXPECT_TRUE(all_near(fast, y, 1e-7, 1e-6)) << text_of(ctx) << " n " << n;
      silu_gate_backward(ctx, gate.data(), up.data(), dy.data(), n, fast_gate.data(), fast_up.data());
      EXPECT_TRUE(all_near(fast_gate, dgate, 1e-6, 2e-6)) << text_of(ctx) << " n " << n;
      EXPECT_TRUE(all_near(fast_up, dup, 1e-6, 2e-6)) << text_of(ctx) << " n " << n;
      Values first = gate, second = dy;  // over its own inputs
      silu_gate_backward(ctx, first.data(), up.data(), second.data(), n, second.data(), first.data());
      EXPECT_TRUE(same_bits(second, fast_gate));
      EXPECT_TRUE(same_bits(first, fast_up));
      first = gate;
      silu_gate_forward(ctx, first.data(), up.data(), n, first.data());
      EXPECT_TRUE(same_bits(first, fast));
    }
  }
}

TEST(SiluGate, GradientsAreTheDerivatives) {
  const Values gate = normal_values(64, 4, 2.0f), up = normal_values(64, 5), dy(64, 1.0f);
  Values dgate(64), dup(64);
  silu_gate_backward(reference_context(), gate.data(), up.data(), dy.data(), 64, dgate.data(), dup.data());
  const auto value = [](double g, double u) { return g / (1 + std::exp(-g)) * u; };
  for (std::size_t i = 0; i < 64; ++i) {
    const double h = 1e-6;
    EXPECT_NEAR(dgate[i], (value(gate[i] + h, up[i]) - value(gate[i] - h, up[i])) / (2 * h), 1e-6);
    EXPECT_NEAR(dup[i], (value(gate[i], up[i] + h) - value(gate[i], up[i] - h)) / (2 * h), 1e-6);
  }
}

TEST(SiluGate, RefusesBadArguments) {
  Values x(4);
  const Context ctx = make_cpu_context(1);
  EXPECT_THROW(silu_gate_forward(ctx, x.data(), nullptr, 4, x.data()), LogicError);
  EXPECT_THROW(silu_gate_backward(ctx, x.data(), x.data(), x.data(), 4, x.data(), x.data()), LogicError);
}

}  // namespace
}  // namespace sluice::ops::test
