// Every family against transformers and PyTorch on the fixtures of tests/golden (make_models.py says what they hold).

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/config_json.hpp"
#include "formats/hf_names.hpp"
#include "ops/adamw.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/grad_norm.hpp"
#include "optim/policy.hpp"
#include "optim/schedule.hpp"
#include "support/op_contexts.hpp"
#include "support/safetensors_test_reader.hpp"
#include "support/segment_driver.hpp"

namespace sluice::model {
namespace {

using test::Batch;
using test::GuardedBuffer;
using test::SegmentDriver;
using test::Tensor;

struct Fixture {
  explicit Fixture(const std::string& name)
      : folder(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/" + name), spec(formats::load_config(folder)) {
    expected = nlohmann::json::parse(test::read_file(folder + "/expected.json"));
    const std::string bytes = test::read_file(folder + "/tokens.bin");
    tokens.resize(bytes.size() / sizeof(std::int32_t));
    std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(std::int32_t));
  }

  /// Sample i is tokens i*T .. i*T+T inclusive.
  Batch batch(std::int64_t first_sample, std::int64_t rows) const {
    const std::int64_t sequence = expected.at("sequence");
    Batch batch{.shape = {rows, sequence}, .inputs = {}, .targets = {}, .sample_ids = {}};
    for (std::int64_t sample = first_sample; sample < first_sample + rows; ++sample) {
      const auto begin = tokens.begin() + sample * sequence;
      batch.inputs.insert(batch.inputs.end(), begin, begin + sequence);
      batch.targets.insert(batch.targets.end(), begin + 1, begin + sequence + 1);
      batch.sample_ids.push_back(sample);
    }
    return batch;
  }

  void load_weights(SegmentDriver& driver) const {
    const auto weights = test::read_safetensors(folder + "/model.safetensors");
    ASSERT_EQ(weights.size(), driver.model().params.size());
    for (std::size_t i = 0; i < driver.params.size(); ++i) {
      const ParamSpec& param = driver.model().params[i];
      const Tensor& tensor = weights.at(formats::tensor_name(spec, param.name));
      ASSERT_EQ(tensor.shape, param.shape) << param.name;
      std::memcpy(driver.params[i].data(), tensor.values.data(), driver.params[i].size());
    }
  }

  std::string folder;
  spec::ModelSpec spec;
  nlohmann::json expected;
  std::vector<std::int32_t> tokens;
};

double distance(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum);
}

double norm(const std::vector<float>& a) {
  double sum = 0;
  for (const float value : a) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

class Parity : public ::testing::TestWithParam<std::tuple<std::string, test::NamedContext>> {
 protected:
  void SetUp() override { fixture_.load_weights(driver_); }

  std::int64_t global_batch() const { return micro_batch() * accumulation(); }
  std::int64_t micro_batch() const { return fixture_.expected.at("micro_batch"); }
  std::int64_t accumulation() const { return fixture_.expected.at("accumulation"); }

  void expect_gradients(const std::map<std::string, Tensor>& expected) const {
    ASSERT_EQ(expected.size(), driver_.model().params.size());
    double global = 0;
    for (const auto& [name, gradient] : expected) global = std::hypot(global, norm(gradient.values));
    for (std::size_t i = 0; i < driver_.grads.size(); ++i) {
      const ParamSpec& param = driver_.model().params[i];
      const Tensor& reference = expected.at(param.name);
      ASSERT_EQ(reference.shape, param.shape) << param.name;
      const double error = distance(driver_.grads[i].f32(), reference.values.data(), param.elements());
      const double size = norm(reference.values);
      // A key's bias moves all scores of a query alike, so its gradient is zero by algebra where positions don't turn keys: what is left in
      // f32 is the rounding of terms that cancel.
      const bool is_zero = size < 1e-12 * global;
      EXPECT_EQ(is_zero, fixture_.spec.family == "opt" && param.name.ends_with("k_proj.bias")) << param.name;
      EXPECT_LE(error, is_zero ? 1e-8 * global : 1e-4 * std::max(size, 1e-6 * global)) << param.name;
    }
  }

  Fixture fixture_{std::get<0>(GetParam())};
  SegmentDriver driver_{fixture_.spec, std::get<1>(GetParam()).context};
};

TEST_P(Parity, Logits) {
  const Tensor expected = test::read_safetensors(fixture_.folder + "/logits.safetensors").at("logits");
  const Batch batch = fixture_.batch(0, global_batch());
  const std::int64_t sequence = batch.shape.sequence, vocab = fixture_.spec.vocab;
  ASSERT_EQ(expected.shape, (std::vector<std::int64_t>{global_batch(), sequence, vocab}));
  driver_.forward(batch, {.training = false});
  for (std::int64_t position = 0; position < sequence; ++position) {
    const std::vector<float> logits = driver_.logits(batch, position);
    for (std::int64_t row = 0; row < global_batch(); ++row) {
      for (std::int64_t v = 0; v < vocab; ++v) {
        ASSERT_NEAR(logits[static_cast<std::size_t>(row * vocab + v)],
                    expected.values[static_cast<std::size_t>((row * sequence + position) * vocab + v)], 1e-5)
            << "row " << row << " position " << position << " token " << v;
      }
    }
  }
}

TEST_P(Parity, LossAndGradients) {
  const auto expected = test::read_safetensors(fixture_.folder + "/gradients.safetensors");
  const Batch batch = fixture_.batch(0, global_batch());
  const double tokens = static_cast<double>(batch.shape.tokens());
  const StepView step{.loss_scale = static_cast<float>(1 / tokens)};
  const double loss = driver_.train(batch, step) / tokens;
  const double expected_loss = fixture_.expected.at("loss");
  EXPECT_NEAR(loss, expected_loss, 1e-5 * expected_loss);
  EXPECT_NEAR(driver_.evaluate(batch, step) / tokens, expected_loss, 1e-5 * expected_loss);
  expect_gradients(expected);
}

/// Of some fixtures: learned positions, rotary ones, a window.
class ParityOfDocuments : public Parity {};

TEST_P(ParityOfDocuments, LossAndGradients) {
  const auto& documents = fixture_.expected.at("documents");
  Batch batch = fixture_.batch(0, global_batch());
  const std::int64_t sequence = batch.shape.sequence;
  batch.document_starts.assign(static_cast<std::size_t>(batch.shape.tokens()), 0);
  double predicted = static_cast<double>(batch.shape.tokens());
  for (const std::int64_t begin : documents.at("begins").get<std::vector<std::int64_t>>()) {
    batch.targets[static_cast<std::size_t>(begin) - 1] = ops::kIgnoredTarget;
    --predicted;
    for (std::int64_t t = begin; t < batch.shape.tokens() && t / sequence == begin / sequence; ++t)
      batch.document_starts[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(begin % sequence);
  }
  ASSERT_EQ(predicted, documents.at("predicted").get<double>());
  const StepView step{.loss_scale = static_cast<float>(1 / predicted)};
  const double loss = driver_.train(batch, step) / predicted, expected_loss = documents.at("loss");
  EXPECT_NEAR(loss, expected_loss, 1e-5 * expected_loss);
  expect_gradients(test::read_safetensors(fixture_.folder + "/document_gradients.safetensors"));
}

TEST_P(Parity, TwentyAdamwSteps) {
  const auto& o = fixture_.expected.at("optimizer");
  const auto& s = fixture_.expected.at("schedule");
  ASSERT_EQ(o.at("decay_on"), "matrices");
  ASSERT_EQ(s.at("kind"), "cosine");
  const spec::OptimizerSpec optimizer{.beta1 = o.at("beta1"),
                                      .beta2 = o.at("beta2"),
                                      .eps = o.at("eps"),
                                      .weight_decay = o.at("weight_decay"),
                                      .decay_on = spec::DecayOn::kMatrices,
                                      .gradient_clipping = o.at("gradient_clipping")};
  const spec::ScheduleSpec schedule{
      .kind = spec::ScheduleKind::kCosine, .peak = s.at("peak"), .warmup_steps = s.at("warmup_steps"), .total_steps = s.at("total_steps")};
  const optim::Grouping grouping = optim::group_parameters(driver_.model(), {.optimizer = optimizer});
  std::vector<GuardedBuffer> moments1, moments2;
  for (const GuardedBuffer& param : driver_.params) {
    for (auto* moments : {&moments1, &moments2}) {
      moments->emplace_back(static_cast<std::int64_t>(param.size()));
      std::memset(moments->back().data(), 0, param.size());
    }
  }

  const auto& steps = fixture_.expected.at("steps");
  ASSERT_EQ(steps.size(), 20u);
  for (std::int64_t t = 0; t < 20; ++t) {
    const auto& expected = steps.at(static_cast<std::size_t>(t));
    const double tokens = static_cast<double>(global_batch()) * fixture_.expected.at("sequence").get<double>();
    driver_.begin_step();
    double loss = 0;
    for (std::int64_t micro = 0; micro < accumulation(); ++micro) {
      const Batch batch = fixture_.batch(t * global_batch() + micro * micro_batch(), micro_batch());
      loss += driver_.train(batch, {.step = t + 1, .loss_scale = static_cast<float>(1 / tokens)});
    }
    const double expected_loss = expected.at("loss");
    ASSERT_NEAR(loss / tokens, expected_loss, 1e-5 * expected_loss) << "step " << t;

    ops::NormAccumulator accumulator;
    for (const GuardedBuffer& grad : driver_.grads) ops::add_squared_norm(driver_.context(), grad.f32(), grad.float_count(), accumulator);
    const double grad_norm = std::sqrt(accumulator.value()), expected_norm = expected.at("grad_norm");
    ASSERT_NEAR(grad_norm, expected_norm, 1e-4 * expected_norm) << "step " << t;

    const double rate = optim::learning_rate(schedule, t), expected_rate = expected.at("learning_rate");
    ASSERT_NEAR(rate, expected_rate, 1e-12) << "step " << t;
    for (std::size_t i = 0; i < driver_.params.size(); ++i) {
      ops::adamw(driver_.context(), {.n = driver_.params[i].float_count(),
                                     .param = driver_.params[i].f32(),
                                     .grad = driver_.grads[i].f32(),
                                     .moment1 = moments1[i].f32(),
                                     .moment2 = moments2[i].f32(),
                                     .learning_rate = rate,
                                     .beta1 = optimizer.beta1,
                                     .beta2 = optimizer.beta2,
                                     .eps = optimizer.eps,
                                     .weight_decay = grouping.groups[static_cast<std::size_t>(grouping.group_of[i])].weight_decay,
                                     .count = t + 1,
                                     .grad_scale = optim::clip_factor(grad_norm, optimizer.gradient_clipping)});
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<Parity::ParamType>& test) {
  return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
}
INSTANTIATE_TEST_SUITE_P(Fixtures, Parity,
                         ::testing::Combine(::testing::Values("gpt2_tiny", "gpt2_odd", "gpt2_untied", "opt_tiny", "llama_tiny",
                                                              "llama_smol", "mistral_tiny", "mistral_sliding", "qwen2_tiny", "qwen3_tiny"),
                                            test::single_thread_contexts()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Fixtures, ParityOfDocuments,
                         ::testing::Combine(::testing::Values("gpt2_untied", "opt_tiny", "llama_tiny", "mistral_sliding"),
                                            test::single_thread_contexts()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Threads, Parity,
                         ::testing::Combine(::testing::Values("gpt2_untied", "llama_tiny"),
                                            ::testing::Values(test::NamedContext{"cpu_two_threads", ops::make_cpu_context(2)})),
                         case_name);

}  // namespace
}  // namespace sluice::model
