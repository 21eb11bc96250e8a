// How fast step graphs are built and placed, what proving them costs, what they take, and how much of their arenas placement leaves unused.
//   graph_bench PRESET RANKS ROWS SEQUENCE ACCUMULATION CHUNK_ELEMENTS

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "base/units.hpp"
#include "device/cpu/cpu_device.hpp"
#include "schedule/check.hpp"
#include "spec/preset.hpp"
#include "support/home_cases.hpp"

namespace sluice {
namespace {

/// Of this thread, so that what else runs on the machine doesn't count.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename T>
std::int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<std::int64_t>(values.capacity() * sizeof(T));
}

int run(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: graph_bench PRESET RANKS ROWS SEQUENCE ACCUMULATION CHUNK_ELEMENTS\n");
    return 2;
  }
  const spec::ModelSpec model = spec::load_preset(argv[1], {SLUICE_SOURCE_DIR "/configs/models"});
  spec::TrainingSpec training;
  training.optimizer.weight_decay = 0.1;
  training.batch.sequence_length = std::atoll(argv[4]);
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto mode : {spec::UpdateMode::kAtEnd, spec::UpdateMode::kNextForward, spec::UpdateMode::kInBackward}) {
      // Everything on the device, with and without recomputing; with all that the stage allows on disk.
      for (const std::string_view what : {"keep", "recompute", "offload"}) {
        training.optimizer.gradient_clipping = mode == spec::UpdateMode::kInBackward ? 0 : 1;
        spec::Plan plan;
        plan.zero_stage = stage;
        plan.mesh.data = std::atoll(argv[2]);
        plan.micro_batch = std::atoll(argv[3]);
        plan.accumulation = std::atoll(argv[5]);
        plan.chunk_elements = std::atoll(argv[6]);
        plan.update_mode = mode;
        plan.threads = 1;
        plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2),
                                what == "recompute" ? spec::Activation::kRecompute : spec::Activation::kKeep);
        if (what == "offload") plan = testing::with_homes(model, training, plan, {testing::homes_of_stage(stage, mode).back()});
        const testing::GraphInputs inputs(model, training, plan);
        const double begin = cpu_seconds();
        const schedule::StepGraph graph = inputs.build(schedule::GraphKind::kStep);
        const double seconds = cpu_seconds() - begin;
        const auto timed = [](const auto& check) {
          const double start = cpu_seconds();
          check();
          return 1e3 * (cpu_seconds() - start);
        };
        const schedule::StepGraph* const one = &graph;
        const double order = timed([&] { schedule::check_order(graph); }), races = timed([&] { schedule::check_races(graph); });
        const double cancel = timed([&] { schedule::check_cancel(graph); }), meetings = timed([&] { schedule::check_meetings({&one, 1}); });
        const auto device = static_cast<std::size_t>(spec::Tier::kDevice);
        const std::int64_t transient = graph.arena_bytes[device] - graph.persistent_bytes[device], live = graph.live_bytes_peak[device];
        const std::int64_t graph_bytes = bytes_of(graph.tasks) + bytes_of(graph.buffers) + bytes_of(graph.uses) + bytes_of(graph.waits);
        std::printf(
            "stage %d %-12s %-9s %8zu tasks %8zu buffers %8zu waits  %7.0f k tasks/s  graph %s  persistent %s transient %s live %s waste "
            "%.2f %%  proofs: order %.1f races %.1f cancel %.1f meetings %.1f ms\n",
            stage, std::string(name_of(mode)).c_str(), what.data(), graph.tasks.size(), graph.buffers.size(), graph.waits.size(),
            static_cast<double>(graph.tasks.size()) / seconds * 1e-3, format_bytes(graph_bytes).c_str(),
            format_bytes(graph.persistent_bytes[device]).c_str(), format_bytes(transient).c_str(), format_bytes(live).c_str(),
            100.0 * (static_cast<double>(transient) / static_cast<double>(live) - 1), order, races, cancel, meetings);
      }
    }
  }
  std::printf("process at most %s resident\n", format_bytes(device::read_resident_bytes().peak).c_str());
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "graph_bench: %s\n", error.what());
    return 1;
  }
}
