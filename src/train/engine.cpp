#include "train/engine.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.hpp"
#include "base/units.hpp"
#include "model/build.hpp"
#include "ops/convert.hpp"
#include "ops/fill.hpp"
#include "optim/loss_scale.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"

namespace sluice::train {

using chunks::Plane;
using schedule::BufferId;
using schedule::GraphKind;
using schedule::Role;
using spec::Tier;

namespace {
constexpr std::array<GraphKind, 5> kGraphs{GraphKind::kStep, GraphKind::kFlush, GraphKind::kEvaluate, GraphKind::kGenerate,
                                           GraphKind::kSave};
// Of a rank's swap files between two looks whether to go on: five seconds where eight ranks share a disk of 100 MB/s.
constexpr std::int64_t kFillBytes = 64 * kMiB;
constexpr std::int64_t kFillElements = 64 << 10;  // at a time, of pieces that are rounded
}  // namespace

struct Engine::Impl {
  explicit Impl(const EngineSetup& given)
      : setup(given),
        modules(parallel::make_unsharded_modules()),
        model(model::build_model(given.model, *modules)),
        grouping(given.trains ? optim::group_parameters(model, given.training) : optim::freeze_parameters(model, given.training.precision)),
        layout(model.params, grouping, given.plan.chunk_elements),
        ops(ops::make_cpu_context(given.plan.threads)) {
    ops.backend = given.backend;
    if (given.isa) {
      SLUICE_CHECK(*given.isa <= ops.isa, device::name_of(*given.isa), " on a processor with ", device::name_of(ops.isa));
      ops.isa = *given.isa;
    }
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
  std::vector<std::string> notes;
  std::optional<schedule::DiskState> disk;
  std::unique_ptr<schedule::Executor> executor;
  std::vector<HeldPiece> owned, held;
  /// A piece and where it begins: an element of its chunk, or a byte of its part.
  struct Placed {
    std::size_t piece;
    std::int64_t begin;
  };
  std::map<std::pair<Plane, int>, std::vector<Placed>> owned_of_chunk;
  /// This rank's part of a chunk's plane that stands on disk.
  struct DiskPart {
    BufferId id;
    std::int64_t bytes;  // perhaps 0
    std::int64_t room;   // what the largest rank's part takes
    std::vector<Placed> held;
  };
  std::vector<DiskPart> disk_parts;
  std::int64_t adam_count = 0;
  bool defers_updates = false;  // a step's updates are the next step's, so the flush graph has them too
  spec::UpdateInputs pending;
  std::optional<optim::LossScaler> scaler;
  int overflows = 0;  // in a row, without a scaler

  int ranks() const { return setup.group->size(); }
  int rank() const { return setup.group->rank(); }

  void build_graphs() {
    inputs = {.model = &model,
              .layout = &layout,
              .plan = setup.plan,
              .sequence_length = setup.training.batch.sequence_length,
              .ranks = ranks(),
              .document_attention = setup.training.document_attention,
              .needs_norm = optim::needs_norm(setup.training),
              .segments_between_agrees = setup.segments_between_agrees};
    for (const GraphKind kind : kGraphs) {
      if (!setup.trains && (kind == GraphKind::kStep || kind == GraphKind::kFlush)) continue;
      graphs.emplace(kind, schedule::build(kind, inputs));
    }
    defers_updates = setup.trains && contains(graphs.at(GraphKind::kFlush), schedule::TaskKind::kUpdate);
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
    const std::int64_t disk_budget = setup.swap ? kUnlimited : 0;  // how much there really is, the disks say
    ledger = std::make_unique<memory::Ledger>(std::array<std::int64_t, spec::kTierCount>{device_budget, kUnlimited, disk_budget});
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      reservations.push_back(ledger->reserve(tier, "the plan's arena", bytes[static_cast<std::size_t>(tier)]));
    }
    constexpr auto kHost = static_cast<std::size_t>(Tier::kHost);
    arenas[kHost] = std::make_unique<memory::Arena>(Tier::kHost, make_host_backing(bytes[kHost]));
  }

  static bool contains(const schedule::StepGraph& graph, schedule::TaskKind wanted) {
    return std::any_of(graph.tasks.begin(), graph.tasks.end(), [&](const schedule::Task& task) { return task.kind == wanted; });
  }

  std::unique_ptr<memory::Backing> make_host_backing(std::int64_t bytes) {
    const auto moves = [](const auto& graph) { return contains(graph.second, schedule::TaskKind::kMove); };
    if (std::none_of(graphs.begin(), graphs.end(), moves)) return memory::make_plain_backing(bytes, "host arena");
    memory::PinnedBacking pinned = memory::make_pinned_backing(bytes, "host arena");
    if (!pinned.note.empty()) notes.push_back(pinned.note);
    return std::move(pinned.backing);
  }

  bool uses_disk() const { return arena_bytes()[static_cast<std::size_t>(Tier::kDisk)] > 0; }

  /// Before any rank takes its share, one of each node looks whether there is room for all.
  void check_disks() const {
    if (!uses_disk() || setup.group->node_rank() != 0) return;
    std::vector<memory::SpaceClaim> claims = setup.swap->claims;
    const auto paths = static_cast<std::int64_t>(setup.swap->paths.size());
    std::int64_t share = arena_bytes()[static_cast<std::size_t>(Tier::kDisk)];
    if (paths > 1) share = round_up(divide_up(share, paths), setup.swap->engine.block_bytes);
    const int ranks_here = setup.group->node_size();
    for (const std::string& path : setup.swap->paths)
      claims.push_back(
          {path, cat("swap of ", ranks_here, ranks_here == 1 ? " rank" : " ranks"), ranks_here * (share + memory::kSwapHeaderBytes)});
    memory::check_free_space(claims);
  }

  /// Collective. The first writing goes piece by piece, so that none goes on long after another has failed or is asked to stop.
  void open_disks() {
    const std::int64_t bytes = arena_bytes()[static_cast<std::size_t>(Tier::kDisk)];  // the same on all ranks
    if (bytes == 0) return;
    memory::SwapSpace::Options options;
    options.paths = setup.swap->paths;
    options.identity = setup.swap->identity;
    options.extents = {{0, bytes}};
    options.engine = setup.swap->engine;
    options.allow_network = setup.swap->allow_network;
    std::optional<memory::SwapSpace> space;
    comm::all_or_none(*setup.group, [&] { space.emplace(memory::SwapSpace::create(options, *setup.swap->system)); });
    std::int64_t left = bytes;
    for (std::int64_t pieces = divide_up(bytes, kFillBytes); pieces > 0; --pieces) {
      comm::all_or_none(*setup.group, [&] {
        setup.swap->on_fill(bytes - std::min(left, bytes), bytes);
        do {
          if (left > 0) left = space->fill(std::min(left, kFillBytes));
        } while (pieces == 1 && left > 0);
      });
    }
    notes.insert(notes.end(), space->notes().begin(), space->notes().end());
    const std::vector<schedule::Buffer>& buffers = graphs.at(GraphKind::kSave).buffers;
    const auto persistent = std::count_if(buffers.begin(), buffers.end(), [](const schedule::Buffer& buffer) { return buffer.persistent; });
    comm::all_or_none(*setup.group, [&] { disk.emplace(std::move(*space), static_cast<std::size_t>(persistent)); });
  }

  /// The device arena stands in a window, so that the node's other ranks read shards and gradients where they are.
  void allocate_window() {
    const auto t = static_cast<std::size_t>(Tier::kDevice);
    arenas[t] = std::make_unique<memory::Arena>(Tier::kDevice, setup.group->allocate_window(arena_bytes()[t], "device arena"));
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
    env.disk = disk ? &*disk : nullptr;
    env.model = &model;
    env.layout = &layout;
    env.grouping = &grouping;
    env.optimizer = setup.training.optimizer;
    env.plan = setup.plan;
    env.sequence_length = setup.training.batch.sequence_length;
    env.document_attention = setup.training.document_attention;
    env.ops = ops;
    env.group = setup.group;
    env.trace = setup.trace;
    env.threading = setup.threading;
    env.skips_overflow = optim::skips_overflow(setup.training);
    env.poison = setup.poison;
    executor = std::make_unique<schedule::Executor>(env);
    for (const auto& [kind, graph] : graphs) executor->bind(graph);
  }

  /// Adds what of elements [begin, begin + count) of a chunk, standing at `data` (null: on disk), belongs to parameters.
  std::vector<Placed> add_pieces(std::vector<HeldPiece>& list, Plane plane, int chunk, std::int64_t begin, std::int64_t count,
                                 std::byte* data) const {
    std::vector<Placed> placed;
    const DType dtype = plane == Plane::kWorking ? layout.storage() : DType::kF32;
    for (const chunks::Slot& slot : layout.chunks()[static_cast<std::size_t>(chunk)].slots) {
      const std::int64_t from = std::max(begin, slot.offset);
      const std::int64_t to = std::min(begin + count, slot.offset + slot.elements);
      if (from >= to) continue;
      placed.push_back({list.size(), from});
      list.push_back({plane, slot.param, slot.param_begin + from - slot.offset, to - from, dtype,
                      data == nullptr ? nullptr : data + (from - begin) * size_of(dtype)});
    }
    return placed;
  }

  /// Where the chunks' planes stand between runs: what the save graph saves, and as working copies of a master what the step updates.
  void list_pieces() {
    const schedule::StepGraph& save = graphs.at(GraphKind::kSave);
    const std::map<BufferId, BufferId> saved_from = homes_behind(save);
    for (const schedule::Task& task : save.tasks) {
      if (task.kind != schedule::TaskKind::kForeign) continue;
      add_chunk(task.plane, task.chunk, home_of(save, saved_from, save.use_of(task, Role::kSource)->buffer), true);
    }
    if (!layout.has_master() || !setup.trains) return;
    const schedule::StepGraph& step = graphs.at(GraphKind::kStep);
    const std::map<BufferId, BufferId> updated_to = homes_behind(step);
    for (const schedule::Task& task : step.tasks) {
      if (task.kind != schedule::TaskKind::kUpdate) continue;
      add_chunk(Plane::kWorking, task.chunk, home_of(step, updated_to, step.use_of(task, Role::kTarget)->buffer), false);
    }
  }

  /// Of transient buffers the persistent one that a chunk's part is moved from or to.
  static std::map<BufferId, BufferId> homes_behind(const schedule::StepGraph& graph) {
    std::map<BufferId, BufferId> behind;
    for (const schedule::Task& task : graph.tasks) {
      if (task.kind != schedule::TaskKind::kMove || task.chunk < 0) continue;
      const BufferId from = graph.use_of(task, Role::kSource)->buffer, to = graph.use_of(task, Role::kTarget)->buffer;
      if (graph.buffers[from].persistent && !graph.buffers[to].persistent) behind[to] = from;
      if (graph.buffers[to].persistent && !graph.buffers[from].persistent) behind[from] = to;
    }
    return behind;
  }
  static BufferId home_of(const schedule::StepGraph& graph, const std::map<BufferId, BufferId>& behind, BufferId used) {
    if (graph.buffers[used].persistent) return used;
    const auto found = behind.find(used);
    SLUICE_CHECK(found != behind.end(), graph.buffer_name(used), " has no home");
    return found->second;
  }

  /// What this rank has of a chunk's plane, whose home is the persistent buffer `id`.
  void add_chunk(Plane plane, int index, BufferId id, bool is_owned) {
    const schedule::Buffer& buffer = graphs.at(GraphKind::kSave).buffers[id];
    const chunks::Chunk& chunk = layout.chunks()[static_cast<std::size_t>(index)];
    const std::int64_t element = layout.element_bytes(plane);
    const bool is_part = buffer.tier != Tier::kDevice || chunks::is_sharded(plane, setup.plan.zero_stage);  // not a run's whole plane
    const std::int64_t own = chunks::shard_begin(chunk.elements, rank(), ranks());
    const std::int64_t own_count = chunks::shard_begin(chunk.elements, rank() + 1, ranks()) - own;
    const bool has_all = !is_part || setup.plan.zero_stage == 0;
    const std::int64_t begin = has_all ? 0 : own, count = has_all ? chunk.elements : own_count;
    std::byte* data = nullptr;
    if (buffer.tier != Tier::kDisk)
      data = arenas[static_cast<std::size_t>(buffer.tier)]->at(buffer.offset, buffer.bytes) + (is_part ? 0 : chunk.run_offset * element);
    std::vector<Placed> placed = add_pieces(held, plane, index, begin, count, data);
    if (buffer.tier == Tier::kDisk) {
      for (Placed& each : placed) each.begin = (each.begin - begin) * element;
      disk_parts.push_back({id, count * element, buffer.copy_bytes(), std::move(placed)});
    }
    if (!is_owned) return;
    owned_of_chunk[{plane, index}] =
        add_pieces(owned, plane, index, own, own_count, data == nullptr ? nullptr : data + (own - begin) * element);
  }

  void fill(const PieceFill& fill) {
    std::vector<HeldPiece> batch;
    std::copy_if(held.begin(), held.end(), std::back_inserter(batch), [](const HeldPiece& piece) { return piece.data != nullptr; });
    if (disk_parts.empty()) return fill(batch);
    // Between runs nothing stands in the transient part of the host arena: as many parts at once as it has room for.
    const memory::Arena& arena = *arenas[static_cast<std::size_t>(Tier::kHost)];
    const schedule::StepGraph& save = graphs.at(GraphKind::kSave);
    const std::int64_t first = round_up(save.persistent_bytes[static_cast<std::size_t>(Tier::kHost)], schedule::kDiskAlignment);
    memory::IoTicket ticket;
    for (std::size_t next = 0; next < disk_parts.size();) {
      struct Staged {
        const DiskPart* part;
        std::byte* data;
      };
      std::vector<Staged> staged;
      for (std::int64_t at = first; next < disk_parts.size() && disk_parts[next].room <= arena.bytes() - at; ++next) {
        const DiskPart& part = disk_parts[next];
        std::byte* const data = arena.at(at, part.room);
        std::memset(data, 0, static_cast<std::size_t>(part.room));  // what belongs to no parameter is zero
        for (const Placed& each : part.held) {
          batch.push_back(held[each.piece]);
          batch.back().data = data + each.begin;
        }
        staged.push_back({&part, data});
        at += part.room;
      }
      SLUICE_CHECK(!staged.empty(), "no room in the host arena for ", disk_parts[next].room, " bytes on their way to the disk");
      fill(batch);
      batch.clear();
      for (const auto& [part, data] : staged) {
        if (part->bytes > 0) disk->post_write(ticket, part->id, save.buffers[part->id], data, part->bytes);
      }
      ticket.wait();
      for (const auto& [part, data] : staged) {
        if (part->bytes > 0) disk->commit(part->id, save.buffers[part->id]);
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
  comm::all_or_none(*setup.group, [&] {
    impl_->touch();
    impl_->check_disks();
  });
  impl_->open_disks();
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
std::int64_t Engine::bookkeeping_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [kind, graph] : impl_->graphs) bytes += graph.bookkeeping_bytes();
  return bytes;
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

const std::vector<std::string>& Engine::notes() const noexcept {
  return impl_->notes;
}

void Engine::initialise(std::uint64_t seed) {
  const ops::Context& ops = impl_->ops;
  comm::all_or_none(*impl_->setup.group, [&] {  // also since peers gather from these bytes
    fill([&](std::span<const HeldPiece> batch) {
      for (const HeldPiece& piece : batch) {
        const model::ParamSpec& param = impl_->model.params[static_cast<std::size_t>(piece.param)];
        fill_piece(piece, ops, [&](std::int64_t begin, std::int64_t count, float* values) {
          if (!piece.is_parameter()) return ops::fill(ops, values, count, 0.0F);
          model::initialise(ops, param, seed, begin, count, values);
        });
      }
    });
  });
  impl_->adam_count = 0;
  impl_->pending = {};
}

schedule::RunResult Engine::step(const StepRequest& request) {
  SLUICE_CHECK(impl_->setup.trains, "a step of an engine that doesn't train");
  schedule::RunInputs inputs;
  inputs.step.step = request.step;
  inputs.step.seed = impl_->setup.training.seed;
  inputs.load = request.load;
  inputs.stop = request.stop;
  const bool deferred = impl_->defers_updates;
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
  impl_->overflows = result.report.overflow && !impl_->scaler ? impl_->overflows + 1 : 0;
  if (impl_->overflows == kMostOverflows) {
    throw_on_all_ranks(
        DivergedError(cat("step ", request.step, ": the loss or a gradient isn't finite, and so it was in the ", kMostOverflows - 1,
                          " steps before, which were skipped; lower the learning rate or clip harder, and continue from the "
                          "last checkpoint")));
  }
  if (result.report.skipped) return result;
  impl_->adam_count += 1;
  if (deferred) impl_->pending = own;
  return result;
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

void Engine::fill(const PieceFill& fill) {
  impl_->fill(fill);
}

void Engine::save(const std::function<void(std::size_t, const void*)>& write) {
  flush();
  schedule::RunInputs inputs;
  inputs.save = [&](Plane plane, int chunk, std::int64_t begin, std::int64_t /*count*/, const void* data) {
    for (const Impl::Placed& each : impl_->owned_of_chunk.at({plane, chunk}))
      write(each.piece, static_cast<const std::byte*>(data) + (each.begin - begin) * impl_->layout.element_bytes(plane));
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
SwapBytes Engine::swap_bytes() const noexcept {
  if (!impl_->disk) return {};
  return {impl_->disk->space().bytes_read(), impl_->disk->space().bytes_written()};
}
std::array<std::int64_t, spec::kTierCount> Engine::arena_bytes() const noexcept {
  return impl_->arena_bytes();
}

}  // namespace sluice::train
