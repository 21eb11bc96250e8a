// What hiding the disk is worth: seconds of one step of a preset whose optimizer states live on disk, for each update mode and for
// a synchronous swap, beside what the busiest resource alone would need for the same work.
//
//   BUILD/bench/tiers_bench PRESET ROWS SEQUENCE ACCUMULATION THREADS ROUNDS DIRECTORY [CHUNK_ELEMENTS [fp32|bf16]]
//
// Alone or under mpirun. All plans are measured in one run, in turns: each round does, one after the other,
//   cores         a step with everything on the device: computing and updating, no byte moved
//   disk          the very transfers of a step, reads and writes at once, through the file engine, with nothing else going on
//   synchronous   at_end, and each chunk's states are read, updated and written one after the other when the backward is over: what
//                 ZeRO-Infinity's swapper does at the end of a step without its pipelining. The same graph and executor as at_end, with a
//                 wait more for every read: for the writes of the chunk before it, the first one's for the norm. The spans of each such
//                 step are checked for it.
//   at_end, next_forward, in_backward   as the plans say, with states two chunks ahead
// and medians are printed. A step can't be faster than the larger of the first two; the last column is the ratio to that.
//
// DIRECTORY must be on a disk. All engines stay in memory at once: in fp32 about 50 bytes a parameter, on disk 80.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "memory/arena.hpp"
#include "memory/io/swap_space.hpp"
#include "model/build.hpp"
#include "optim/policy.hpp"
#include "parallel/unsharded.hpp"
#include "spec/preset.hpp"
#include "train/engine.hpp"

namespace sluice {
namespace {

using schedule::Lane;
using schedule::Role;
using schedule::StepGraph;
using schedule::Task;
using schedule::TaskId;
using schedule::TaskKind;

struct Request {
  spec::ModelSpec model;
  spec::TrainingSpec training;
  std::int64_t rows = 1, accumulation = 1, chunk_elements = 4 << 20;
  int threads = 1, rounds = 5;
  std::string directory;
};

/// Begin and end of each task of the last step.
class Spans final : public TraceSink {
 public:
  void emit(const TraceSpan& span) noexcept override {
    const std::size_t at = count_.fetch_add(1);
    if (at < spans_.size()) spans_[at] = span;
  }
  void clear() { count_ = 0; }
  std::map<TaskId, std::pair<std::int64_t, std::int64_t>> by_task() const {
    SLUICE_CHECK(count_ <= spans_.size(), count_.load(), " spans");
    std::map<TaskId, std::pair<std::int64_t, std::int64_t>> times;
    for (std::size_t i = 0; i < count_; ++i) times[static_cast<TaskId>(spans_[i].subject)] = {spans_[i].begin_ns, spans_[i].end_ns};
    return times;
  }

 private:
  std::vector<TraceSpan> spans_ = std::vector<TraceSpan>(100000);
  std::atomic<std::size_t> count_{0};
};

/// An update with the disk's moves before and after it.
struct MovedUpdate {
  TaskId update = schedule::kNone;
  std::vector<TaskId> in, out;
};

std::vector<MovedUpdate> moved_updates(const StepGraph& graph) {
  std::vector<MovedUpdate> updates;
  std::map<int, std::vector<TaskId>> in;  // by chunk
  std::map<int, std::size_t> done;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    if (task.kind == TaskKind::kUpdate) {
      done[task.chunk] = updates.size();
      updates.push_back({id, in[task.chunk], {}});
    }
    if (task.kind == TaskKind::kMove && task.lane == Lane::kDiskRead) in[task.chunk].push_back(id);
    if (task.kind == TaskKind::kMove && task.lane == Lane::kDiskWrite) updates[done.at(task.chunk)].out.push_back(id);
  }
  return updates;
}

/// Makes the reads before an update wait for the writes after the update before it, and the first ones for the norm.
void make_synchronous(StepGraph& graph) {
  std::vector<std::vector<TaskId>> more(graph.tasks.size());
  std::vector<TaskId> before;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    if (graph.tasks[id].kind == TaskKind::kNorm && graph.tasks[id].chunk < 0) before = {id};
  }
  for (const MovedUpdate& each : moved_updates(graph)) {
    for (const TaskId id : each.in) more[id] = before;
    before = each.out;
  }
  std::vector<TaskId> waits;
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    Task& task = graph.tasks[id];
    const auto old = graph.waits_of(task);
    const auto first = static_cast<std::uint32_t>(waits.size());
    waits.insert(waits.end(), old.begin(), old.end());
    waits.insert(waits.end(), more[id].begin(), more[id].end());
    task.first_wait = first;
    task.wait_count = static_cast<std::uint32_t>(waits.size()) - first;
  }
  graph.waits = std::move(waits);
}

/// That nothing of the disk went on beside computing, updating or the other direction.
void check_synchronous(const StepGraph& graph, const Spans& spans) {
  const auto times = spans.by_task();
  std::int64_t at = 0;  // when all before was over
  for (const auto& [id, span] : times) {
    if (graph.tasks[id].kind == TaskKind::kCompute) at = std::max(at, span.second);
  }
  const auto follow = [&](const std::vector<TaskId>& tasks, const char* what) {
    std::int64_t end = at;
    for (const TaskId id : tasks) {
      SLUICE_CHECK(times.at(id).first >= at, what, " of ", graph.task_name(id), " began ", at - times.at(id).first, " ns early");
      end = std::max(end, times.at(id).second);
    }
    at = end;
  };
  for (const MovedUpdate& each : moved_updates(graph)) {
    follow(each.in, "reading");
    follow({each.update}, "updating");
    follow(each.out, "writing");
  }
}

/// One plan with an engine that lives through all rounds.
class Runner {
 public:
  Runner(const Request& request, comm::Communicator& world, device::Device& device, std::string name, spec::UpdateMode mode, bool on_disk,
         bool synchronous)
      : request_(request), world_(world), name_(std::move(name)), synchronous_(synchronous) {
    train::EngineSetup setup;
    setup.model = request.model;
    setup.training = request.training;
    setup.trace = &spans_;
    setup.group = &world;
    setup.device = &device;
    spec::Plan& plan = setup.plan;
    plan.zero_stage = world.size() == 1 ? 0 : 1;
    plan.mesh.data = world.size();
    plan.chunk_elements = request.chunk_elements;
    plan.micro_batch = request.rows;
    plan.accumulation = request.accumulation;
    plan.threads = request.threads;
    plan.update_mode = mode;
    plan.state_prefetch = synchronous ? 0 : 2;
    plan.activations.assign(static_cast<std::size_t>(2 * request.model.layers + 2), spec::Activation::kKeep);
    if (on_disk) {
      const auto modules = parallel::make_unsharded_modules();
      const model::Model model = model::build_model(request.model, *modules);
      const chunks::ChunkLayout layout(model.params, optim::group_parameters(model, request.training), request.chunk_elements);
      plan.homes.assign(layout.chunks().size(), {spec::Tier::kDevice, spec::Tier::kDevice, spec::Tier::kDisk});
      setup.swap.emplace();
      setup.swap->paths = {request.directory};
      setup.swap->identity = {"tiers-bench", cat(::getpid(), "-", name_), world.rank()};
    }
    engine_ = std::make_unique<train::Engine>(setup);
    engine_->initialise(1);
    // The executor reads the waits of the engine's own graph when it runs.
    if (synchronous) make_synchronous(const_cast<StepGraph&>(engine_->graph(schedule::GraphKind::kStep)));
  }

  /// Seconds of one step.
  double step() {
    train::StepRequest request;
    request.step = ++step_;
    request.learning_rate = 1e-4;
    const std::int64_t rows = request_.rows, sequence = request_.training.batch.sequence_length;
    request.load = [&](int micro, const schedule::TokenRows& out) {
      for (std::int64_t i = 0; i < rows * sequence; ++i) {
        out.inputs[i] = static_cast<std::int32_t>((i * 7919 + step_ + micro) % request_.model.vocab);
        out.targets[i] = static_cast<std::int32_t>((i * 104729 + step_) % request_.model.vocab);
      }
      for (std::int64_t b = 0; b < rows; ++b) out.sample_ids[b] = step_ * rows + b;
      return rows * sequence;
    };
    spans_.clear();
    const train::SwapBytes before = engine_->swap_bytes();
    world_.barrier();
    const std::int64_t begin = now_ns();
    engine_->step(request);
    world_.barrier();
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    const train::SwapBytes after = engine_->swap_bytes();
    moved_ = {after.read - before.read, after.written - before.written};
    if (synchronous_) check_synchronous(engine_->graph(schedule::GraphKind::kStep), spans_);
    return seconds;
  }
  const StepGraph& graph() const { return engine_->graph(schedule::GraphKind::kStep); }

  const std::string& name() const { return name_; }
  const train::SwapBytes& moved() const { return moved_; }  // by the last step

 private:
  const Request& request_;
  comm::Communicator& world_;
  std::string name_;
  train::SwapBytes moved_;
  Spans spans_;
  std::unique_ptr<train::Engine> engine_;
  bool synchronous_;
  std::int64_t step_ = 0;
};

/// The transfers of a step without the step: all reads behind one another, all writes behind one another, both at once.
class Disk {
 public:
  Disk(const Request& request, comm::Communicator& world, const StepGraph& graph) : world_(world) {
    for (const Task& task : graph.tasks) {
      if (task.kind != TaskKind::kMove) continue;
      // Of the two buffers that one with the bytes of the transfer, not of both halves of the state.
      const auto bytes_of = [&](Role role) { return graph.buffers[graph.use_of(task, role)->buffer].bytes; };
      if (task.lane == Lane::kDiskRead) reads_.push_back(bytes_of(Role::kTarget));
      if (task.lane == Lane::kDiskWrite) writes_.push_back(bytes_of(Role::kSource));
    }
    std::int64_t bytes = 0, largest = 0;
    for (const std::vector<std::int64_t>* list : {&reads_, &writes_}) {
      for (const std::int64_t each : *list) {
        bytes += each;
        largest = std::max(largest, each);
      }
    }
    largest_ = largest;
    memory_ = memory::make_plain_backing(2 * kInFlight * largest, "benchmark");
    for (std::int64_t i = 0; i < memory_->bytes(); ++i) memory_->data()[i] = static_cast<std::byte>(i * 2654435761LL >> 11);
    memory::SwapSpace::Options options;
    options.paths = {request.directory};
    options.identity = {"tiers-bench", cat(::getpid(), "-alone"), world.rank()};
    options.extents = {{0, bytes}};
    space_.emplace(memory::SwapSpace::open(options));
  }

  double run() {
    world_.barrier();
    const std::int64_t begin = now_ns();
    std::thread writer([this] { feed(memory::IoDirection::kWrite, writes_, sum(reads_), memory_->data() + kInFlight * largest_); });
    feed(memory::IoDirection::kRead, reads_, 0, memory_->data());
    writer.join();
    world_.barrier();
    return static_cast<double>(now_ns() - begin) * 1e-9;
  }
  std::int64_t read_bytes() const { return sum(reads_); }
  std::int64_t written_bytes() const { return sum(writes_); }
  std::int64_t transfers() const { return static_cast<std::int64_t>(reads_.size() + writes_.size()); }

 private:
  static constexpr std::int64_t kInFlight = 4;
  static std::int64_t sum(const std::vector<std::int64_t>& list) {
    std::int64_t bytes = 0;
    for (const std::int64_t each : list) bytes += each;
    return bytes;
  }
  void feed(memory::IoDirection direction, const std::vector<std::int64_t>& transfers, std::int64_t from, std::byte* memory) {
    std::array<memory::IoTicket, kInFlight> tickets;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const std::size_t turn = i % tickets.size();
      tickets[turn].wait();
      space_->post(tickets[turn], direction, 0, from, memory + static_cast<std::int64_t>(turn) * largest_, transfers[i]);
      from += transfers[i];
    }
    for (memory::IoTicket& ticket : tickets) ticket.wait();
  }

  comm::Communicator& world_;
  std::vector<std::int64_t> reads_, writes_;  // bytes of each transfer, in order
  std::int64_t largest_ = 0;
  std::unique_ptr<memory::Backing> memory_;
  std::optional<memory::SwapSpace> space_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Request request_of(int argc, char** argv) {
  Request request;
  request.model = spec::load_preset(argv[1], {SLUICE_SOURCE_DIR "/configs/models"});
  request.rows = std::atoll(argv[2]);
  request.training.batch.sequence_length = std::atoll(argv[3]);
  request.accumulation = std::atoll(argv[4]);
  request.threads = std::atoi(argv[5]);
  request.rounds = std::atoi(argv[6]);
  request.directory = argv[7];
  if (argc > 8) request.chunk_elements = std::atoll(argv[8]);
  const std::string_view wanted = argc > 9 ? argv[9] : "fp32";
  if (wanted != "fp32" && wanted != "bf16") throw RequestError(cat("precision ", wanted, ": expected fp32 or bf16"));
  request.training.precision = wanted == "bf16" ? spec::Precision::kBf16 : spec::Precision::kFp32;
  request.training.optimizer.gradient_clipping = 0;  // in_backward can't wait for a norm
  return request;
}

int run(int argc, char** argv) {
  if (argc < 8) {
    std::fprintf(stderr, "usage: tiers_bench PRESET ROWS SEQUENCE ACCUMULATION THREADS ROUNDS DIRECTORY [CHUNK_ELEMENTS [fp32|bf16]]\n");
    return 2;
  }
  comm::MpiEnvironment mpi;
  const auto world = mpi.world();
  device::flush_denormals_on_this_thread();
  const auto device = device::make_cpu_device();
  Request request = request_of(argc, argv);
  request.training.batch.global_batch = request.rows * request.accumulation * world->size();
  std::vector<std::unique_ptr<Runner>> runners;
  const auto add = [&](const char* name, spec::UpdateMode mode, bool on_disk, bool synchronous) {
    runners.push_back(std::make_unique<Runner>(request, *world, *device, name, mode, on_disk, synchronous));
  };
  add("cores", spec::UpdateMode::kAtEnd, false, false);
  add("synchronous", spec::UpdateMode::kAtEnd, true, true);
  add("at_end", spec::UpdateMode::kAtEnd, true, false);
  add("next_forward", spec::UpdateMode::kNextForward, true, false);
  add("in_backward", spec::UpdateMode::kInBackward, true, false);
  Disk disk(request, *world, runners[1]->graph());
  std::vector<std::vector<double>> seconds(runners.size());
  std::vector<double> of_disk;
  for (int round = -1; round < request.rounds; ++round) {  // the first warms up
    const double alone = disk.run();
    if (round >= 0) of_disk.push_back(alone);
    if (world->rank() == 0) std::printf("round %d: disk %.3f", round + 1, alone);
    for (std::size_t i = 0; i < runners.size(); ++i) {
      const double step = runners[i]->step();
      if (round >= 0) seconds[i].push_back(step);
      if (world->rank() == 0) std::printf(", %s %.3f", runners[i]->name().c_str(), step);
      std::fflush(stdout);
    }
    if (world->rank() == 0) std::printf("\n");
  }
  // A buffer has room for the largest rank's shard, a block more than another's.
  const std::int64_t more_read = disk.read_bytes() - runners[1]->moved().read,
                     more_written = disk.written_bytes() - runners[1]->moved().written, most = disk.transfers() * schedule::kDiskAlignment;
  SLUICE_CHECK(more_read >= 0 && more_written >= 0 && more_read + more_written <= (world->size() == 1 ? 0 : most), "a step reads ",
               runners[1]->moved().read, " and writes ", runners[1]->moved().written, " bytes, measured were ", disk.read_bytes(), " and ",
               disk.written_bytes());
  if (world->rank() != 0) return 0;
  const double cores = median(seconds[0]), disk_seconds = median(of_disk), bound = std::max(cores, disk_seconds);
  std::printf("%s in %s, %lld micro-batches of %lld x %lld, %d ranks, %d threads a rank, chunks of %s; medians of %d rounds\n",
              request.model.name.c_str(), std::string(name_of(request.training.precision)).c_str(),
              static_cast<long long>(request.accumulation), static_cast<long long>(request.rows),
              static_cast<long long>(request.training.batch.sequence_length), world->size(), request.threads,
              format_count(request.chunk_elements).c_str(), request.rounds);
  std::printf("a rank's disk traffic in a step: %s read, %s written\n", format_bytes(disk.read_bytes()).c_str(),
              format_bytes(disk.written_bytes()).c_str());
  std::printf("  %-28s %8.3f s\n", "cores alone", cores);
  std::printf("  %-28s %8.3f s   %.0f MB/s each way at once\n", "disk alone", disk_seconds,
              static_cast<double>(disk.read_bytes()) / disk_seconds * 1e-6);
  for (std::size_t i = 1; i < runners.size(); ++i) {
    const double step = median(seconds[i]);
    std::printf("  %-28s %8.3f s   %.2f of the larger\n", runners[i]->name().c_str(), step, step / bound);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tiers_bench: %s\n", error.what());
    std::_Exit(1);  // other ranks may be waiting for this one
  }
}
