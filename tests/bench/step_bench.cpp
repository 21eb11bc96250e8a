// Seconds of one training step of a preset, for a plan given by flags: under mpirun or alone.
//   step_bench PRESET ROWS SEQUENCE THREADS ZERO_STAGE STEPS [CHUNK_ELEMENTS [fp32|bf16|fp16]]

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "model/build.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/build.hpp"
#include "spec/preset.hpp"
#include "train/engine.hpp"

namespace sluice {
namespace {

class SpanTimes final : public TraceSink {
 public:
  void emit(const TraceSpan& span) noexcept override {
    if (!on || count >= spans.size()) return;
    spans[count.fetch_add(1)] = span;
  }
  std::vector<TraceSpan> spans = std::vector<TraceSpan>(200000);
  std::atomic<std::size_t> count{0};
  bool on = false;
};

int run(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: step_bench PRESET ROWS SEQUENCE THREADS ZERO_STAGE STEPS [CHUNK_ELEMENTS [fp32|bf16|fp16]]\n");
    return 2;
  }
  comm::MpiEnvironment mpi;
  const auto world = mpi.world();
  device::flush_denormals_on_this_thread();
  const auto device = device::make_cpu_device();
  SpanTimes spans;
  train::EngineSetup setup;
  setup.trace = &spans;
  setup.model = spec::load_preset(argv[1], {SLUICE_SOURCE_DIR "/configs/models"});
  // What it is compared with runs without dropout.
  setup.model.embedding_dropout = setup.model.attention_dropout = setup.model.residual_dropout = 0;
  const std::int64_t rows = std::atoll(argv[2]), sequence = std::atoll(argv[3]);
  setup.training.batch = {rows * world->size(), rows, 1, sequence};
  if (argc > 8) {
    const std::string_view wanted = argv[8];
    for (const auto precision : {spec::Precision::kFp32, spec::Precision::kBf16, spec::Precision::kFp16}) {
      if (name_of(precision) == wanted) setup.training.precision = precision;
    }
    if (name_of(setup.training.precision) != wanted) throw RequestError(cat("precision ", wanted, ": expected fp32, bf16 or fp16"));
  }
  setup.plan.micro_batch = rows;
  setup.plan.threads = std::atoi(argv[4]);
  setup.plan.zero_stage = std::atoi(argv[5]);
  setup.plan.mesh.data = world->size();
  setup.plan.chunk_elements = argc > 7 ? std::atoll(argv[7]) : 16 << 20;
  setup.plan.activations.assign(static_cast<std::size_t>(2 * setup.model.layers + 2), spec::Activation::kKeep);
  setup.plan.rcache_elements = std::int64_t{1} << 40;
  setup.group = world.get();
  setup.device = device.get();
  train::Engine engine(setup);
  engine.initialise(1);
  const int steps = std::atoi(argv[6]);
  std::vector<double> seconds;
  for (int s = 1; s <= steps; ++s) {
    train::StepRequest request;
    request.step = s;
    request.learning_rate = 1e-4;
    request.load = [&](int /*micro*/, const schedule::TokenRows& out) {
      for (std::int64_t i = 0; i < rows * sequence; ++i) {
        out.inputs[i] = static_cast<std::int32_t>((i * 7919 + s) % setup.model.vocab);
        out.targets[i] = static_cast<std::int32_t>((i * 104729 + s) % setup.model.vocab);
      }
      for (std::int64_t b = 0; b < rows; ++b) out.sample_ids[b] = s * rows + b;
      return rows * sequence;
    };
    spans.on = s == steps;
    const std::int64_t begin = now_ns();
    const auto result = engine.step(request);
    seconds.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
    if (world->rank() == 0) std::printf("step %d: %.1f ms, loss %.4f\n", s, seconds.back() * 1e3, result.report.loss);
  }
  if (world->rank() == 0) {
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    std::printf("median %.1f ms, %.1f tokens/s over %d ranks\n", median * 1e3,
                static_cast<double>(setup.training.batch.global_batch * sequence) / median, world->size());
    struct Sum {
      std::string name;
      double seconds = 0;
      int count = 0;
    };
    std::vector<Sum> sums;
    const auto& graph = engine.graph(schedule::GraphKind::kStep);
    for (std::size_t i = 0; i < spans.count; ++i) {
      const TraceSpan& span = spans.spans[i];
      const schedule::Task& task = graph.tasks[static_cast<std::size_t>(span.subject)];
      std::string name = std::string(schedule::name_of(task.lane)) + " " + span.name;
      if (task.kind == schedule::TaskKind::kCompute) {
        name += " " + std::string(model::name_of(task.phase)) + " " +
                std::string(model::name_of(engine.model().segments[static_cast<std::size_t>(task.segment)]->kind()));
      }
      auto at = std::find_if(sums.begin(), sums.end(), [&](const Sum& s) { return s.name == name; });
      if (at == sums.end()) at = sums.insert(sums.end(), {name});
      at->seconds += static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
      at->count += 1;
    }
    std::sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) { return a.seconds > b.seconds; });
    for (const Sum& sum : sums) std::printf("  %8.2f ms  %4d x %s\n", sum.seconds * 1e3, sum.count, sum.name.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::run(argc, argv);
}
