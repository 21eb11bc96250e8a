// Gradients by central differences, with dropout on: the mask of a step is the same whenever it is drawn.

#include <gtest/gtest.h>

#include <cmath>

#include "model/random_model.hpp"
#include "support/op_contexts.hpp"

namespace sluice::model {
namespace {

using test::Batch;
using test::SegmentDriver;

class GradientTest : public ::testing::TestWithParam<test::NamedContext> {};

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
  double slope(const std::vector<double>& direction) {
    const double h = 0.01;
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
    SegmentDriver driver(test::small_spec(0.25, tied), GetParam().context);
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
          ASSERT_GT(length, 1e-3 * global) << driver.model().params[p].name << ": no signal";
          for (std::size_t i = first; i < n; i += stride) direction[i] = grad[i] / length;
          EXPECT_NEAR(probe.slope(direction), length, 1e-3 * length + 1e-4 * global)
              << driver.model().params[p].name << " " << first << "/" << stride;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GradientTest, test::single_thread_contexts(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::model
