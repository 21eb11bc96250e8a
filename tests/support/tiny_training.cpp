#include "support/tiny_training.hpp"

#include <cstring>
#include <map>
#include <mutex>

#include "base/check.hpp"
#include "base/rng.hpp"
#include "chunks/residency.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "model/gpt2.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/build.hpp"
#include "train/engine.hpp"

namespace sluice::testing {

spec::ModelSpec tiny_model() {
  spec::ModelSpec model;
  model.name = "tiny";
  model.vocab = 67;
  model.context = 24;
  model.hidden = 48;
  model.layers = 3;
  model.heads = 4;
  model.ffn = 192;
  model.embedding_dropout = 0.1;
  model.attention_dropout = 0.1;
  model.residual_dropout = 0.1;
  return model;
}

spec::TrainingSpec tiny_training() {
  spec::TrainingSpec training;
  training.batch.global_batch = 12;
  training.batch.sequence_length = 16;
  training.optimizer.weight_decay = 0.1;
  training.optimizer.gradient_clipping = 0.5;
  training.schedule.peak = 1e-2;
  training.seed = 7;
  return training;
}

spec::Plan tiny_plan(int ranks, int zero_stage, std::int64_t accumulation, spec::UpdateMode mode, bool recompute, std::int64_t chunk_elements) {
  spec::Plan plan;
  const spec::ModelSpec model = tiny_model();
  plan.zero_stage = zero_stage;
  plan.chunk_elements = chunk_elements;
  plan.accumulation = accumulation;
  plan.micro_batch = tiny_training().batch.global_batch / (ranks * accumulation);
  plan.update_mode = mode;
  plan.mesh.data = ranks;
  plan.threads = 1;
  plan.recompute.assign(static_cast<std::size_t>(2 * model.layers + 2), recompute ? 1 : 0);
  const auto modules = parallel::make_unsharded_modules();
  const model::Model built = model::build_model(model, *modules);
  const chunks::ChunkLayout layout(built.params, optim::group_parameters(built.params, tiny_training().optimizer), chunk_elements);
  schedule::BuildInputs inputs{.model = &built, .layout = &layout, .plan = plan, .sequence_length = 16, .ranks = ranks, .clips = true};
  inputs.plan.update_mode = spec::UpdateMode::kAtEnd;
  plan.rcache_elements = schedule::minimum_rcache_elements(inputs);
  return plan;
}

TinyResult run_tiny(const TinyRun& run) {
  TinyResult result;
  std::mutex mutex;
  std::vector<TinyResult> of_rank(static_cast<std::size_t>(run.ranks));
  std::map<std::pair<int, int>, std::vector<float>> state;  // (parameter, plane) -> values
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    const int rank = world.rank();
    const auto device = run.make_device ? run.make_device(rank) : device::make_cpu_device();
    train::EngineSetup setup;
    setup.model = run.model;
    setup.training = run.training;
    setup.plan = run.plan;
    setup.group = &world;
    setup.device = device.get();
    setup.threading = run.threading;
    setup.poison = run.poison;
    setup.verify_graphs = run.verify_graphs;
    train::Engine engine(setup);
    engine.initialise(run.training.seed);
    const std::int64_t length = run.training.batch.sequence_length, rows = run.plan.micro_batch;
    // Sample n of the stream is a random walk over the vocabulary: something to learn, the same for every layout.
    const auto fill = [&](std::int64_t first_sample, int micro, const schedule::TokenRows& out) {
      std::int64_t valid = 0;
      for (std::int64_t b = 0; b < rows; ++b) {
        const std::int64_t sample = first_sample + (micro * run.ranks + rank) * rows + b;
        out.sample_ids[b] = sample;
        const auto key = rng_key(99, RngPurpose::kSample, static_cast<std::uint64_t>(sample));
        std::int32_t token = static_cast<std::int32_t>(bounded_at(key, 0, static_cast<std::uint64_t>(run.model.vocab)));
        for (std::int64_t t = 0; t < length; ++t) {
          out.inputs[b * length + t] = token;
          token = static_cast<std::int32_t>((token + 1 + static_cast<std::int32_t>(bounded_at(key, static_cast<std::uint64_t>(t) + 1, 3))) % run.model.vocab);
          // Some targets don't count, unevenly over rows, so that the token-weighted mean is put to the test.
          const bool counts = (sample * 31 + t) % 7 != 0;
          out.targets[b * length + t] = counts ? token : -1;
          valid += counts ? 1 : 0;
        }
      }
      return valid;
    };
    TinyResult& mine = of_rank[static_cast<std::size_t>(rank)];
    for (int s = 1; s <= run.steps; ++s) {
      train::StepRequest request;
      request.step = s;
      request.learning_rate = run.training.schedule.peak / s;
      request.load = [&](int micro, const schedule::TokenRows& out) { return fill((s - 1) * run.training.batch.global_batch, micro, out); };
      const schedule::RunResult step = engine.step(request);
      mine.losses.push_back(step.report.loss);
      mine.grad_norms.push_back(step.report.grad_norm);
    }
    mine.evaluation = engine.evaluate([&](int micro, const schedule::TokenRows& out) { return fill(1'000'000, micro, out); }).loss;
    const std::lock_guard lock(mutex);
    engine.save([&](std::size_t i) {
      const train::HeldPiece& piece = engine.owned_pieces()[i];
      auto& values = state[{piece.param, static_cast<int>(piece.plane)}];
      values.resize(static_cast<std::size_t>(engine.model().params[static_cast<std::size_t>(piece.param)].elements()));
      std::memcpy(values.data() + piece.begin, piece.data, static_cast<std::size_t>(piece.count) * sizeof(float));
    });
  });
  for (const TinyResult& other : of_rank) {
    SLUICE_CHECK(other.losses == of_rank[0].losses && other.grad_norms == of_rank[0].grad_norms && other.evaluation == of_rank[0].evaluation, "ranks report different numbers");
  }
  result = of_rank[0];
  for (const auto& [key, values] : state) result.state.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return result;
}

}  // namespace sluice::testing
