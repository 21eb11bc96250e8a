// Every family against PyTorch with 16-bit parameters, on the fixtures of tests/golden (make_precision.py says what they hold).

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "formats/config_json.hpp"
#include "formats/hf_names.hpp"
#include "formats/safetensors.hpp"
#include "ops/context.hpp"
#include "optim/schedule.hpp"
#include "support/safetensors_test_reader.hpp"
#include "train/engine.hpp"

namespace sluice::testing {
namespace {

/// How far from PyTorch's fp64 a run may be. PyTorch's own 16-bit runs are up to 7e-4 (bf16) and 4e-4 (fp16) away; the first loss
/// differs by the roundings of one forward alone.
struct Tolerance {
  double first_loss;
  double losses;
};
Tolerance tolerance_of(spec::Precision precision) {
  return precision == spec::Precision::kBf16 ? Tolerance{1e-3, 2e-3} : Tolerance{1e-4, 1e-3};
}

class PrecisionParity : public ::testing::TestWithParam<std::tuple<std::string, spec::Precision>> {};

TEST_P(PrecisionParity, TwentyAdamwSteps) {
  const auto& [name, precision] = GetParam();
  const std::string folder = std::string(SLUICE_SOURCE_DIR) + "/tests/golden/" + name;
  const auto expected = nlohmann::json::parse(test::read_file(folder + "/expected.json"));
  const auto rounded = nlohmann::json::parse(test::read_file(folder + "/precision.json")).at(std::string(name_of(precision)));
  const Tolerance tolerance = tolerance_of(precision);
  const std::int64_t rows = expected.at("micro_batch"), accumulation = expected.at("accumulation"), sequence = expected.at("sequence");
  std::vector<std::int32_t> tokens;
  const std::string bytes = test::read_file(folder + "/tokens.bin");
  tokens.resize(bytes.size() / sizeof(std::int32_t));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());

  train::EngineSetup setup;
  setup.model = formats::load_config(folder);
  const auto& o = expected.at("optimizer");
  const auto& s = expected.at("schedule");
  setup.training.optimizer = {.beta1 = o.at("beta1"),
                              .beta2 = o.at("beta2"),
                              .eps = o.at("eps"),
                              .weight_decay = o.at("weight_decay"),
                              .decay_on = spec::DecayOn::kMatrices,
                              .gradient_clipping = o.at("gradient_clipping")};
  setup.training.schedule = {
      .kind = spec::ScheduleKind::kCosine, .peak = s.at("peak"), .warmup_steps = s.at("warmup_steps"), .total_steps = s.at("total_steps")};
  setup.training.batch = {rows * accumulation, rows, accumulation, sequence};
  setup.training.precision = precision;
  setup.training.loss_scale.fixed = rounded.at("loss_scale");
  setup.plan.micro_batch = rows;
  setup.plan.accumulation = accumulation;
  setup.plan.chunk_elements = 4096;
  setup.plan.activations.assign(static_cast<std::size_t>(2 * setup.model.layers + 2), spec::Activation::kKeep);
  device::flush_denormals_on_this_thread();
  const auto world = comm::make_single_rank();
  const auto device = device::make_cpu_device();
  setup.group = world.get();
  setup.device = device.get();
  train::Engine engine(setup);
  const formats::Safetensors files = formats::Safetensors::open(folder);
  const auto tensors = formats::match_parameters(files, engine.model());
  engine.fill([&](std::span<const train::HeldPiece> batch) {
    for (const train::HeldPiece& piece : batch) {
      train::fill_piece(piece, ops::make_cpu_context(1), [&](std::int64_t begin, std::int64_t count, float* values) {
        if (!piece.is_parameter()) return std::fill_n(values, count, 0.0F), void();
        files.read_f32(*tensors[static_cast<std::size_t>(piece.param)], begin, count, values);
      });
    }
  });
  for (std::int64_t step = 0; step < static_cast<std::int64_t>(expected.at("steps").size()); ++step) {
    const auto& reference = expected.at("steps")[static_cast<std::size_t>(step)];
    train::StepRequest request;
    request.step = step + 1;
    request.learning_rate = optim::learning_rate(setup.training.schedule, step);
    request.load = [&](int micro, const schedule::TokenRows& out) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto begin = tokens.begin() + ((step * accumulation + micro) * rows + row) * sequence;
        std::copy(begin, begin + sequence, out.inputs + row * sequence);
        std::copy(begin + 1, begin + sequence + 1, out.targets + row * sequence);
        out.sample_ids[row] = row;
      }
      return rows * sequence;
    };
    const schedule::Report report = engine.step(request).report;
    ASSERT_FALSE(report.skipped);
    const double loss = reference.at("loss"), norm = reference.at("grad_norm");
    if (step == 0) {
      const double of_rounded = rounded.at("loss_of_rounded_weights");
      EXPECT_NEAR(report.loss, of_rounded, tolerance.first_loss * of_rounded);
    }
    EXPECT_NEAR(report.loss, loss, tolerance.losses * loss) << "step " << step + 1;
    EXPECT_NEAR(report.grad_norm, norm, 20 * tolerance.losses * norm) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PrecisionParity,
                         ::testing::Combine(::testing::Values("gpt2_tiny", "gpt2_odd", "gpt2_untied", "opt_tiny", "llama_tiny",
                                                              "llama_smol", "mistral_tiny", "mistral_sliding", "qwen2_tiny", "qwen3_tiny"),
                                            ::testing::Values(spec::Precision::kBf16, spec::Precision::kFp16)),
                         [](const auto& test) { return std::get<0>(test.param) + "_" + std::string(name_of(std::get<1>(test.param))); });

}  // namespace
}  // namespace sluice::testing
