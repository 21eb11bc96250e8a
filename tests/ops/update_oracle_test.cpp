// Every optimizer against PyTorch's own, and Lion against algorithm 2 written out: tests/golden/make_optimizers.py.

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ops/adamw.hpp"
#include "ops/lion.hpp"
#include "ops/ops_test_support.hpp"
#include "ops/sgd.hpp"

namespace sluice::ops::test {
namespace {

using nlohmann::json;

/// Relative to each number, and to what numbers of that array are like: 1e-6.
testing::AssertionResult is_near(const Values& actual, const Values& expected) {
  const double squares = std::inner_product(expected.begin(), expected.end(), expected.begin(), 0.0);
  return all_near(actual, expected, 1e-6 * std::sqrt(squares / static_cast<double>(expected.size())), 1e-6);
}

struct State {
  Values param, moment1, moment2;
};

void update(const Context& ctx, const json& given, State& s, const Values& grad, double rate, std::int64_t count) {
  const auto n = static_cast<std::int64_t>(grad.size());
  const std::string name = given.at("optimizer");
  if (name == "SGD") {
    const double momentum = given.at("momentum");
    return sgd(ctx, {.n = n,
                     .param = s.param.data(),
                     .grad = grad.data(),
                     .buffer = momentum > 0 ? s.moment1.data() : nullptr,
                     .learning_rate = rate,
                     .momentum = momentum,
                     .dampening = given.at("dampening"),
                     .weight_decay = given.at("weight_decay"),
                     .nesterov = given.at("nesterov"),
                     .count = count});
  }
  if (name == "Lion") {
    return lion(ctx, {.n = n,
                      .param = s.param.data(),
                      .grad = grad.data(),
                      .moment = s.moment1.data(),
                      .learning_rate = rate,
                      .beta1 = given.at("beta1"),
                      .beta2 = given.at("beta2"),
                      .weight_decay = given.at("weight_decay")});
  }
  adamw(ctx, {.n = n,
              .param = s.param.data(),
              .grad = grad.data(),
              .moment1 = s.moment1.data(),
              .moment2 = s.moment2.data(),
              .learning_rate = rate,
              .beta1 = given.at("beta1"),
              .beta2 = given.at("beta2"),
              .eps = given.at("eps"),
              .weight_decay = given.at("weight_decay"),
              .count = count,
              .decay = name == "Adam" ? AdamDecay::kInGradient : AdamDecay::kDecoupled});
}

TEST(UpdateOracle, TwentyUpdatesOfEachKind) {
  const json golden = json::parse(std::ifstream(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/optimizers.json"));
  const Values start = golden.at("start");
  std::vector<Context> contexts = fast_contexts();
  contexts.push_back(reference_context());
  ASSERT_EQ(golden.at("cases").size(), 10U);
  for (const json& given : golden.at("cases")) {
    for (const Context& ctx : contexts) {
      json settings = given;
      settings.erase("after");
      SCOPED_TRACE(settings.dump() + " " + text_of(ctx));
      State s{start, Values(start.size()), Values(start.size())};
      int shown = 0;
      for (std::int64_t t = 1; t <= 20; ++t) {
        update(ctx, given, s, golden.at("gradients").at(static_cast<std::size_t>(t - 1)),
               golden.at("rates").at(static_cast<std::size_t>(t - 1)), t);
        const auto expected = given.at("after").find(std::to_string(t));
        if (expected == given.at("after").end()) continue;
        ++shown;
        EXPECT_TRUE(is_near(s.param, expected->at("param"))) << "step " << t;
        const json& state = expected->at("state");
        Values* const held[] = {&s.moment1, &s.moment2};
        for (std::size_t plane = 0; plane < state.size(); ++plane)
          EXPECT_TRUE(is_near(*held[plane], state[plane])) << plane << ", step " << t;
      }
      EXPECT_EQ(shown, 2);
    }
  }
}

}  // namespace
}  // namespace sluice::ops::test
