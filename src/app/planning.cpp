#include "app/planning.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>

#include "app/environment.hpp"
#include "app/session.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
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

/// A cached measurement with this key, from the run directory or the user's cache. A damaged cache is measured anew.
std::optional<profile::Measurement> find_cached(const std::string& key, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::error_code error;
    if (file.empty() || !fs::exists(file, error)) continue;
    try {
      std::string found;
      profile::Measurement measurement = profile::measurement_from_json(read_file(file), file, found);
      if (found == key) return measurement;
    } catch (const Error&) {
      continue;  // what can be measured again isn't worth an error
    }
  }
  return std::nullopt;
}

/// The profile of these ranks, measured or cached; the same on all. Collective.
profile::Measurement profile_of(comm::Communicator& world, const Configuration& configuration, const spec::ModelSpec& model, int threads,
                                const std::string& run_file, Log& log) {
  profile::MeasureRequest request{model, configuration.training.batch.sequence_length,
                                  rows_to_time(configuration.training.batch, world.size()), threads};
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
    // Caches help the next run; this one doesn't need them.
    for (const std::string& file : {run_file, cache_file}) {
      if (file.empty()) continue;
      try {
        std::error_code error;
        fs::create_directories(fs::path(file).parent_path(), error);
        write_file_atomically(file, text);
      } catch (const Error& error) {
        log.warn(cat("the profile could not be kept: ", error.what()));
      }
    }
  }
  return measurement;
}

plan::Choices hints_of(const Configuration& configuration) {
  plan::Choices choices;
  if (configuration.hints.zero_stage) choices.zero_stage = static_cast<int>(*configuration.hints.zero_stage);
  return choices;
}

/// `--pin KEY`: what the file says under that key is kept.
plan::Choices pins_of(const Configuration& configuration) {
  plan::Choices choices;
  for (const std::string& pin : configuration.pins) {
    if (pin == "zero_optimization" || pin == "zero_optimization.stage") {
      if (!configuration.hints.zero_stage)
        throw RequestError(cat("--pin ", pin, ": the configuration says nothing about zero_optimization.stage that could be kept"));
      choices.zero_stage = static_cast<int>(*configuration.hints.zero_stage);
    } else {
      throw RequestError(cat("--pin ", pin, ": can't be pinned; known: zero_optimization. A whole plan is kept with --plan FILE"));
    }
  }
  return choices;
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
  request.hints = hints_of(configuration);
  request.pins = pins_of(configuration);
  return request;
}

/// Why a plan from a file can't serve this run; empty if it can.
std::string why_unfit(const plan::PlanRecord& record, const PlanningRequest& request, int ranks) try {
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
    return cat("it is for ", plan.threads, " threads a rank, ", request.configuration->threads, " are asked");
  if (plan.update_mode == spec::UpdateMode::kInBackward && optim::needs_norm(request.configuration->training))
    return "it updates in backward, which can neither clip nor skip an overflow";
  const auto modules = parallel::make_unsharded_modules();
  const model::Model model = model::build_model(*request.model, *modules);
  const chunks::ChunkLayout layout(model.params, optim::group_parameters(model, request.configuration->training), plan.chunk_elements);
  const schedule::StepGraph graph =
      schedule::build(schedule::GraphKind::kStep, {.model = &model,
                                                   .layout = &layout,
                                                   .plan = plan,
                                                   .sequence_length = batch.sequence_length,
                                                   .ranks = ranks,
                                                   .needs_norm = optim::needs_norm(request.configuration->training)});
  if (graph.arena_bytes[0] > request.budget.device_bytes) {
    return cat("it needs ", format_bytes(graph.arena_bytes[0]), " of device memory a rank, ", format_bytes(request.budget.device_bytes),
               " are left");
  }
  return {};
} catch (const OutOfMemory& error) {
  return error.what();  // an rCache smaller than what one segment needs
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
  comm::all_or_none(world, [&] {
    if (!root) return;
    std::error_code error;
    // The run's own plan comes first: a later attempt must not change the arithmetic under a run's feet.
    if (fs::exists(file, error)) {
      text = read_file(file);
      const std::string unfit = why_unfit(plan::plan_record_from_json(text, file), request, world.size());
      if (unfit.empty()) {
        keep = true;
        if (!configuration.plan_file.empty() &&
            !(plan::plan_record_from_json(read_file(configuration.plan_file), configuration.plan_file).plan ==
              plan::plan_record_from_json(text, file).plan)) {
          throw RequestError(cat("--plan ", configuration.plan_file, ": differs from the plan that this run began with, ", file,
                                 "; a run keeps its plan. Leave --plan out, or give another --output"));
        }
        log.note(cat("plan: as in ", file, " from the attempt before: ", plan::describe(plan::plan_record_from_json(text, file).plan)));
        return;
      }
      log.note(cat("plan: ", file, " can't be kept: ", unfit, "; planning anew"));
      text.clear();
    }
    if (!configuration.plan_file.empty()) {
      text = read_file(configuration.plan_file);
      const plan::PlanRecord record = plan::plan_record_from_json(text, configuration.plan_file);
      const std::string unfit = why_unfit(record, request, world.size());
      if (!unfit.empty()) throw RequestError(cat("--plan ", configuration.plan_file, ": ", unfit));
      log.note(cat("plan: from ", configuration.plan_file, ": ", plan::describe(record.plan)));
    }
  });
  text = world.broadcast(text, 0);
  Planned planned;
  if (text.empty()) {
    const profile::Measurement measurement =
        profile_of(world, configuration, *request.model, request.threads, request.directory->profile_file(), log);
    planned.machine = measurement.machine;
    comm::all_or_none(world, [&] {
      if (!root) return;
      const plan::PlanRequest search =
          plan_request(configuration, *request.model, measurement.machine, request.budget, request.threads, world.size());
      const plan::PlanResult result = plan::search(search);
      log.note(plan::explain(search, result));
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
  comm::all_or_none(world, [&] {
    if (root && !keep) write_file_atomically(file, text);
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
  const device::CpuFacts facts = device::read_cpu_facts();
  const int on_node = static_cast<int>(command.ranks_per_node.value_or(ranks));
  spec::MachineSpec machine;
  spec::Budget budget;
  int threads = threads_per_rank(configuration.threads, on_node, facts.cores, facts);
  if (!command.machine_file.empty()) {
    machine = spec::machine_spec_from_json(read_file(command.machine_file), command.machine_file);
    if (command.ranks_per_node) machine.ranks_per_node = on_node;
    budget.device_bytes = configuration.device_memory_bytes.value_or(machine.device_bytes);
    budget.host_bytes = configuration.host_memory_bytes.value_or(machine.host_bytes);
    if (configuration.threads == 0) threads = machine.threads_per_rank;
  } else {
    // Without MPI one rank measures this machine; others are taken to share its cores and memory.
    Log log({});
    const auto world = comm::make_single_rank();
    Configuration one = configuration;
    one.training.batch.micro_batch = 0;
    one.training.batch.accumulation = 0;
    machine = profile_of(*world, one, model, threads, {}, log).machine;
    machine.ranks_per_node = on_node;
    budget = resolve_budget(configuration, on_node, facts);
  }
  const plan::PlanRequest request = plan_request(configuration, model, machine, budget, threads, ranks);
  const plan::PlanResult result = plan::search(request);
  if (command.json) {
    print(plan::to_json(
        request, result,
        spec::to_json(train::signature_of(result.plan, configuration.training.precision, ops::make_cpu_context(result.plan.threads)))));
  } else {
    print(plan::explain(request, result));
  }
  if (configuration.dump_graph) {
    const auto modules = parallel::make_unsharded_modules();
    const model::Model built = model::build_model(model, *modules);
    const chunks::ChunkLayout layout(built.params, optim::group_parameters(built, configuration.training), result.plan.chunk_elements);
    schedule::build(schedule::GraphKind::kStep, {.model = &built,
                                                 .layout = &layout,
                                                 .plan = result.plan,
                                                 .sequence_length = configuration.training.batch.sequence_length,
                                                 .ranks = static_cast<int>(ranks),
                                                 .needs_norm = optim::needs_norm(configuration.training),
                                                 .segments_between_agrees = result.segments_between_agrees})
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
      threads = threads_per_rank(configuration.threads, world->node_size(), cores, device::read_cpu_facts());
      configuration.reprofile = true;
    });
    const profile::Measurement measurement = profile_of(*world, configuration, model, threads, {}, log);
    if (world->rank() == 0) print(spec::to_json(measurement.machine));
    return 0;
  } catch (const Error& error) {
    if (!error.is_agreed() || world->rank() == 0) log.error(error.what());
    if (!error.is_agreed()) world->abort(static_cast<int>(error.code()));
    return static_cast<int>(error.code());
  }
}

}  // namespace sluice::app
