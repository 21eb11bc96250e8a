// Seconds of one training step of a preset, for a plan given by flags: under mpirun or alone.
//   step_bench PRESET ROWS SEQUENCE THREADS ZERO_STAGE STEPS [CHUNK_ELEMENTS [fp32|bf16|fp16 [avx2]]]
// With avx2 our kernels use nothing wider; oneDNN wants ONEDNN_MAX_CPU_ISA=AVX2 for that.
//
// Also where the time goes that isn't a task's own. A step's critical path, followed back from its end, is tasks (those of communication
// from posting to completion, so with the waiting for other ranks) and, before each, the time from the end of the last one it needed to its
// beginning: that is the executor's, or the waking of a thread where the two ran on different ones. Median of the steps after the second.
// Exit status 1 where the executor's part of rank 0 is 3 % or more. Waking isn't in that figure: it is the system's, and stands beside it.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"
#include "bench/verdict.hpp"
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
    const std::size_t at = count.fetch_add(1);
    if (at < spans.size()) spans[at] = span;
  }
  std::vector<TraceSpan> spans = std::vector<TraceSpan>(200000);
  std::atomic<std::size_t> count{0};
};

/// Seconds of one step's critical path.
struct Path {
  double executor = 0, waking = 0, computing = 0, communicating = 0;
};

Path critical_path(const schedule::StepGraph& graph, const SpanTimes& spans, int ranks, std::int64_t begin, std::int64_t end) {
  SLUICE_CHECK(spans.count <= spans.spans.size(), spans.count.load(), " spans");
  std::vector<const TraceSpan*> of_task(graph.tasks.size(), nullptr);
  for (std::size_t i = 0; i < spans.count; ++i) of_task[static_cast<std::size_t>(spans.spans[i].subject)] = &spans.spans[i];
  const auto communicates = [&](schedule::TaskId id) { return ranks > 1 && schedule::is_communication(graph.tasks[id].lane); };
  // What comes before a task on its thread: nothing moves here, so one thread computes and, with several ranks, another communicates, which
  // posts each lane's tasks in order without waiting for their ends.
  std::vector<const TraceSpan*> before(graph.tasks.size(), nullptr);
  std::map<int, const TraceSpan*> last_of;
  const TraceSpan* current = nullptr;
  for (schedule::TaskId id = 0; id < graph.tasks.size(); ++id) {
    if (of_task[id] == nullptr) continue;
    if (current == nullptr || of_task[id]->end_ns > current->end_ns) current = of_task[id];
    const TraceSpan*& last = last_of[communicates(id) ? static_cast<int>(graph.tasks[id].lane) : -1];
    before[id] = std::exchange(last, of_task[id]);
  }
  Path path;
  std::int64_t later = end;
  bool on_comm = false;  // what begins at `later`; the step itself on the computing thread
  for (bool from_end = true; current != nullptr;) {
    const auto id = static_cast<schedule::TaskId>(current->subject);
    (communicates(id) == on_comm ? path.executor : path.waking) +=
        static_cast<double>(later - (from_end ? current->end_ns : current->begin_ns)) * 1e-9;
    on_comm = communicates(id);
    if (from_end)
      (communicates(id) ? path.communicating : path.computing) += static_cast<double>(current->end_ns - current->begin_ns) * 1e-9;
    later = current->begin_ns;
    current = before[id];
    from_end = !communicates(id);
    std::int64_t latest = current == nullptr ? 0 : from_end ? current->end_ns : current->begin_ns;
    for (const schedule::TaskId wait : graph.waits_of(graph.tasks[id])) {
      if (of_task[wait] == nullptr || of_task[wait]->end_ns < latest) continue;
      current = of_task[wait];
      from_end = true;
      latest = current->end_ns;
    }
  }
  (on_comm ? path.waking : path.executor) += static_cast<double>(later - begin) * 1e-9;
  return path;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string percent(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %%", 100 * part);
  return text.data();
}

int run(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: step_bench PRESET ROWS SEQUENCE THREADS ZERO_STAGE STEPS [CHUNK_ELEMENTS [fp32|bf16|fp16 [avx2]]]\n");
    return 2;
  }
  const int steps = std::atoi(argv[6]);
  if (steps < 3) throw RequestError(cat(steps, " steps: the first two warm up, so at least 3"));
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
  if (argc > 9) {
    if (std::string_view(argv[9]) != "avx2") throw RequestError(cat("instructions ", argv[9], ": expected avx2"));
    setup.isa = device::Isa::kAvx2;
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
  std::vector<double> seconds, executor, waking, computing, communicating;
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
    spans.count = 0;
    world->barrier();
    const std::int64_t begin = now_ns();
    const auto result = engine.step(request);
    const std::int64_t end = now_ns();
    seconds.push_back(static_cast<double>(end - begin) * 1e-9);
    if (s > 2) {
      const Path path = critical_path(engine.graph(schedule::GraphKind::kStep), spans, world->size(), begin, end);
      executor.push_back(path.executor / seconds.back());
      waking.push_back(path.waking / seconds.back());
      computing.push_back(path.computing / seconds.back());
      communicating.push_back(path.communicating / seconds.back());
    }
    if (world->rank() == 0) std::printf("step %d: %.1f ms, loss %.4f\n", s, seconds.back() * 1e3, result.report.loss);
  }
  bool meets = true;
  if (world->rank() == 0) {
    const double step = median(seconds);
    std::printf("median %.1f ms, %.1f tokens/s over %d ranks\n", step * 1e3,
                static_cast<double>(setup.training.batch.global_batch * sequence) / step, world->size());
    std::printf(
        "critical path of rank 0: %.2f %% executor, %.2f %% waking, %.1f %% computing, %.1f %% communicating and waiting for others\n",
        100 * median(executor), 100 * median(waking), 100 * median(computing), 100 * median(communicating));
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
    meets = bench::verdict(median(executor) < 0.03,
                           cat("executor overhead ", percent(median(executor)),
                               " of a step, without the waking of threads, which takes another ", percent(median(waking))),
                           "less than 3 %");
  }
  return world->broadcast(meets ? "meets" : "misses", 0) == "meets" ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    std::_Exit(1);  // other ranks may be waiting for this one
  }
}
