#include "train/engine.hpp"

#include <algorithm>
#include <map>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/rng.hpp"
#include "base/units.hpp"
#include "model/gpt2.hpp"
#include "ops/fill.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/check.hpp"

namespace sluice::train {

using chunks::Plane;
using schedule::GraphKind;

namespace {
constexpr std::array<GraphKind, 5> kGraphs{GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate,
                                           GraphKind::kSave};
constexpr std::array<Plane, 3> kStatePlanes{Plane::kWorking, Plane::kMoment1, Plane::kMoment2};
}  // namespace

struct Engine::Impl {
  explicit Impl(const EngineSetup& given)
      : setup(given),
        modules(parallel::make_unsharded_modules()),
        model(model::build_model(given.model, *modules)),
        grouping(optim::group_parameters(model.params, given.training.optimizer)),
        layout(model.params, grouping, given.plan.chunk_elements),
        ops(ops::make_cpu_context(given.plan.threads)) {
    ops.backend = given.backend;
  }

  EngineSetup setup;
  std::unique_ptr<model::ModuleFactory> modules;
  model::Model model;
  optim::Grouping grouping;
  chunks::ChunkLayout layout;
  ops::Context ops;
  schedule::BuildInputs inputs;
  std::map<GraphKind, schedule::StepGraph> graphs;
  std::array<std::unique_ptr<memory::Arena>, spec::kTierCount> arenas;
  std::unique_ptr<memory::Ledger> ledger;
  std::vector<memory::Reservation> reservations;
  std::unique_ptr<schedule::Executor> executor;
  std::vector<HeldPiece> owned, held;
  std::map<std::pair<Plane, int>, std::vector<std::size_t>> owned_of_chunk;
  std::int64_t adam_count = 0;
  spec::UpdateInputs pending;

  int ranks() const { return setup.group->size(); }
  int rank() const { return setup.group->rank(); }

  void build_graphs() {
    inputs = {.model = &model,
              .layout = &layout,
              .plan = setup.plan,
              .sequence_length = setup.training.batch.sequence_length,
              .ranks = ranks(),
              .clips = setup.training.optimizer.gradient_clipping > 0,
              .segments_between_agrees = setup.segments_between_agrees};
    for (const GraphKind kind : kGraphs) {
      schedule::StepGraph graph = schedule::build(kind, inputs);
      if (setup.verify_graphs) {
        schedule::check_order(graph);
        schedule::check_races(graph);
        schedule::check_cancel(graph);
        const schedule::StepGraph* one = &graph;
        schedule::check_meetings({&one, 1});
      }
      graphs.emplace(kind, std::move(graph));
    }
  }

  std::array<std::int64_t, spec::kTierCount> arena_bytes() const {
    std::array<std::int64_t, spec::kTierCount> bytes{};
    for (const auto& [kind, graph] : graphs) {
      for (std::size_t t = 0; t < bytes.size(); ++t) bytes[t] = std::max(bytes[t], graph.arena_bytes[t]);
    }
    return bytes;
  }

  /// What this rank can fail at alone, before the collective part: nobody is left waiting for it.
  void reserve() {
    const auto bytes = arena_bytes();
    constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;
    const std::int64_t device_budget = setup.device_budget_bytes > 0 ? setup.device_budget_bytes : kUnlimited;
    ledger = std::make_unique<memory::Ledger>(std::array<std::int64_t, spec::kTierCount>{device_budget, kUnlimited, 0});
    for (const spec::Tier tier : {spec::Tier::kDevice, spec::Tier::kHost}) {
      reservations.push_back(ledger->reserve(tier, "the plan's arena", bytes[static_cast<std::size_t>(tier)]));
    }
    arenas[static_cast<std::size_t>(spec::Tier::kHost)] = std::make_unique<memory::Arena>(
        spec::Tier::kHost, memory::make_plain_backing(bytes[static_cast<std::size_t>(spec::Tier::kHost)], "host arena"));
  }

  /// The device arena stands in a window, so that the node's other ranks read shards and gradients where they are.
  void allocate_window() {
    const auto t = static_cast<std::size_t>(spec::Tier::kDevice);
    arenas[t] = std::make_unique<memory::Arena>(spec::Tier::kDevice, setup.group->allocate_window(arena_bytes()[t], "device arena"));
  }

  void touch() {
    for (const auto& arena : arenas) {
      if (arena) arena->touch();
    }
  }

  void bind() {
    schedule::Environment env;
    env.device = setup.device;
    for (std::size_t t = 0; t < arenas.size(); ++t) env.arenas[t] = arenas[t].get();
    env.model = &model;
    env.layout = &layout;
    env.grouping = &grouping;
    env.optimizer = setup.training.optimizer;
    env.plan = setup.plan;
    env.sequence_length = setup.training.batch.sequence_length;
    env.ops = ops;
    env.group = setup.group;
    env.trace = setup.trace;
    env.threading = setup.threading;
    env.poison = setup.poison;
    executor = std::make_unique<schedule::Executor>(env);
    for (const auto& [kind, graph] : graphs) executor->bind(graph);
  }

  /// Adds what of elements [begin, begin + count) of a chunk, standing at `data`, belongs to parameters.
  void add_pieces(std::vector<HeldPiece>& list, Plane plane, int chunk, std::int64_t begin, std::int64_t count, float* data) const {
    for (const chunks::Slot& slot : layout.chunks()[static_cast<std::size_t>(chunk)].slots) {
      const std::int64_t from = std::max(begin, slot.offset);
      const std::int64_t to = std::min(begin + count, slot.offset + slot.elements);
      if (from < to) list.push_back({plane, slot.param, slot.param_begin + from - slot.offset, to - from, data + (from - begin)});
    }
  }

  /// Where the save graph's persistent buffers put every chunk's planes.
  void list_pieces() {
    const schedule::StepGraph& graph = graphs.at(GraphKind::kSave);
    for (const schedule::Task& task : graph.tasks) {
      const schedule::Use* use = graph.use_of(task, schedule::Role::kSource);
      const schedule::Buffer& buffer = graph.buffers[use->buffer];
      auto* base = reinterpret_cast<float*>(arenas[static_cast<std::size_t>(buffer.tier)]->at(buffer.offset, buffer.bytes));
      const chunks::Chunk& chunk = layout.chunks()[static_cast<std::size_t>(task.chunk)];
      const std::int64_t begin = chunks::shard_begin(chunk.elements, rank(), ranks());
      const std::int64_t count = chunks::shard_begin(chunk.elements, rank() + 1, ranks()) - begin;
      const bool sharded = chunks::is_sharded(task.plane, setup.plan.zero_stage);
      float* whole = sharded ? nullptr : base + chunk.run_offset;
      const std::size_t first = owned.size();
      add_pieces(owned, task.plane, task.chunk, begin, count, sharded ? base : whole + begin);
      auto& indices = owned_of_chunk[{task.plane, task.chunk}];
      for (std::size_t i = first; i < owned.size(); ++i) indices.push_back(i);
      if (sharded) {
        add_pieces(held, task.plane, task.chunk, begin, count, base);
      } else {
        add_pieces(held, task.plane, task.chunk, 0, chunk.elements, whole);
      }
    }
  }
};

Engine::Engine(const EngineSetup& setup) : impl_(std::make_unique<Impl>(setup)) {
  comm::all_or_none(*setup.group, [&] {
    impl_->build_graphs();
    impl_->reserve();
  });
  impl_->allocate_window();
  comm::all_or_none(*setup.group, [&] { impl_->touch(); });
  impl_->bind();
  impl_->list_pieces();
}

Engine::~Engine() = default;

const model::Model& Engine::model() const noexcept {
  return impl_->model;
}
const spec::Plan& Engine::plan() const noexcept {
  return impl_->setup.plan;
}
const schedule::StepGraph& Engine::graph(GraphKind kind) const {
  return impl_->graphs.at(kind);
}

const schedule::BuildInputs& Engine::build_inputs() const noexcept {
  return impl_->inputs;
}

spec::ArithmeticSignature Engine::signature() const {
  return signature_of(impl_->setup.plan, impl_->ops);
}

spec::ArithmeticSignature signature_of(const spec::Plan& plan, const ops::Context& ops) {
  spec::ArithmeticSignature signature;
  signature.mesh = plan.mesh;
  signature.micro_batch = plan.micro_batch;
  signature.accumulation = plan.accumulation;
  signature.reduce_point = plan.zero_stage >= 2 ? "micro-batch" : "step";
  signature.dtypes = "f32";
  signature.isa = ops.backend == ops::Backend::kReference ? "reference" : std::string(device::name_of(ops.isa));
  signature.threads = plan.threads;
  signature.libraries = ops::library_versions();
  return signature;
}

void Engine::initialise(std::uint64_t seed) {
  for (const HeldPiece& piece : impl_->held) {
    const model::ParamSpec& param = impl_->model.params[static_cast<std::size_t>(piece.param)];
    if (piece.plane != Plane::kWorking || param.init == model::Init::kZeros) {
      ops::fill(impl_->ops, piece.data, piece.count, 0.0F);
    } else if (param.init == model::Init::kOnes) {
      ops::fill(impl_->ops, piece.data, piece.count, 1.0F);
    } else {
      const auto key = rng_key(seed, RngPurpose::kInit, Hash().add(param.name).value());
      ops::fill_normal(impl_->ops, piece.data, piece.count, static_cast<float>(param.init_std), key,
                       static_cast<std::uint64_t>(piece.begin));
    }
  }
  impl_->adam_count = 0;
  impl_->pending = {};
  impl_->setup.group->barrier();  // peers gather from these bytes
}

schedule::RunResult Engine::step(const StepRequest& request) {
  schedule::RunInputs inputs;
  inputs.step.step = request.step;
  inputs.step.seed = impl_->setup.training.seed;
  inputs.load = request.load;
  inputs.stop = request.stop;
  const bool deferred = impl_->setup.plan.update_mode == spec::UpdateMode::kNextForward;
  const spec::UpdateInputs own{true, request.learning_rate, impl_->adam_count + 1};
  inputs.step.update = deferred ? impl_->pending : own;
  const schedule::RunResult result = impl_->executor->run(GraphKind::kStep, inputs);
  // A pending update stands before every cancel point, so it is done whether or not the step was cancelled.
  if (deferred) impl_->pending = {};
  if (result.cancelled) return result;
  impl_->adam_count += 1;
  if (deferred) impl_->pending = own;
  return result;
}

bool Engine::has_pending_update() const noexcept {
  return impl_->pending.apply;
}

void Engine::flush() {
  if (!impl_->pending.apply) return;
  schedule::RunInputs inputs;
  inputs.step.update = impl_->pending;
  impl_->executor->run(GraphKind::kFlush, inputs);
  impl_->pending = {};
}

schedule::Report Engine::evaluate(const std::function<std::int64_t(int, const schedule::TokenRows&)>& load,
                                  const std::function<bool()>& stop) {
  flush();
  schedule::RunInputs inputs;
  inputs.step.training = false;
  inputs.load = load;
  inputs.stop = stop;
  return impl_->executor->run(GraphKind::kEvaluate, inputs).report;
}

const float* Engine::next_logits(const std::function<std::int64_t(int, const schedule::TokenRows&)>& load, std::int64_t position) {
  flush();
  schedule::RunInputs inputs;
  inputs.step.training = false;
  inputs.load = load;
  inputs.position = position;
  impl_->executor->run(GraphKind::kGenerate, inputs);
  return impl_->executor->logits();
}

const std::vector<HeldPiece>& Engine::owned_pieces() const noexcept {
  return impl_->owned;
}
const std::vector<HeldPiece>& Engine::held_pieces() const noexcept {
  return impl_->held;
}

void Engine::save(const std::function<void(std::size_t)>& write) {
  flush();
  schedule::RunInputs inputs;
  inputs.save = [&](Plane plane, int chunk, std::int64_t /*begin*/, std::int64_t /*count*/, const float* /*data*/) {
    for (const std::size_t piece : impl_->owned_of_chunk.at({plane, chunk})) write(piece);
  };
  impl_->executor->run(GraphKind::kSave, inputs);
}

std::int64_t Engine::adam_count() const noexcept {
  return impl_->adam_count;
}
void Engine::set_adam_count(std::int64_t count) noexcept {
  impl_->adam_count = count;
  impl_->pending = {};
}

comm::Traffic Engine::traffic(schedule::Lane lane) const {
  return impl_->executor->traffic(lane);
}
std::array<std::int64_t, spec::kTierCount> Engine::arena_bytes() const noexcept {
  return impl_->arena_bytes();
}

}  // namespace sluice::train
