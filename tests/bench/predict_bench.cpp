// How well the simulator foresees: predicted beside measured step time over different plans, under mpirun.
//   predict_bench PRESET GLOBAL_BATCH SEQUENCE THREADS STEPS [NVME_PATH]
// The plans differ in ZeRO stage, micro-batch and its order, chunk size, recomputation, update mode, and in what stands in host memory and,
// with a path, on disk. STEPS of each are timed, in three turns. Prints each plan, the median error, the rank correlation (Spearman) and
// how far the search's choice is from the best measured; and the predicted process peak beside the measured one: the plan's arenas and
// what the profile found outside them against the resident high water of making the engine and running it, of the rank with most.
// Exit status 1 where the median error is above 15 %, the rank correlation below 0.8, or the choice more than 10 % above the best.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "bench/verdict.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "plan/search.hpp"
#include "profile/measure.hpp"
#include "schedule/price.hpp"
#include "schedule/simulate.hpp"
#include "spec/preset.hpp"
#include "train/engine.hpp"

namespace sluice {
namespace {

// Each plan is run in so many turns: what disturbs a turn then disturbs one part of one plan's steps, not all of them.
constexpr int kTurns = 3;

struct Outcome {
  std::string name;
  double predicted = 0;
  double measured = 0;
  std::int64_t predicted_bytes = 0;
  std::int64_t measured_bytes = 0;
  double time_error() const { return predicted / measured - 1; }
  double bytes_error() const { return static_cast<double>(predicted_bytes) / static_cast<double>(measured_bytes) - 1; }
};

/// Bytes of "Key:   123 kB" in /proc/self/status.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return std::atoll(line.c_str() + key.size()) * kKiB;
  }
  throw EnvironmentError(cat("/proc/self/status has no ", key));
}

/// The most bytes resident since it was made. A rank that reads another's window has its pages resident as well: they are the other's.
class PeakBytes {
 public:
  PeakBytes() {
    malloc_trim(0);  // what the search has given back
    std::ofstream file("/proc/self/clear_refs");
    if (!(file << 5 << std::flush)) throw EnvironmentError("/proc/self/clear_refs can't be written, so no peak is measured");
    shared_before_ = status_bytes("RssShmem:");
  }
  std::int64_t now(std::int64_t own_window) const {
    const std::int64_t shared = status_bytes("RssShmem:") - shared_before_;
    return status_bytes("VmHWM:") - std::max<std::int64_t>(0, shared - own_window);
  }

 private:
  std::int64_t shared_before_ = 0;
};

/// One plan of the comparison and the seconds of its steps so far.
struct Case {
  spec::Plan plan;
  Outcome outcome;
  std::vector<double> seconds;
};

/// The lower quartile, as the profile takes it.
double quartile_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

double spearman(const std::vector<Outcome>& outcomes) {
  std::vector<double> predicted, measured;
  for (const Outcome& o : outcomes) {
    predicted.push_back(o.predicted);
    measured.push_back(o.measured);
  }
  const std::vector<double> a = ranks_of(predicted), b = ranks_of(measured);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  const double n = static_cast<double>(a.size());
  return 1 - 6 * sum / (n * (n * n - 1));
}

void run(comm::Communicator& world, const train::EngineSetup& setup, const spec::MachineSpec& machine, int steps, Case& each) {
  const PeakBytes peak;
  train::Engine engine(setup);
  engine.initialise(1);
  const auto& graph = engine.graph(schedule::GraphKind::kStep);
  const auto prices = schedule::price_tasks(graph, engine.build_inputs(), machine);
  each.outcome.name = plan::describe(setup.plan);
  each.outcome.predicted =
      schedule::simulate(graph, prices, machine, {.ranks = world.size(), .threading = schedule::threading_of(graph)}).seconds;
  const std::int64_t rows = setup.plan.micro_batch, sequence = setup.training.batch.sequence_length;
  for (int s = 1; s <= steps + 2; ++s) {
    train::StepRequest request;
    request.step = s;
    request.learning_rate = 1e-4;
    request.load = [&](int micro, const schedule::TokenRows& out) {
      for (std::int64_t i = 0; i < rows * sequence; ++i) {
        out.inputs[i] = static_cast<std::int32_t>((i * 7919 + s + micro) % setup.model.vocab);
        out.targets[i] = static_cast<std::int32_t>((i * 104729 + s) % setup.model.vocab);
      }
      for (std::int64_t b = 0; b < rows; ++b) out.sample_ids[b] = s * rows + b;
      return rows * sequence;
    };
    world.barrier();
    const std::int64_t begin = now_ns();
    engine.step(request);
    if (s > 2) each.seconds.push_back(static_cast<double>(now_ns() - begin) * 1e-9);  // the first two warm up
  }
  const auto arenas = engine.arena_bytes();
  each.outcome.predicted_bytes = arenas[0] + arenas[1] + machine.unplanned_bytes + engine.bookkeeping_bytes();
  for (const std::string& bytes : world.all_gather(cat(peak.now(arenas[0]))))
    each.outcome.measured_bytes = std::max<std::int64_t>(each.outcome.measured_bytes, std::atoll(bytes.c_str()));
}

/// What a plan is pinned to, and whether it needs the disk.
struct Kind {
  plan::Choices pins;
  bool uses_disk = false;
};

/// Each way of keeping something off the device, alone and together.
std::vector<Kind> tiered_kinds() {
  using spec::Tier;
  using spec::UpdateMode;
  const auto layer_by_layer = spec::MicroBatchOrder::kLayerByLayer;
  return {
      {{.zero_stage = 0, .update_mode = UpdateMode::kAtEnd, .states = Tier::kHost}},
      {{.zero_stage = 2, .update_mode = UpdateMode::kNextForward, .states = Tier::kHost}},
      {{.zero_stage = 3, .update_mode = UpdateMode::kAtEnd, .working = Tier::kHost}},
      {{.zero_stage = 3, .update_mode = UpdateMode::kAtEnd, .working = Tier::kHost, .order = layer_by_layer}},
      {{.zero_stage = 0, .update_mode = UpdateMode::kAtEnd, .host_activations = true}},
      {{.zero_stage = 0, .update_mode = UpdateMode::kAtEnd, .states = Tier::kDisk}, true},
      {{.zero_stage = 2, .update_mode = UpdateMode::kNextForward, .states = Tier::kDisk}, true},
      {{.zero_stage = 3, .update_mode = UpdateMode::kNextForward, .states = Tier::kDisk, .working = Tier::kHost}, true},
      {{.zero_stage = 3, .update_mode = UpdateMode::kAtEnd, .working = Tier::kDisk}, true},
      {{.zero_stage = 3, .recompute = true, .working = Tier::kDisk, .order = layer_by_layer}, true},
  };
}

int main_of(int argc, char** argv) {
  if (argc != 6 && argc != 7) {
    std::fprintf(stderr, "usage: predict_bench PRESET GLOBAL_BATCH SEQUENCE THREADS STEPS [NVME_PATH]\n");
    return 2;
  }
  comm::MpiEnvironment mpi;
  const auto world = mpi.world();
  device::flush_denormals_on_this_thread();
  const auto device = device::make_cpu_device();
  train::EngineSetup setup;
  setup.model = spec::load_preset(argv[1], {SLUICE_SOURCE_DIR "/configs/models"});
  setup.training.batch.global_batch = std::atoll(argv[2]);
  setup.training.batch.sequence_length = std::atoll(argv[3]);
  setup.group = world.get();
  setup.device = device.get();
  const int threads = std::atoi(argv[4]), steps = std::atoi(argv[5]);
  std::vector<std::int64_t> rows;
  for (const auto& [micro, accumulation] : plan::micro_batches(setup.training.batch, world->size())) rows.push_back(micro);
  profile::MeasureRequest measuring{setup.model, setup.training.batch.sequence_length, rows, threads};
  if (argc == 7) {
    const std::string job = world->broadcast(cat("predict-bench-", getpid()), 0);
    measuring.disk = {.paths = {argv[6]}, .job = job};
    setup.swap.emplace();
    setup.swap->paths = {argv[6]};
    setup.swap->identity = {world->host_name(), job, world->rank()};
  }
  const profile::Measurement measurement = profile::measure(*world, measuring);
  if (world->rank() == 0) {
    for (const std::string& line : measurement.disk.lines) std::printf("%s\n", line.c_str());
    const spec::MachineSpec& m = measurement.machine;
    for (const auto& [name, cost] : {std::pair{"gather", m.gather}, {"scatter", m.scatter}}) {
      std::printf("%s: latency %.0f us, %.1f us of a core, %.2f GB/s; ", name, cost.latency_seconds * 1e6, cost.core_seconds * 1e6,
                  cost.bytes_per_second * 1e-9);
    }
    std::printf("agree %.0f us, wake %.1f us, skew %.0f us\n", m.agree_seconds * 1e6, m.wake_seconds * 1e6, m.skew_seconds * 1e6);
  }
  if (setup.swap) {
    const spec::DiskSpeed& disk = measurement.machine.disk;
    setup.swap->engine = {disk.block_bytes, disk.depth, disk.depth};
  }

  plan::PlanRequest request;
  request.model = setup.model;
  request.mesh.data = world->size();
  request.training = setup.training;
  request.machine = measurement.machine;
  request.budget = {4 * kGiB, 16 * kGiB * world->node_size(), argc == 7 ? 64 * kGiB * world->node_size() : 0};
  request.threads = threads;
  std::vector<Case> cases;
  const auto add = [&](const spec::Plan& plan) { cases.push_back({plan, {}, {}}); };
  // The same search on every rank, since the measurement is the same.
  add(plan::search(request).plan);  // the first case is the choice
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& [micro, accumulation] : plan::micro_batches(setup.training.batch, world->size())) {
      request.training.batch.micro_batch = micro;
      request.training.batch.accumulation = accumulation;
      request.pins = {};
      request.pins.zero_stage = stage;
      request.pins.recompute = (stage + micro) % 2 == 0;
      request.pins.update_mode = stage % 2 == 0 ? spec::UpdateMode::kAtEnd : spec::UpdateMode::kNextForward;
      request.pins.chunk_elements = std::array<std::int64_t, 4>{1 << 12, 1 << 15, 1 << 18, 1 << 20}[cases.size() % 4];
      add(plan::search(request).plan);
    }
  }
  for (const Kind& kind : tiered_kinds()) {
    if (kind.uses_disk && !setup.swap) continue;
    // Three micro-batches, or the next that divides: an order of them, and gradients that are added.
    const auto micros = plan::micro_batches(setup.training.batch, world->size());
    const auto several = std::find_if(micros.begin(), micros.end(), [](const auto& each) { return each.second >= 3; });
    const auto& [micro, accumulation] = several == micros.end() ? micros.back() : *several;
    request.training.batch.micro_batch = micro;
    request.training.batch.accumulation = accumulation;
    request.pins = kind.pins;
    add(plan::search(request).plan);
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Case& each : cases) {
      setup.plan = each.plan;
      run(*world, setup, measurement.machine, (steps + kTurns - 1) / kTurns, each);
    }
  }
  bool meets = true;
  if (world->rank() == 0) {
    std::vector<Outcome> outcomes;
    std::vector<double> errors, bytes_errors;
    for (Case& each : cases) {
      each.outcome.measured = quartile_of(each.seconds);
      const Outcome& o = each.outcome;
      std::printf("%s%s: predicted %.1f ms, measured %.1f ms, error %+.0f %%; peak predicted %s, measured %s, error %+.1f %%\n",
                  outcomes.empty() ? "chosen: " : "", o.name.c_str(), o.predicted * 1e3, o.measured * 1e3, 100 * o.time_error(),
                  format_bytes(o.predicted_bytes).c_str(), format_bytes(o.measured_bytes).c_str(), 100 * o.bytes_error());
      errors.push_back(std::abs(o.time_error()));
      bytes_errors.push_back(std::abs(o.bytes_error()));
      outcomes.push_back(o);
    }
    const double best = std::min_element(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) {
                          return a.measured < b.measured;
                        })->measured;
    std::sort(errors.begin(), errors.end());
    const double error = errors[errors.size() / 2], correlation = spearman(outcomes), above = outcomes[0].measured / best - 1;
    std::printf("%zu plans: median error %.0f %%, rank correlation %.2f, chosen plan %.0f %% above the best measured\n", outcomes.size(),
                100 * error, correlation, 100 * above);
    std::sort(bytes_errors.begin(), bytes_errors.end());
    std::printf("process peak: median error %.1f %%, worst %.1f %%; %s outside the arenas\n", 100 * bytes_errors[bytes_errors.size() / 2],
                100 * bytes_errors.back(), format_bytes(measurement.machine.unplanned_bytes).c_str());
    const auto with_digits = [](const char* format, double value) {
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), format, value);
      return std::string(text.data());
    };
    meets &= bench::verdict(error <= 0.15, with_digits("median error of step times %.1f %%", 100 * error), "at most 15 %");
    meets &= bench::verdict(correlation >= 0.8, with_digits("rank correlation %.3f", correlation), "at least 0.8");
    meets &= bench::verdict(above <= 0.1, with_digits("chosen plan %.1f %% above the best measured", 100 * above), "at most 10 %");
  }
  return world->broadcast(meets ? "meets" : "misses", 0) == "meets" ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "predict_bench: %s\n", error.what());
    std::_Exit(1);  // other ranks may be waiting for this one
  }
}
