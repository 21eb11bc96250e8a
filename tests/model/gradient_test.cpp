// Gradients by central differences, with dropout on: the mask of a step is the same whenever it is drawn.

#include <gtest/gtest.h>

#include <cmath>

#include "model/random_model.hpp"
#include "support/op_contexts.hpp"

namespace sluice::model {
namespace {

using test::Batch;
using test::SegmentDriver;

using Case = std::tuple<test::NamedContext, std::string>;  // and a family
class GradientTest : public ::testing::TestWithParam<Case> {};

/// The loss along a direction in one parameter, at a distance from where it is.
class Probe {
 public:
  Probe(SegmentDriver& driver, const Batch& batch, const StepView& step, std::size_t param)
      : driver_(driver),
        batch_(batch),
        step_(step),
        param_(param),
        origin_(driver.params[param].f32(), driver.params[param].f32() + size()) {}

  /// d loss / d distance at 0, to fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h.
  double slope(const std::vector<double>& direction, double h) {
    const double near = loss_at(direction, h) - loss_at(direction, -h);
    const double far = loss_at(direction, 2 * h) - loss_at(direction, -2 * h);
    return (8 * near - far) / (12 * h);
  }

 private:
  std::int64_t size() const { return driver_.params[param_].float_count(); }
  double loss_at(const std::vector<double>& direction, double distance) {
    float* const param = driver_.params[param_].f32();
    for (std::size_t i = 0; i < origin_.size(); ++i) param[i] = static_cast<float>(origin_[i] + distance * direction[i]);
    const double loss = driver_.evaluate(batch_, step_);
    std::copy(origin_.begin(), origin_.end(), param);
    return loss;
  }

  SegmentDriver& driver_;
  const Batch& batch_;
  StepView step_;
  std::size_t param_;
  std::vector<float> origin_;
};

TEST_P(GradientTest, MatchesCentralDifferencesOfEveryParameterWithDropout) {
  for (const bool tied : {true, false}) {
    const auto& [context, family] = GetParam();
    spec::ModelSpec spec = test::small_spec_of(family, 0.25, tied);
    spec.pad_token = -1;  // whose row has a gradient of its own making
    SegmentDriver driver(spec, context.context);
    test::randomise_params(driver, 5);
    const Batch batch = test::random_batch(3, 9, 37, 6);
    const StepView step{.seed = 77, .step = 3, .training = true, .loss_scale = 1.0f};  // so that d = d (summed loss)
    driver.train(batch, step);
    double global = 0;
    for (const auto& grad : driver.grads) {
      for (std::int64_t i = 0; i < grad.float_count(); ++i) global += static_cast<double>(grad.f32()[i]) * grad.f32()[i];
    }
    global = std::sqrt(global);
    for (std::size_t p = 0; p < driver.params.size(); ++p) {
      const float* const grad = driver.grads[p].f32();
      const std::size_t n = static_cast<std::size_t>(driver.grads[p].float_count());
      Probe probe(driver, batch, step, p);
      // Along the gradient, and along its even and odd elements alone, so that errors can't cancel.
      for (const std::size_t stride : {1u, 2u}) {
        for (std::size_t first = 0; first < stride; ++first) {
          std::vector<double> direction(n, 0.0);
          double length = 0;
          for (std::size_t i = first; i < n; i += stride) length += static_cast<double>(grad[i]) * grad[i];
          length = std::sqrt(length);
          // A key's bias moves all scores of a query alike where positions don't turn keys.
          const bool is_zero = family == "opt" && driver.model().params[p].name.ends_with("k_proj.bias");
          if (is_zero) {
            ASSERT_LT(length, 1e-6 * global) << driver.model().params[p].name;
            continue;
          }
          ASSERT_GT(length, 1e-3 * global) << driver.model().params[p].name << ": no signal";
          for (std::size_t i = first; i < n; i += stride) direction[i] = grad[i] / length;
          // Where the distance carries a unit over ReLU's corner, the difference is off by about that share of the units.
          const double h = family == "opt" ? 0.002 : 0.01, tolerance = family == "opt" ? 1e-2 : 1e-3;
          EXPECT_NEAR(probe.slope(direction, h), length, tolerance * (length + 0.1 * global))
              << driver.model().params[p].name << " " << first << "/" << stride;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GradientTest,
                         ::testing::Combine(test::single_thread_contexts(),
                                            ::testing::Values("gpt2", "opt", "llama", "mistral", "qwen2", "qwen3")),
                         [](const auto& test) { return std::get<0>(test.param).name + "_" + std::get<1>(test.param); });

}  // namespace
}  // namespace sluice::model
