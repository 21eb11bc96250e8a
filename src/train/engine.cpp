#include "train/engine.hpp"

#include <algorithm>
#include <map>

#include "base/check.hpp"
#include "base/units.hpp"
#include "model/build.hpp"
#include "ops/convert.hpp"
#include "ops/fill.hpp"
#include "optim/loss_scale.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/check.hpp"

namespace sluice::train {

using chunks::Plane;
using schedule::GraphKind;

namespace {
constexpr std::array<GraphKind, 5> kGraphs{GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate,
                                           GraphKind::kSave};
constexpr std::int64_t kFillElements = 64 * 1024;  // at a time, of pieces that are rounded
}  // namespace

struct Engine::Impl {
  explicit Impl(const EngineSetup& given)
      : setup(given),
        modules(parallel::make_unsharded_modules()),
        model(model::build_model(given.model, *modules)),
        grouping(optim::group_parameters(model, given.training)),
        layout(model.params, grouping, given.plan.chunk_elements),
        ops(ops::make_cpu_context(given.plan.threads)) {
    ops.backend = given.backend;
    if (given.training.precision == spec::Precision::kFp16) scaler.emplace(given.training.loss_scale);
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
  std::optional<optim::LossScaler> scaler;

  int ranks() const { return setup.group->size(); }
  int rank() const { return setup.group->rank(); }

  void build_graphs() {
    inputs = {.model = &model,
              .layout = &layout,
              .plan = setup.plan,
              .sequence_length = setup.training.batch.sequence_length,
              .ranks = ranks(),
              .needs_norm = optim::needs_norm(setup.training),
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
    env.skips_overflow = scaler.has_value();
    env.poison = setup.poison;
    executor = std::make_unique<schedule::Executor>(env);
    for (const auto& [kind, graph] : graphs) executor->bind(graph);
  }

  /// Adds what of elements [begin, begin + count) of a chunk, standing at `data`, belongs to parameters.
  void add_pieces(std::vector<HeldPiece>& list, Plane plane, int chunk, std::int64_t begin, std::int64_t count, std::byte* data) const {
    const DType dtype = plane == Plane::kWorking ? layout.storage() : DType::kF32;
    for (const chunks::Slot& slot : layout.chunks()[static_cast<std::size_t>(chunk)].slots) {
      const std::int64_t from = std::max(begin, slot.offset);
      const std::int64_t to = std::min(begin + count, slot.offset + slot.elements);
      if (from < to) {
        list.push_back(
            {plane, slot.param, slot.param_begin + from - slot.offset, to - from, dtype, data + (from - begin) * size_of(dtype)});
      }
    }
  }

  /// Where the persistent buffers of a run's planes stand: from the save graph, and for working copies of a master from the step.
  void list_pieces() {
    const schedule::StepGraph& save = graphs.at(GraphKind::kSave);
    for (const schedule::Task& task : save.tasks) {
      const schedule::Buffer& buffer = save.buffers[save.use_of(task, schedule::Role::kSource)->buffer];
      const std::size_t first = owned.size();
      add_chunk(owned, task.plane, task.chunk, buffer, true);
      auto& indices = owned_of_chunk[{task.plane, task.chunk}];
      for (std::size_t i = first; i < owned.size(); ++i) indices.push_back(i);
      add_chunk(held, task.plane, task.chunk, buffer, false);
    }
    if (!layout.has_master()) return;
    const schedule::StepGraph& step = graphs.at(GraphKind::kStep);
    for (const schedule::Task& task : step.tasks) {
      if (task.kind != schedule::TaskKind::kUpdate) continue;
      add_chunk(held, Plane::kWorking, task.chunk, step.buffers[step.use_of(task, schedule::Role::kTarget)->buffer], false);
    }
  }

  /// What this rank has of a chunk's plane in `buffer`: its own part, or all that stands there.
  void add_chunk(std::vector<HeldPiece>& list, Plane plane, int index, const schedule::Buffer& buffer, bool own_part) const {
    std::byte* const base = arenas[static_cast<std::size_t>(buffer.tier)]->at(buffer.offset, buffer.bytes);
    const chunks::Chunk& chunk = layout.chunks()[static_cast<std::size_t>(index)];
    const std::int64_t begin = chunks::shard_begin(chunk.elements, rank(), ranks());
    const std::int64_t count = chunks::shard_begin(chunk.elements, rank() + 1, ranks()) - begin;
    if (chunks::is_sharded(plane, setup.plan.zero_stage)) return add_pieces(list, plane, index, begin, count, base);
    std::byte* const whole = base + chunk.run_offset * layout.element_bytes(plane);
    if (!own_part) return add_pieces(list, plane, index, 0, chunk.elements, whole);
    add_pieces(list, plane, index, begin, count, whole + begin * layout.element_bytes(plane));
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
  return signature_of(impl_->setup.plan, impl_->setup.training.precision, impl_->ops);
}

spec::ArithmeticSignature signature_of(const spec::Plan& plan, spec::Precision precision, const ops::Context& ops) {
  spec::ArithmeticSignature signature;
  signature.mesh = plan.mesh;
  signature.micro_batch = plan.micro_batch;
  signature.accumulation = plan.accumulation;
  signature.reduce_point = plan.zero_stage >= 2 ? "micro-batch" : "step";
  signature.dtypes = name_of(spec::dtype_of(precision));
  signature.isa = ops.backend == ops::Backend::kReference ? "reference" : std::string(device::name_of(ops.isa));
  signature.threads = plan.threads;
  signature.libraries = ops::library_versions();
  return signature;
}

float* HeldPiece::f32() const {
  SLUICE_CHECK(dtype == DType::kF32, "a piece of ", chunks::name_of(plane), " is ", name_of(dtype), ", not f32");
  return static_cast<float*>(data);
}

void fill_piece(const HeldPiece& piece, const ops::Context& ops,
                const std::function<void(std::int64_t begin, std::int64_t count, float* values)>& fill) {
  if (piece.dtype == DType::kF32) return fill(piece.begin, piece.count, piece.f32());
  auto* const stored = static_cast<std::uint16_t*>(piece.data);
  std::vector<float> values(static_cast<std::size_t>(std::min(piece.count, kFillElements)));
  for (std::int64_t at = 0; at < piece.count; at += kFillElements) {
    const std::int64_t count = std::min(kFillElements, piece.count - at);
    fill(piece.begin + at, count, values.data());
    ops::narrow(ops, values.data(), count, piece.dtype, stored + at);
  }
}

void Engine::initialise(std::uint64_t seed) {
  const ops::Context& ops = impl_->ops;
  for (const HeldPiece& piece : impl_->held) {
    const model::ParamSpec& param = impl_->model.params[static_cast<std::size_t>(piece.param)];
    fill_piece(piece, ops, [&](std::int64_t begin, std::int64_t count, float* values) {
      if (!piece.is_parameter()) return ops::fill(ops, values, count, 0.0F);
      model::initialise(ops, param, seed, begin, count, values);
    });
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
  if (impl_->scaler) inputs.step.loss_scale = impl_->scaler->scale();
  const schedule::RunResult result = impl_->executor->run(GraphKind::kStep, inputs);
  // A pending update stands before every cancel point, so it is done whether or not the step was cancelled.
  if (deferred) impl_->pending = {};
  if (result.cancelled) return result;
  // The report is the same on every rank, so all scalers go the same way.
  if (impl_->scaler && impl_->scaler->update(result.report.overflow) == optim::OverflowOutcome::kAtMinimum) {
    throw_on_all_ranks(
        DivergedError(cat("step ", request.step, ": gradients overflow in fp16 at the smallest loss scale, ", impl_->scaler->scale(),
                          "; lower the learning rate, train in bf16, or continue from the last checkpoint")));
  }
  if (result.report.skipped) return result;
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
  inputs.save = [&](Plane plane, int chunk, std::int64_t /*begin*/, std::int64_t /*count*/, const void* /*data*/) {
    for (const std::size_t piece : impl_->owned_of_chunk.at({plane, chunk})) write(piece);
  };
  impl_->executor->run(GraphKind::kSave, inputs);
}

std::int64_t Engine::adam_count() const noexcept {
  return impl_->adam_count;
}

std::optional<spec::LossScaleState> Engine::loss_scale() const {
  return impl_->scaler ? std::optional(impl_->scaler->state()) : std::nullopt;
}
void Engine::resume(const checkpoint::Progress& progress) {
  impl_->adam_count = progress.adam_count;
  impl_->pending = {};
  if (impl_->scaler && progress.loss_scale) impl_->scaler->restore(*progress.loss_scale);
}

comm::Traffic Engine::traffic(schedule::Lane lane) const {
  return impl_->executor->traffic(lane);
}
std::array<std::int64_t, spec::kTierCount> Engine::arena_bytes() const noexcept {
  return impl_->arena_bytes();
}

}  // namespace sluice::train
