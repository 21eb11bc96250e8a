#include "support/tiny_training.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.hpp"
#include "base/rng.hpp"
#include "base/units.hpp"
#include "chunks/residency.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "model/build.hpp"
#include "ops/convert.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/build.hpp"
#include "support/graph_inputs.hpp"
#include "support/lagging_communicator.hpp"
#include "train/engine.hpp"

namespace sluice::testing {

spec::ModelSpec tiny_model() {
  spec::ModelSpec model = tiny_model_without_dropout();
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

spec::Plan tiny_plan(int ranks, int zero_stage, std::int64_t accumulation, spec::UpdateMode mode, bool recompute,
                     std::int64_t chunk_elements, int prefetch_segments) {
  spec::Plan plan;
  const spec::ModelSpec model = tiny_model();
  plan.zero_stage = zero_stage;
  plan.chunk_elements = chunk_elements;
  plan.accumulation = accumulation;
  plan.micro_batch = std::max<std::int64_t>(1, tiny_training().batch.global_batch / (ranks * accumulation));
  plan.update_mode = mode;
  plan.prefetch_segments = prefetch_segments;
  plan.mesh.data = ranks;
  plan.threads = 1;
  plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2),
                          recompute ? spec::Activation::kRecompute : spec::Activation::kKeep);
  const auto modules = parallel::make_unsharded_modules();
  const model::Model built = model::build_model(model, *modules);
  const chunks::ChunkLayout layout(built.params, optim::group_parameters(built, tiny_training()), chunk_elements);
  schedule::BuildInputs inputs{.model = &built, .layout = &layout, .plan = plan, .sequence_length = 16, .ranks = ranks, .needs_norm = true};
  inputs.plan.update_mode = spec::UpdateMode::kAtEnd;
  plan.rcache_elements = schedule::minimum_rcache_elements(inputs);
  return plan;
}

std::string difference(const TinyResult& a, const TinyResult& b) {
  std::string text;
  if (a.losses != b.losses) text += "losses ";
  if (a.grad_norms != b.grad_norms) text += "norms ";
  if (a.evaluation != b.evaluation) text += "evaluation ";
  if (a.logits != b.logits) text += "logits ";
  if (a.state != b.state) text += "parameters or moments ";
  return text;
}

TinyRank::TinyRank(const TinyRun& run, comm::Communicator& world)
    : run_(run), world_(world), device_(run.make_device ? run.make_device(world.rank()) : device::make_cpu_device()) {
  train::EngineSetup setup;
  setup.model = run.model;
  setup.training = run.training;
  setup.plan = run.plan;
  if (run.lag_seed != 0) lagging_ = make_lagging(world, run.lag_seed);
  setup.group = lagging_ ? lagging_.get() : &world;
  setup.device = device_.get();
  setup.segments_between_agrees = run.segments_between_agrees;
  setup.threading = run.threading;
  setup.poison = run.poison;
  if (run.plan.uses_tier(spec::Tier::kDisk)) {
    swap_ = std::make_unique<TempDir>();
    setup.swap.emplace();
    setup.swap->paths = {swap_->path()};
    setup.swap->identity = {world.host_name(), "tiny", world.rank()};
    setup.swap->engine = {16 * kKiB, 8, 8};  // chunks of several blocks
    if (run.io) setup.swap->system = run.io(world.rank());
    if (run.on_fill) {
      setup.swap->on_fill = [&run, rank = world.rank()](std::int64_t written, std::int64_t bytes) { run.on_fill(rank, written, bytes); };
    }
  }
  engine_ = std::make_unique<train::Engine>(setup);
  engine_->initialise(run.training.seed);
}

/// Sample n of the stream is a random walk over the vocabulary: something to learn, the same for every layout.
std::int64_t TinyRank::fill(std::int64_t first_sample, int micro, const schedule::TokenRows& out) const {
  const std::int64_t length = run_.training.batch.sequence_length, rows = run_.plan.micro_batch;
  std::int64_t valid = 0;
  for (std::int64_t b = 0; b < rows; ++b) {
    const std::int64_t sample = first_sample + (micro * run_.ranks + world_.rank()) * rows + b;
    out.sample_ids[b] = sample;
    const auto key = rng_key(99, RngPurpose::kSample, static_cast<std::uint64_t>(sample));
    std::int32_t token = static_cast<std::int32_t>(bounded_at(key, 0, static_cast<std::uint64_t>(run_.model.vocab)));
    for (std::int64_t t = 0; t < length; ++t) {
      out.inputs[b * length + t] = token;
      token = static_cast<std::int32_t>((token + 1 + static_cast<std::int32_t>(bounded_at(key, static_cast<std::uint64_t>(t) + 1, 3))) %
                                        run_.model.vocab);
      // Some targets don't count, unevenly over rows, so that the token-weighted mean is put to the test.
      const bool counts = run_.counts ? run_.counts(sample, t) : (sample * 31 + t) % 7 != 0;
      out.targets[b * length + t] = counts ? token : -1;
      valid += counts ? 1 : 0;
    }
    if (out.document_starts == nullptr) continue;
    for (std::int64_t t = 0, start = 0; t < length; ++t) {
      if (t > 0 && (sample * 13 + t) % 5 == 0) {
        start = t;
        std::int32_t& first = out.targets[b * length + t - 1];
        valid -= first >= 0 ? 1 : 0;
        first = -1;
      }
      out.document_starts[b * length + t] = static_cast<std::int32_t>(start);
    }
  }
  return valid;
}

schedule::RunResult TinyRank::step(int number, const std::function<bool()>& stop) {
  train::StepRequest request;
  request.step = number;
  request.learning_rate = run_.training.schedule.peak / number;
  request.stop = stop;
  request.load = [&](int micro, const schedule::TokenRows& out) {
    if (before_load) before_load(micro);
    return fill((number - 1) * run_.training.batch.global_batch, micro, out);
  };
  return engine_->step(request);
}

double TinyRank::evaluate() {
  return engine_->evaluate([&](int micro, const schedule::TokenRows& out) { return fill(1'000'000, micro, out); }).loss;
}

std::vector<float> TinyRank::logits() {
  const std::int64_t length = run_.training.batch.sequence_length;
  const float* logits = engine_->next_logits(
      [&](int /*micro*/, const schedule::TokenRows& out) {
        for (std::int64_t t = 0; t < length; ++t) {
          out.inputs[t] = static_cast<std::int32_t>(t * 5 % run_.model.vocab);
          out.targets[t] = -1;
        }
        out.sample_ids[0] = 0;
        if (out.document_starts != nullptr) std::fill_n(out.document_starts, length, 0);
        return std::int64_t{0};
      },
      length - 3);
  return {logits, logits + run_.model.vocab};
}

std::string TinyRank::state() {
  struct Head {
    std::int64_t plane, param, begin, count;
  };
  std::string mine;
  const std::vector<train::HeldPiece>& pieces = engine_->owned_pieces();
  engine_->save([&](std::size_t i, const void* data) {
    const train::HeldPiece& piece = pieces[i];
    const Head head{static_cast<std::int64_t>(piece.plane), piece.param, piece.begin, piece.count};
    mine.append(reinterpret_cast<const char*>(&head), sizeof head);
    std::vector<float> values(static_cast<std::size_t>(piece.count));
    if (piece.dtype == DType::kF32) {
      std::copy_n(static_cast<const float*>(data), piece.count, values.begin());
    } else {
      ops::widen(ops::make_cpu_context(1), static_cast<const std::uint16_t*>(data), piece.count, piece.dtype, values.data());
    }
    mine.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  });
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<std::string, std::int64_t>>
      planes;  // (parameter, plane) -> bytes, elements seen
  for (const std::string& part : world_.all_gather(mine)) {
    for (std::size_t at = 0; at < part.size();) {
      Head head{};
      std::memcpy(&head, part.data() + at, sizeof head);
      at += sizeof head;
      auto& [bytes, seen] = planes[{head.param, head.plane}];
      bytes.resize(static_cast<std::size_t>(engine_->model().params[static_cast<std::size_t>(head.param)].elements()) * sizeof(float));
      const std::size_t count = static_cast<std::size_t>(head.count) * sizeof(float);
      std::memcpy(bytes.data() + static_cast<std::size_t>(head.begin) * sizeof(float), part.data() + at, count);
      seen += head.count;
      at += count;
    }
  }
  std::size_t expected = 0;
  const optim::Grouping& grouping = engine_->build_inputs().layout->grouping();
  for (int p = 0; p < static_cast<int>(engine_->model().params.size()); ++p)
    expected += grouping.trains(p) ? 1 + static_cast<std::size_t>(grouping.moments) : 1;
  SLUICE_CHECK(planes.size() == expected, planes.size(), " planes were saved");
  std::string whole;
  for (const auto& [key, plane] : planes) {
    SLUICE_CHECK(plane.second * static_cast<std::int64_t>(sizeof(float)) == static_cast<std::int64_t>(plane.first.size()), "parameter ",
                 key.first, ", plane ", key.second, ": ", plane.second, " elements were saved");
    whole += plane.first;
  }
  return whole;
}

TinyResult run_tiny(const TinyRun& run) {
  std::vector<TinyResult> of_rank(static_cast<std::size_t>(run.ranks));
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();  // as the lanes' threads and the program do
    TinyRank rank(run, world);
    TinyResult& mine = of_rank[static_cast<std::size_t>(world.rank())];
    for (int s = 1; s <= run.steps; ++s) {
      const schedule::RunResult step = rank.step(s);
      mine.losses.push_back(step.report.loss);
      mine.grad_norms.push_back(step.report.grad_norm);
    }
    mine.evaluation = rank.evaluate();
    mine.logits = rank.logits();
    mine.state = rank.state();
  });
  for (const TinyResult& other : of_rank) {
    const TinyResult& first = of_rank[0];
    SLUICE_CHECK(other.losses == first.losses && other.grad_norms == first.grad_norms && other.evaluation == first.evaluation &&
                     other.logits == first.logits,
                 "ranks report different numbers");
  }
  return of_rank[0];
}

}  // namespace sluice::testing
