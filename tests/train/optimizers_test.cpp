// Every optimizer in the engine: the same bits under every strategy, and its own rule on the gradients of the model.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "support/graph_inputs.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::OptimizerKind;
using spec::UpdateMode;

spec::OptimizerSpec optimizer_of(OptimizerKind kind, double momentum = 0, bool nesterov = false) {
  spec::OptimizerSpec optimizer = tiny_training().optimizer;
  optimizer.kind = kind;
  optimizer.momentum = momentum;
  optimizer.nesterov = nesterov;
  return optimizer;
}

const std::vector<spec::OptimizerSpec> kOptimizers{optimizer_of(OptimizerKind::kAdam), optimizer_of(OptimizerKind::kSgd),
                                                   optimizer_of(OptimizerKind::kSgd, 0.9, true), optimizer_of(OptimizerKind::kLion)};

std::string text_of(const spec::OptimizerSpec& optimizer) {
  return "kind " + std::to_string(static_cast<int>(optimizer.kind)) + ", momentum " + std::to_string(optimizer.momentum);
}

TEST(Optimizers, EveryStrategyGivesTheSameBits) {
  constexpr std::array<UpdateMode, 3> kModes{UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward};
  int n = 0;
  for (const spec::OptimizerSpec& optimizer : kOptimizers) {
    for (const spec::Precision precision : {spec::Precision::kFp32, spec::Precision::kBf16, spec::Precision::kFp16}) {
      std::map<std::string, TinyResult> of_signature;
      for (const int ranks : {1, 2}) {
        if (ranks == 1 && precision != spec::Precision::kFp32) continue;
        for (int stage = 0; stage <= 3; ++stage) {
          for (const UpdateMode mode : kModes) {
            if (mode == UpdateMode::kInBackward && precision == spec::Precision::kFp16) continue;  // must know of overflows first
            TinyRun run;
            run.ranks = ranks;
            run.steps = 3;
            run.training.optimizer = optimizer;
            run.training.schedule.peak = optimizer.kind == OptimizerKind::kSgd ? 0.3 : 3e-3;
            run.training.precision = precision;
            run.training.loss_scale = {.initial_power = 10};
            const bool clips = mode != UpdateMode::kInBackward;
            if (!clips) run.training.optimizer.gradient_clipping = 0;
            run.plan = tiny_plan(ranks, stage, 2, mode, n % 2 == 0, n % 3 == 0 ? 20480 : 2048);
            if (precision == spec::Precision::kBf16) {  // beside frozen parameters, for whose chunks the plan's rCache was not made
              run.training.trainable = {"h\\.1\\.", "ln_f", "bias$"};
              run.plan.rcache_elements = std::int64_t{1} << 20;
            }
            run.poison = n++ % 5 == 0;
            SCOPED_TRACE(text_of(optimizer) + ", " + std::string(name_of(precision)) + ", ranks " + std::to_string(ranks) +
                         ", zero_stage " + std::to_string(stage) + ", " + std::string(name_of(mode)));
            const std::string signature = std::to_string(ranks) + (stage >= 2 ? "/micro" : "/step") + (clips ? "/clipped" : "/free");
            if (!clips && !of_signature.contains(signature)) {  // what in_backward is held against
              TinyRun at_end = run;
              at_end.plan.update_mode = UpdateMode::kAtEnd;
              of_signature[signature] = run_tiny(at_end);
            }
            const TinyResult result = run_tiny(run);
            EXPECT_EQ(difference(of_signature.try_emplace(signature, result).first->second, result), "");
            EXPECT_LT(result.evaluation, result.losses.front());
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

/// A state by plane: parameters, then what the optimizer keeps; of each, all parameters that decay, then the others.
struct Planes {
  std::vector<double> decaying[3], plain[3];
};

/// After `steps` steps without clipping at a rate of 0.01 / step.
Planes train(const spec::OptimizerSpec& optimizer, int steps) {
  TinyRun run;
  run.steps = steps;
  run.training.optimizer = optimizer;
  run.training.optimizer.gradient_clipping = 0;
  run.plan = tiny_plan(1, 0, 1, UpdateMode::kAtEnd, false, 20480);
  const std::string state = run_tiny(run).state;
  const GraphInputs inputs(run.model, run.training, run.plan);
  Planes planes;
  std::size_t at = 0;
  for (const model::ParamSpec& param : inputs.model().params) {
    for (int plane = 0; plane <= inputs.grouping().moments; ++plane) {
      std::vector<float> values(static_cast<std::size_t>(param.elements()));
      std::memcpy(values.data(), state.data() + at, values.size() * sizeof(float));
      at += values.size() * sizeof(float);
      std::vector<double>& list = param.matrix ? planes.decaying[plane] : planes.plain[plane];
      list.insert(list.end(), values.begin(), values.end());
    }
  }
  EXPECT_EQ(at, state.size());
  return planes;
}

/// The norm of what differs is at most 1e-5 of the whole's.
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double differs = 0, whole = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    differs += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    whole += expected[i] * expected[i];
  }
  EXPECT_GT(whole, 0) << what;
  EXPECT_LE(std::sqrt(differs), 1e-5 * std::sqrt(whole)) << what;
}

TEST(Optimizers, TheFirstStepsAreTheirRules) {
  constexpr double kRate = 0.01, kDecay = 0.1;
  // Momentum without decay keeps the gradients themselves.
  spec::OptimizerSpec bare = optimizer_of(OptimizerKind::kSgd, 0.5);
  bare.weight_decay = 0;
  const Planes start = train(bare, 0), one = train(bare, 1), two = train(bare, 2);
  const auto each = [](std::size_t n, const auto& value) {
    std::vector<double> list;
    for (std::size_t i = 0; i < n; ++i) list.push_back(value(i));
    return list;
  };
  for (const bool decays : {true, false}) {
    SCOPED_TRACE(decays ? "what decays" : "what doesn't decay");
    const auto of = [&](const Planes& planes, int plane) -> const std::vector<double>& {
      return decays ? planes.decaying[plane] : planes.plain[plane];
    };
    const double decay = decays ? kDecay : 0;
    const std::vector<double>&p = of(start, 0), &g = of(one, 1);
    const std::size_t n = p.size();
    const auto moved = [&](const Planes& to, const Planes& from) {
      return each(n, [&](std::size_t i) { return of(to, 0)[i] - of(from, 0)[i]; });
    };
    const auto l2 = [&](std::size_t i) { return g[i] + decay * p[i]; };
    expect_near(of(one, 0), each(n, [&](std::size_t i) { return p[i] - kRate * g[i]; }), "SGD with momentum, first step");
    expect_near(of(two, 0), each(n, [&](std::size_t i) { return of(one, 0)[i] - kRate / 2 * of(two, 1)[i]; }), "and the second");

    spec::OptimizerSpec damped = bare;
    damped.dampening = 0.25;
    // The first step is not dampened, so the second's gradient is the same: of(two, 1) - 0.5 g.
    expect_near(of(train(damped, 1), 1), g, "dampening, first step");
    expect_near(of(train(damped, 2), 1), each(n, [&](std::size_t i) { return 0.5 * g[i] + 0.75 * (of(two, 1)[i] - 0.5 * g[i]); }),
                "dampening, second step");

    const Planes sgd = train(optimizer_of(OptimizerKind::kSgd), 1);
    expect_near(of(sgd, 0), each(n, [&](std::size_t i) { return p[i] - kRate * l2(i); }), "SGD");
    const Planes nesterov = train(optimizer_of(OptimizerKind::kSgd, 0.5, true), 1);
    expect_near(of(nesterov, 0), each(n, [&](std::size_t i) { return p[i] - kRate * 1.5 * l2(i); }), "Nesterov");
    expect_near(of(nesterov, 1), each(n, l2), "Nesterov's buffer");

    const Planes adam = train(optimizer_of(OptimizerKind::kAdam), 1);
    expect_near(of(adam, 1), each(n, [&](std::size_t i) { return 0.1 * l2(i); }), "Adam's first moment");
    expect_near(of(adam, 2), each(n, [&](std::size_t i) { return 0.001 * l2(i) * l2(i); }), "Adam's second moment");
    const Planes adamw = train(optimizer_of(OptimizerKind::kAdamW), 1);
    expect_near(of(adamw, 1), each(n, [&](std::size_t i) { return 0.1 * g[i]; }), "AdamW's first moment");
    expect_near(moved(adamw, start), each(n, [&](std::size_t i) { return -kRate * decay * p[i] - kRate * g[i] / (std::abs(g[i]) + 1e-8); }),
                "AdamW");

    spec::OptimizerSpec lion_spec = optimizer_of(OptimizerKind::kLion);
    lion_spec.beta2 = 0.75;
    const Planes lion = train(lion_spec, 1);
    expect_near(of(lion, 1), each(n, [&](std::size_t i) { return 0.25 * g[i]; }), "Lion's moment");
    expect_near(of(lion, 0), each(n, [&](std::size_t i) { return p[i] * (1 - kRate * decay) - kRate * ((g[i] > 0) - (g[i] < 0)); }),
                "Lion");
  }
}

}  // namespace
}  // namespace sluice::testing
