#include "app/planning.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "app/budget.hpp"
#include "app/configuration_keys.hpp"
#include "app/disk_need.hpp"
#include "app/environment.hpp"
#include "app/placement_choices.hpp"
#include "app/session.hpp"
#include "app/swap.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "comm/local/local_communicator.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "model/build.hpp"
#include "ops/context.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "plan/explain.hpp"
#include "plan/search.hpp"
#include "plan/workbench.hpp"
#include "profile/measure.hpp"
#include "profile/trace_file.hpp"
#include "schedule/build.hpp"
#include "schedule/simulate.hpp"
#include "train/engine.hpp"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

/// The row counts worth timing: every micro-batch that the request allows, at most four, the largest and smallest among them.
std::vector<std::int64_t> rows_to_time(const spec::BatchSpec& batch, std::int64_t ranks) {
  std::set<std::int64_t> rows;
  for (const auto& [micro, accumulation] : plan::micro_batches(batch, ranks)) rows.insert(micro);
  std::vector<std::int64_t> list(rows.begin(), rows.end());
  while (list.size() > 4) list.erase(list.begin() + static_cast<std::ptrdiff_t>(list.size()) / 2);
  return list;
}

/// Where measurements are kept between runs; empty where the user has no home.
std::string cache_folder() {
  const Environment environment = read_environment();
  if (const std::string given = value_of(environment, "XDG_CACHE_HOME"); !given.empty()) return given + "/sluice";
  const std::string home = value_of(environment, "HOME");
  return home.empty() ? std::string() : home + "/.cache/sluice";
}

/// A cached measurement with this key, from the run directory or the user's cache. A damaged cache is measured anew, and what was
/// disturbed.
std::optional<profile::Measurement> find_cached(const std::string& key, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::error_code error;
    if (file.empty() || !fs::exists(file, error)) continue;
    try {
      std::string found;
      profile::Measurement measurement = profile::measurement_from_json(read_text(file), file, found);
      if (found == key && measurement.unsteady.empty()) return measurement;
    } catch (const Error&) {
      continue;  // what can be measured again isn't worth an error
    }
  }
  return std::nullopt;
}

/// The profile of these ranks, measured or cached; the same on all. Collective. What speaks against the disks is left to the caller: an
/// engine that opens them says it again.
profile::Measurement profile_of(comm::Communicator& world, const Configuration& configuration, const spec::ModelSpec& model, int threads,
                                const std::string& swap_job, const std::string& run_file, Log& log) {
  profile::MeasureRequest request{model,
                                  configuration.training.batch.sequence_length,
                                  rows_to_time(configuration.training.batch, world.size()),
                                  threads,
                                  {configuration.nvme_paths, swap_job, configuration.nvme_network}};
  const std::string key = profile::cache_key(world, request);
  const std::string folder = cache_folder();
  const std::string cache_file = folder.empty() ? std::string() : cat(folder, "/profile-", Hash().add(key).hex(), ".json");
  std::string text;
  if (world.rank() == 0 && !configuration.reprofile) {
    if (const auto cached = find_cached(key, {run_file, cache_file})) text = profile::to_json(key, *cached);
  }
  text = world.broadcast(text, 0);
  std::string ignored;
  if (!text.empty()) {
    log.note("profile: measured before for these hosts and shapes (--reprofile measures again)");
  } else {
    log.note(cat("profile: measuring ", world.size(), " rank", world.size() == 1 ? "" : "s", " of ", threads, " thread",
                 threads == 1 ? "" : "s", " ..."));
    text = profile::to_json(key, profile::measure(world, request));
  }
  profile::Measurement measurement = profile::measurement_from_json(text, "the profile", ignored);
  if (world.rank() == 0) {
    const spec::MachineSpec& m = measurement.machine;
    log.note(cat("profile: ", m.device_name, " (", m.isa, "), ", m.cores_per_node, " cores; a core ",
                 static_cast<std::int64_t>(m.flops_per_core / 1e9), " GFLOP/s, memory ",
                 format_bytes(static_cast<std::int64_t>(m.memory_bytes_per_second)), "/s, optimizer ",
                 format_bytes(static_cast<std::int64_t>(m.update_bytes_per_second)), "/s a rank",
                 world.size() > 1 ? cat(", gather ", format_bytes(static_cast<std::int64_t>(m.gather.bytes_per_second)), "/s, reduce ",
                                        format_bytes(static_cast<std::int64_t>(m.scatter.bytes_per_second)), "/s")
                                  : std::string()));
    if (!measurement.spread.empty()) log.note(cat("profile: ", measurement.spread));
    if (!measurement.unsteady.empty()) {
      log.note(
          cat("profile: ", measurement.unsteady,
              "; something else seems to run on this machine. The plan rests on these figures, the next start measures again; once the "
              "machine is quiet --reprofile does"));
    }
    for (const std::string& line : measurement.disk.lines) log.note(cat("profile: ", line));
    // Caches help the next run; this one doesn't need them.
    for (const std::string& file : {run_file, cache_file}) {
      if (file.empty()) continue;
      try {
        std::error_code error;
        fs::create_directories(fs::path(file).parent_path(), error);
        write_durably(file, text);
      } catch (const Error& error) {
        log.warn(cat("the profile could not be kept: ", error.what()));
      }
    }
  }
  return measurement;
}

/// How swap files are read and written.
memory::FileEngine::Options engine_options(const Configuration& configuration, const spec::DiskSpeed& disk) {
  const AioHint& aio = configuration.hints.aio;
  memory::FileEngine::Options options;
  options.block_bytes = disk.block_bytes;
  options.read_depth = options.write_depth = disk.depth;
  if (aio.block_bytes && has_pin(configuration, {"aio", "aio.block_size"})) options.block_bytes = *aio.block_bytes;
  if (aio.queue_depth && has_pin(configuration, {"aio", "aio.queue_depth"}))
    options.read_depth = options.write_depth = static_cast<int>(*aio.queue_depth);
  return options;
}

plan::PlanRequest plan_request(const Configuration& configuration, const spec::ModelSpec& model, const spec::MachineSpec& machine,
                               const spec::Budget& budget, int threads, std::int64_t ranks) {
  plan::PlanRequest request;
  request.model = model;
  request.mesh = configuration.mesh;
  request.mesh.data = ranks;
  request.training = configuration.training;
  request.machine = machine;
  request.budget = budget;
  request.threads = threads;
  request.hints = hinted_choices(configuration);
  request.pins = pinned_choices(configuration);
  return request;
}

/// Whether a plan from a file can serve this run.
struct Fitness {
  std::string unfit;                                   // why not; empty: it can
  bool lacks_memory = false;                           // that is for want of device or host memory
  bool lacks_space = false;                            // that is for want of disk space
  std::array<std::int64_t, spec::kTierCount> bytes{};  // of each tier that a rank needs, the device's with what is outside the arenas

  std::int64_t disk_bytes() const { return bytes[static_cast<std::size_t>(spec::Tier::kDisk)]; }
};

/// Budgets that nobody gave follow what is free at the moment. A run's own plan that was made for a little more is kept, since another
/// could change bits.
spec::Budget for_own_plan(const PlanningRequest& request) {
  spec::Budget budget = request.budget;
  if (!request.configuration->device_memory_bytes) budget.device_bytes += budget.device_bytes / 10;
  if (!request.configuration->host_memory_bytes) budget.host_bytes += budget.host_bytes / 10;
  if (!request.configuration->nvme_space_bytes) budget.disk_bytes += budget.disk_bytes / 10;
  return budget;
}

std::string why_unfit(const plan::PlanRecord& record, const PlanningRequest& request, int ranks, Fitness& fitness) try {
  const spec::Plan& plan = record.plan;
  const spec::BatchSpec& batch = request.configuration->training.batch;
  if (plan.mesh.ranks() != ranks) return cat("it is for ", plan.mesh.ranks(), " ranks, here are ", ranks);
  if (plan.micro_batch * plan.accumulation * plan.mesh.data != batch.global_batch) {
    return cat("its batch of ", plan.micro_batch, " x ", plan.accumulation, " x ", plan.mesh.data, " isn't the global batch of ",
               batch.global_batch);
  }
  if (batch.micro_batch > 0 && batch.micro_batch != plan.micro_batch)
    return cat("its micro-batch is ", plan.micro_batch, ", ", batch.micro_batch, " is asked");
  if (static_cast<std::int64_t>(plan.activations.size()) != 2 * request.model->layers + 2)
    return cat("it is for a model of ", (static_cast<std::int64_t>(plan.activations.size()) - 2) / 2, " layers");
  if (request.configuration->threads > 0 && plan.threads != request.configuration->threads)
    return cat("it is for ", plan.threads, plan.threads == 1 ? " thread" : " threads", " a rank, ", request.configuration->threads,
               request.configuration->threads == 1 ? " is asked" : " are asked");
  if (plan.uses_tier(spec::Tier::kDisk) && request.configuration->nvme_paths.empty())
    return "it uses a disk, and no path is given; give --nvme-path DIR";
  if (std::string problem =
          plan::plan_problem(plan, plan_request(*request.configuration, *request.model, {}, request.budget, request.threads, ranks));
      !problem.empty()) {
    return problem;
  }
  const auto modules = parallel::make_unsharded_modules();
  const model::Model model = model::build_model(*request.model, *modules);
  const chunks::ChunkLayout layout(model.params, optim::group_parameters(model, request.configuration->training), plan.chunk_elements);
  const schedule::BuildInputs inputs{.model = &model,
                                     .layout = &layout,
                                     .plan = plan,
                                     .sequence_length = batch.sequence_length,
                                     .ranks = ranks,
                                     .document_attention = request.configuration->training.document_attention,
                                     .needs_norm = optim::needs_norm(request.configuration->training)};
  const schedule::SetBytes needed = schedule::bytes_of_set(schedule::build(schedule::GraphKind::kStep, inputs), inputs);
  const auto& bytes = needed.arenas;
  // A file from elsewhere may say nothing of what is outside the arenas; the graphs are for certain.
  const std::int64_t device_bytes =
      bytes[static_cast<std::size_t>(spec::Tier::kDevice)] + std::max(record.unplanned_bytes, needed.bookkeeping);
  if (device_bytes > request.budget.device_bytes) {
    fitness.lacks_memory = true;
    return cat("it needs ", format_bytes(device_bytes), " of device memory a rank, ", format_bytes(request.budget.device_bytes),
               " are left");
  }
  const auto on_node = [&](spec::Tier tier) { return bytes[static_cast<std::size_t>(tier)] * request.ranks_on_node; };
  if (plan.uses_tier(spec::Tier::kHost) || plan.uses_tier(spec::Tier::kDisk)) {
    if (on_node(spec::Tier::kHost) > request.budget.host_bytes) {
      fitness.lacks_memory = true;
      return cat("it needs ", format_bytes(on_node(spec::Tier::kHost)), " of host memory a node, ", format_bytes(request.budget.host_bytes),
                 " are left");
    }
    if (on_node(spec::Tier::kDisk) > request.budget.disk_bytes) {
      fitness.lacks_space = true;
      return cat("it needs ", format_bytes(on_node(spec::Tier::kDisk)), " of disk space a node, ", format_bytes(request.budget.disk_bytes),
                 " are left at ", joined(request.configuration->nvme_paths));
    }
  }
  fitness.bytes = {device_bytes, bytes[static_cast<std::size_t>(spec::Tier::kHost)], bytes[static_cast<std::size_t>(spec::Tier::kDisk)]};
  return {};
} catch (const OutOfMemory& error) {
  return error.what();  // an rCache smaller than what one segment needs
}

Fitness fitness_of(const plan::PlanRecord& record, const PlanningRequest& request, int ranks) {
  Fitness fitness;
  fitness.unfit = why_unfit(record, request, ranks, fitness);
  return fitness;
}

/// The threads of a run's own plan, which is kept whatever this attempt may use: other threads are other bits.
struct KeptThreads {
  std::string unfit;  // why they can't be kept; empty: they can
  std::string note;   // what to know where this attempt would have taken others
};
KeptThreads threads_of(const spec::Plan& plan, const PlanningRequest& request) {
  if (request.configuration->threads > 0 || plan.threads == request.threads) return {};
  const auto count = [](std::int64_t threads) { return cat(threads, threads == 1 ? " thread" : " threads"); };
  if (plan.threads < request.threads) {
    return {{},
            cat("plan: the run keeps ", count(plan.threads), " a rank, as it began, though it may use ", request.threads, "; --threads ",
                request.threads, " takes them, and then losses go on within tolerance, not to the bit")};
  }
  const std::int64_t wanted = std::int64_t{plan.threads} * request.ranks_on_node;
  if (wanted > request.cores_on_node) {
    return {cat("it is for ", count(plan.threads), " a rank, ", request.ranks_on_node, request.ranks_on_node == 1 ? " rank" : " ranks",
                " on a node that has ", request.cores_on_node, request.cores_on_node == 1 ? " core" : " cores"),
            {}};
  }
  return {{},
          cat("plan: the run keeps ", count(plan.threads), " a rank, as it began, though this attempt was given cores for ",
              request.threads, " and will be slow: give it more cores, or --threads ", request.threads,
              ", with which losses go on within tolerance, not to the bit")};
}

/// The disk of a profile that was kept; what suits most disks where there is none.
spec::DiskSpeed measured_disk(const std::string& profile_file) {
  std::error_code error;
  if (!fs::exists(profile_file, error)) return {};
  try {
    std::string key;
    return profile::measurement_from_json(read_text(profile_file), profile_file, key).machine.disk;
  } catch (const Error&) {
    return {};  // what can be measured again isn't worth an error
  }
}

/// A plan from a file that serves.
struct FoundPlan {
  std::string text;  // of the file
  plan::PlanRecord record;
  Fitness fitness;
  bool is_own = false;  // of an attempt before
};

/// The run's own plan, where `own_file` is there and the plan can be kept, else that of --plan FILE, which has to serve; says which it is,
/// and why the run's own isn't. None: there is none.
std::optional<FoundPlan> find_plan(const PlanningRequest& request, const std::string& own_file, int ranks, Log& log) {
  const std::string& given_file = request.configuration->plan_file;
  std::error_code error;
  // The run's own plan comes first: a later attempt must not change the arithmetic under a run's feet.
  if (!own_file.empty() && fs::exists(own_file, error)) {
    PlanningRequest own = request;
    own.budget = for_own_plan(request);
    FoundPlan found{read_text(own_file), {}, {}, true};
    found.record = plan::plan_record_from_json(found.text, own_file);
    found.fitness = fitness_of(found.record, own, ranks);
    const KeptThreads threads = threads_of(found.record.plan, request);
    const std::string& unfit = found.fitness.unfit.empty() ? threads.unfit : found.fitness.unfit;
    if (unfit.empty()) {
      if (!given_file.empty() && !(plan::plan_record_from_json(read_text(given_file), given_file).plan == found.record.plan)) {
        throw RequestError(cat("--plan ", given_file, ": differs from the plan that this run began with, ", own_file,
                               "; a run keeps its plan. Leave --plan out, or give another --output"));
      }
      log.note(cat("plan: as in ", own_file, " from the attempt before: ", plan::describe(found.record.plan)));
      if (!threads.note.empty()) log.note(threads.note);
      return found;
    }
    log.note(cat("plan: ", own_file, " can't be kept: ", unfit,
                 "; planning anew. Where that changes the arithmetic signature, losses go on within tolerance, not to the bit"));
  }
  if (given_file.empty()) return std::nullopt;
  FoundPlan found{read_text(given_file), {}, {}, false};
  found.record = plan::plan_record_from_json(found.text, given_file);
  found.fitness = fitness_of(found.record, request, ranks);
  const std::string problem = cat("--plan ", given_file, ": ", found.fitness.unfit);
  if (found.fitness.lacks_space) throw EnvironmentError(cat(problem, "; make room or choose another directory"));
  if (found.fitness.lacks_memory) throw EnvironmentError(problem);
  if (!found.fitness.unfit.empty()) throw RequestError(problem);
  log.note(cat("plan: from ", given_file, ": ", plan::describe(found.record.plan)));
  return found;
}

/// What a plan from a file needs of this machine, and how long its steps would take there.
std::string describe_need(const FoundPlan& found, const PlanningRequest& request, plan::Workbench& bench) {
  const auto bytes = [&](spec::Tier tier) { return found.fitness.bytes[static_cast<std::size_t>(tier)]; };
  std::string text = cat("  needs ", format_bytes(bytes(spec::Tier::kDevice)), " of ", format_bytes(request.budget.device_bytes),
                         " of device memory a rank, with what is outside the arenas");
  if (const std::int64_t host = bytes(spec::Tier::kHost) * request.ranks_on_node; request.budget.host_bytes > 0)
    text += cat("; ", format_bytes(host), " of ", format_bytes(request.budget.host_bytes), " of host memory a node");
  if (const std::int64_t disk = bytes(spec::Tier::kDisk) * request.ranks_on_node; disk > 0)
    text += cat("; ", format_bytes(disk), " of ", format_bytes(request.budget.disk_bytes), " of disk a node");
  schedule::BuildInputs inputs = bench.inputs(found.record.plan);
  inputs.segments_between_agrees = found.record.segments_between_agrees;
  const schedule::Simulation simulation = bench.simulate(schedule::build(schedule::GraphKind::kStep, inputs), inputs);
  return text + cat("\n  predicted: ", format_seconds(simulation.seconds), " a step; bound by ", schedule::name_of(simulation.bound), "\n");
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

}  // namespace

Planned plan_run(comm::Communicator& world, const PlanningRequest& request, Log& log) {
  const Configuration& configuration = *request.configuration;
  const bool root = world.rank() == 0;
  const std::string file = request.directory->plan_file();
  std::string text;  // of plan.json
  bool keep = false;
  std::int64_t disk_bytes = 0;
  spec::DiskSpeed disk;
  comm::all_or_none(world, [&] {
    if (!root) return;
    const std::optional<FoundPlan> found = find_plan(request, file, world.size(), log);
    if (!found) return;
    text = found->text;
    keep = found->is_own;
    disk_bytes = found->fitness.disk_bytes();
    if (keep) disk = measured_disk(request.directory->profile_file());
  });
  text = world.broadcast(text, 0);
  Planned planned;
  if (text.empty()) {
    const profile::Measurement measurement =
        profile_of(world, configuration, *request.model, request.threads, request.swap_job, request.directory->profile_file(), log);
    planned.machine = measurement.machine;
    disk = measurement.machine.disk;
    comm::all_or_none(world, [&] {
      if (!root) return;
      const plan::PlanRequest search =
          plan_request(configuration, *request.model, measurement.machine, request.budget, request.threads, world.size());
      const plan::PlanResult result = plan::search(search);
      log.note(plan::explain(search, result));
      disk_bytes = result.prediction.arena_bytes[static_cast<std::size_t>(spec::Tier::kDisk)];
      text = plan::to_json(
          search, result,
          spec::to_json(train::signature_of(result.plan, configuration.training.precision, ops::make_cpu_context(result.plan.threads))));
    });
    text = world.broadcast(text, 0);
  }
  const plan::PlanRecord record = plan::plan_record_from_json(text, file);
  planned.plan = record.plan;
  planned.segments_between_agrees = record.segments_between_agrees;
  planned.predicted_seconds = record.predicted_seconds;
  planned.graph_hash = record.graph_hash;
  std::istringstream of_root(world.broadcast(cat(disk_bytes, " ", disk.block_bytes, " ", disk.depth), 0));
  of_root >> planned.disk_bytes >> disk.block_bytes >> disk.depth;
  planned.engine = engine_options(configuration, disk);
  comm::all_or_none(world, [&] {
    if (root && !keep) write_durably(file, text);
  });
  return planned;
}

void write_trace(const Planned& planned, const train::Engine& engine, const profile::TraceRing& ring, const std::string& path) {
  const schedule::StepGraph& graph = engine.graph(schedule::GraphKind::kStep);
  std::optional<schedule::Simulation> predicted;
  if (!planned.machine.name.empty()) {
    const auto prices = schedule::price_tasks(graph, engine.build_inputs(), planned.machine);
    predicted = schedule::simulate(graph, prices, planned.machine, {.ranks = engine.build_inputs().ranks});
  }
  std::ofstream out(path);
  const auto measured = ring.last_steps(3);
  profile::write_trace(out, path, graph, predicted ? &*predicted : nullptr, measured, 0);
}

int plan_command(const Command& command) {
  const std::int64_t ranks = command.ranks.value_or(1);
  Configuration configuration = load_configuration(command.request, ranks, Demand::kPlan);
  const spec::ModelSpec model = resolve_model(configuration);
  settle_model(configuration, model);
  Log log({.quiet = command.json});
  const device::CpuFacts facts = device::read_cpu_facts();
  const int on_node = static_cast<int>(command.ranks_per_node.value_or(ranks));
  const model::Model built = model::build_model(model, *parallel::make_unsharded_modules());
  spec::MachineSpec machine;
  spec::Budget budget;
  int threads = threads_per_rank(configuration.threads, on_node, facts.cores, facts);
  if (!command.machine_file.empty()) {
    machine = spec::machine_spec_from_json(read_text(command.machine_file), command.machine_file);
    if (command.ranks_per_node) machine.ranks_per_node = on_node;
    budget.device_bytes = configuration.device_memory_bytes.value_or(machine.device_bytes);
    budget.host_bytes = configuration.host_memory_bytes.value_or(machine.host_bytes);
    if (!configuration.nvme_paths.empty()) {
      if (machine.disk.read_bytes_per_second <= 0 || machine.disk.write_bytes_per_second <= 0) {
        throw RequestError(cat(command.machine_file,
                               ": says nothing about a disk (key \"disk\"), which --nvme-path needs; add it, or make the file with sluice "
                               "profile --nvme-path DIR there"));
      }
      budget.disk_bytes = configuration.nvme_space_bytes.value_or(machine.disk.free_bytes);
    }
    if (configuration.threads == 0) threads = machine.threads_per_rank;
  } else {
    // Without MPI one rank measures this machine; others are taken to share its cores and memory.
    const auto world = comm::make_single_rank();
    Configuration one = configuration;
    one.training.batch.micro_batch = 0;
    one.training.batch.accumulation = 0;
    check_swap_paths(configuration);
    const std::int64_t claimed = remaining_need(configuration, built, configuration.steps.value_or(0));
    const std::int64_t disk =
        disk_budget(configuration, swap_rooms(configuration, configuration.output, claimed, divide_up(ranks, on_node)));
    const profile::Measurement measurement = profile_of(*world, one, model, threads, swap_job(read_environment()), {}, log);
    for (const std::string& warning : measurement.disk.warnings) log.warn(warning);
    if (command.json && !measurement.unsteady.empty()) log.warn(cat("profile: ", measurement.unsteady));  // else told already
    if (ranks > 1) {
      log.warn(cat("one rank measured this machine without MPI: what ", ranks,
                   " ranks exchange has no price here, and each takes some 10 MiB more. For the plan of a run: mpirun -n ", ranks,
                   " sluice profile > machine.json, and then sluice plan --machine machine.json"));
    }
    machine = measurement.machine;
    machine.ranks_per_node = on_node;
    budget = memory_budget(configuration, on_node, {facts, device::read_resident_bytes().proportional},
                           state_bytes(built, configuration.training));
    budget.disk_bytes = disk;
  }
  const plan::PlanRequest request = plan_request(configuration, model, machine, budget, threads, ranks);
  plan::Workbench bench(request);
  const PlanningRequest planning{.configuration = &configuration,
                                 .model = &model,
                                 .budget = budget,
                                 .threads = threads,
                                 .ranks_on_node = bench.ranks_per_node(),
                                 .cores_on_node = static_cast<int>(machine.cores_per_node)};
  const std::string own_file = configuration.dry_run ? RunDirectory(configuration.output).plan_file() : std::string();
  spec::Plan plan;
  int segments_between_agrees = 0;
  if (const std::optional<FoundPlan> found = find_plan(planning, own_file, static_cast<int>(ranks), log)) {
    plan = found->record.plan;
    segments_between_agrees = found->record.segments_between_agrees;
    print(command.json ? found->text : describe_need(*found, planning, bench));
  } else {
    const plan::PlanResult result = plan::search(request);
    plan = result.plan;
    segments_between_agrees = result.segments_between_agrees;
    print(command.json ? plan::to_json(request, result,
                                       spec::to_json(train::signature_of(plan, configuration.training.precision,
                                                                         ops::make_cpu_context(plan.threads))))
                       : plan::explain(request, result));
  }
  if (configuration.dump_graph) {
    const chunks::ChunkLayout layout(built.params, optim::group_parameters(built, configuration.training), plan.chunk_elements);
    schedule::build(schedule::GraphKind::kStep, {.model = &built,
                                                 .layout = &layout,
                                                 .plan = plan,
                                                 .sequence_length = configuration.training.batch.sequence_length,
                                                 .ranks = static_cast<int>(ranks),
                                                 .document_attention = configuration.training.document_attention,
                                                 .needs_norm = optim::needs_norm(configuration.training),
                                                 .segments_between_agrees = segments_between_agrees})
        .dump(std::cout);
  }
  return 0;
}

int profile_command(const Command& command) {
  comm::MpiEnvironment mpi;
  const auto world = mpi.world();
  device::flush_denormals_on_this_thread();
  Log log({.rank = world->rank(), .quiet = command.json});
  try {
    Configuration configuration;
    spec::ModelSpec model;
    int threads = 1;
    const int cores = profile::cores_of_node(*world);
    comm::all_or_none(*world, [&] {
      configuration = load_configuration(command.request, world->size(), Demand::kPlan);
      model = resolve_model(configuration);
      settle_model(configuration, model);
      check_swap_paths(configuration);
      threads = threads_per_rank(configuration.threads, world->node_size(), cores, device::read_cpu_facts());
      configuration.reprofile = true;
    });
    const std::string job = world->broadcast(swap_job(read_environment()), 0);
    const profile::Measurement measurement = profile_of(*world, configuration, model, threads, job, {}, log);
    if (world->rank() != 0) return 0;
    for (const std::string& warning : measurement.disk.warnings) log.warn(warning);
    if (command.json && !measurement.unsteady.empty()) log.warn(cat("profile: ", measurement.unsteady));  // else told already
    print(spec::to_json(measurement.machine));
    return 0;
  } catch (const Error& error) {
    if (!error.is_agreed() || world->rank() == 0) log.error(error.what());
    if (!error.is_agreed()) world->abort(static_cast<int>(error.code()));
    return static_cast<int>(error.code());
  }
}

}  // namespace sluice::app
