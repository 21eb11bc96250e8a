#include "app/planning.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "app/budget.hpp"
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

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

/// As a shell takes it for one word.
std::string quoted(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("-_=./,:+@%", c) != nullptr;
  });
  if (is_plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// What measures a request's ranks together and plans it for them, to be copied into a shell.
std::string commands_that_measure(const Command& command, std::int64_t ranks) {
  std::string words;
  for (const std::string& word : command.request_words) words += " " + quoted(word);
  const std::string per_node = command.ranks_per_node ? cat(" --ranks-per-node ", *command.ranks_per_node) : std::string();
  return cat("mpirun -n ", ranks, " sluice profile --json", words, " > machine.json && sluice plan", words,
             " --machine machine.json --ranks ", ranks, per_node);
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
  if (configuration.dry_run) {
    if (const auto batch = RunDirectory(configuration.output).global_batch()) keep_global_batch(configuration, *batch);
  }
  if (command.json && configuration.dump_graph)
    throw RequestError("--json and --dump-graph (sluice.dump_graph) both fill standard output; keep one of them");
  const spec::ModelSpec model = resolve_model(configuration);
  settle_model(configuration, model);
  Log log({.quiet = command.json});
  const device::CpuFacts facts = device::read_cpu_facts();
  const int on_node = static_cast<int>(command.ranks_per_node.value_or(ranks));
  const model::Model built = model::build_model(model, *parallel::make_unsharded_modules());
  spec::MachineSpec machine;
  spec::Budget budget;
  int threads = threads_per_rank(configuration.threads, on_node, facts.cores, facts);
  if (!command.machine.empty()) {
    machine = resolve_machine(command.machine);
    if (command.ranks_per_node) machine.ranks_per_node = on_node;
    budget.device_bytes = configuration.device_memory_bytes.value_or(machine.device_bytes);
    budget.host_bytes = configuration.host_memory_bytes.value_or(machine.host_bytes);
    if (!configuration.nvme_paths.empty()) {
      if (machine.disk.read_bytes_per_second <= 0 || machine.disk.write_bytes_per_second <= 0) {
        throw RequestError(cat("--machine ", command.machine,
                               ": says nothing about a disk (key \"disk\"), which --nvme-path needs; add it, or make the file with sluice "
                               "profile --nvme-path DIR there"));
      }
      budget.disk_bytes = configuration.nvme_space_bytes.value_or(machine.disk.free_bytes);
    }
    if (configuration.threads == 0) threads = machine.threads_per_rank;
  } else {
    if (!configuration.plan_file.empty()) read_given_plan(configuration);  // what is wrong with it is told before anything is measured
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
                   " ranks exchange has no price here, and each takes some 10 MiB more. For the plan of a run: ",
                   commands_that_measure(command, ranks)));
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
    schedule::BuildInputs inputs = bench.inputs(plan);
    inputs.segments_between_agrees = segments_between_agrees;
    schedule::build(schedule::GraphKind::kStep, inputs).dump(std::cout);
  }
  return 0;
}

int profile_command(const Command& command) {
  comm::MpiEnvironment mpi;
  const auto world = mpi.world();
  device::flush_denormals_on_this_thread();
  Log log({.rank = world->rank(), .aside = command.json});
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
    if (command.json) {
      print(spec::to_json(measurement.machine));
    } else {
      log.note("profile: --json prints it as a machine file, for sluice plan --machine FILE");
    }
    return 0;
  } catch (const Error& error) {
    if (!error.is_agreed() || world->rank() == 0) log.error(error.what());
    if (!error.is_agreed()) world->abort(static_cast<int>(error.code()));
    return static_cast<int>(error.code());
  }
}

}  // namespace sluice::app
