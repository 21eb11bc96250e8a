#include "app/found_plan.hpp"

#include <algorithm>
#include <filesystem>

#include "app/configuration_keys.hpp"
#include "app/placement_choices.hpp"
#include "app/session.hpp"
#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "model/build.hpp"
#include "ops/context.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/build.hpp"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

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
  if (plan.threads > ops::most_threads())
    return {cat("it is for ", plan.threads, " threads a rank, OMP_THREAD_LIMIT lets it have ", ops::most_threads()), {}};
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

}  // namespace

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

FoundPlan read_given_plan(const Configuration& configuration) {
  FoundPlan given;
  given.text = named_input(configuration.plan_key, "give the plan.json of a run, or leave it out to have a plan searched",
                           [&] { return read_text(configuration.plan_file); });
  given.record = plan::plan_record_from_json(given.text, configuration.plan_file);
  return given;
}

std::optional<FoundPlan> find_plan(const PlanningRequest& request, const std::string& own_file, int ranks, Log& log) {
  const std::string& given_file = request.configuration->plan_file;
  std::error_code error;
  // The run's own plan comes first: a later attempt must not change the arithmetic under a run's feet.
  if (!own_file.empty() && fs::exists(own_file, error)) {
    PlanningRequest own = request;
    own.budget = for_own_plan(request);
    FoundPlan found{read_text(own_file), {}, {}, true};
    try {
      found.record = plan::plan_record_from_json(found.text, own_file);
    } catch (const FormatError& damage) {
      throw Error(damage.code(), cat(damage.what(),
                                     "; put a copy of it back, or remove it: the run then plans anew, maybe otherwise. The plan "
                                     "as it was also stands in the manifest.json of every checkpoint"));
    }
    found.fitness = fitness_of(found.record, own, ranks);
    const KeptThreads threads = threads_of(found.record.plan, request);
    const std::string& unfit = found.fitness.unfit.empty() ? threads.unfit : found.fitness.unfit;
    if (unfit.empty()) {
      if (!given_file.empty() && !(read_given_plan(*request.configuration).record.plan == found.record.plan)) {
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
  FoundPlan found = read_given_plan(*request.configuration);
  found.fitness = fitness_of(found.record, request, ranks);
  const std::string problem = cat("--plan ", given_file, ": ", found.fitness.unfit);
  if (found.fitness.lacks_space) throw EnvironmentError(cat(problem, "; make room or choose another directory"));
  if (found.fitness.lacks_memory) throw EnvironmentError(problem);
  if (!found.fitness.unfit.empty()) throw RequestError(problem);
  log.note(cat("plan: from ", given_file, ": ", plan::describe(found.record.plan)));
  return found;
}

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

}  // namespace sluice::app
