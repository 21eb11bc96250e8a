#include "schedule/execute.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "comm/backoff.hpp"
#include "device/cpu/cpu_device.hpp"
#include "schedule/body.hpp"
#include "schedule/check.hpp"

namespace sluice::schedule {
namespace {

struct Launch {
  Executor::Impl* impl;
  TaskId id;
};

/// Threads by number: 0 is the caller's; each lane may have one of its own, and the communication lanes share one. Those of the disk
/// have a second one, on which transfers are seen to end.
constexpr int kCallersThread = 0;
constexpr int kCommThread = kLaneCount + 1;
constexpr int kThreads = kLaneCount + 4;
constexpr int thread_of(Lane lane) {
  return static_cast<int>(lane) + 1;
}
constexpr bool is_disk(Lane lane) {
  return lane == Lane::kDiskRead || lane == Lane::kDiskWrite;
}
constexpr int ending_thread_of(Lane disk_lane) {
  return kCommThread + (disk_lane == Lane::kDiskRead ? 1 : 2);
}

struct BoundGraph {
  const StepGraph* graph = nullptr;
  std::vector<std::unique_ptr<Body>> bodies;
  std::vector<std::unique_ptr<device::Event>> events;
  std::array<std::vector<TaskId>, kThreads> of_thread;  // issuing threads: their lanes' tasks, in linear order
  std::array<std::vector<TaskId>, kLaneCount> of_lane;  // communication lanes
  std::vector<std::uint8_t> rings;                      // a communication task waits for it
  std::vector<std::uint32_t> use_count;                 // per buffer, for poisoning
  std::vector<std::atomic<std::uint32_t>> uses_left;
  std::vector<Launch> launches;  // what a stream is given; streams may run it later than the issuing loop
};

/// A disk lane's transfers on their way from the thread that posts them to the one that sees them end, in order.
class Transfers {
 public:
  /// Two large ones keep the disk busy while one of them is taken or given; small ones want more.
  static constexpr std::size_t kMost = 8;
  struct Entry {
    TaskId id = kNone;
    std::int64_t begin = 0;
    bool skipped = false;
  };

  void open() { closed_ = false; }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  /// Waits for room; the ticket that the next push() goes with.
  memory::IoTicket& next_ticket() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ < kMost; });
    return tickets_[(first_ + count_) % kMost];
  }
  void push(const Entry& entry) {
    const std::lock_guard lock(mutex_);
    entries_[(first_ + count_++) % kMost] = entry;
    changed_.notify_all();
  }
  /// Waits until all that were pushed are popped.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ == 0; });
  }
  /// Waits for the oldest; false: there will be none.
  bool front(Entry& entry, memory::IoTicket*& ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || count_ > 0; });
    if (count_ == 0) return false;
    entry = entries_[first_];
    ticket = &tickets_[first_];
    return true;
  }
  void pop() {
    const std::lock_guard lock(mutex_);
    first_ = (first_ + 1) % kMost;
    --count_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<memory::IoTicket, kMost> tickets_;
  std::array<Entry, kMost> entries_;
  std::size_t first_ = 0, count_ = 0;
  bool closed_ = false;
};

}  // namespace

Threading threading_of(const StepGraph& graph) {
  const bool moves = std::any_of(graph.tasks.begin(), graph.tasks.end(), [](const Task& task) { return task.kind == TaskKind::kMove; });
  return moves ? Threading::kPerLane : Threading::kFolded;
}

struct Executor::Impl {
  explicit Impl(const Environment& environment) : env(environment) {}

  Environment env;
  std::map<GraphKind, BoundGraph> graphs;
  std::array<std::unique_ptr<device::Stream>, kLaneCount> streams;
  std::array<std::unique_ptr<comm::Channel>, kLaneCount> channels;
  std::array<Transfers, 2> transfers;  // of the disk's lanes

  // One run.
  BoundGraph* current = nullptr;
  std::uint64_t epoch = 0;
  RunState state;
  std::atomic<bool> failed{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  std::atomic<std::uint32_t> doorbell{0};
  std::atomic<bool> comm_sleeps{false};

  // Workers. All are woken for a run; those without a task in its graph sleep on at once.
  std::map<int, std::thread> workers;  // by their number
  std::atomic<std::uint32_t> start{0};
  std::atomic<int> running{0};
  std::atomic<bool> quit{false};

  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::move(error);
    }
    failed.store(true, std::memory_order_seq_cst);
    ring();
  }
  void ring() {
    doorbell.fetch_add(1, std::memory_order_seq_cst);
    if (comm_sleeps.load(std::memory_order_seq_cst)) doorbell.notify_one();
  }

  bool skips(const Task& task) const {
    return failed.load(std::memory_order_relaxed) ||
           (task.governed_by >= 0 && task.governed_by >= state.cancelled_from.load(std::memory_order_relaxed));
  }

  /// The task's body is done: dead buffers are poisoned before anyone is told.
  void retire(TaskId id) {
    if (!env.poison) return;
    const StepGraph& graph = *current->graph;
    for (const Use& use : graph.uses_of(graph.tasks[id])) {
      const Buffer& buffer = graph.buffers[use.buffer];
      if (buffer.persistent || current->uses_left[use.buffer].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      poison(buffer);
    }
  }

  void poison(const Buffer& buffer) const {
    if (buffer.tier == spec::Tier::kDisk) return;  // that nobody reads there what this run hasn't written is check_order()'s to see
    std::memset(env.arenas[static_cast<std::size_t>(buffer.tier)]->at(buffer.offset, buffer.bytes), 0xFF,
                static_cast<std::size_t>(buffer.bytes));
  }

  void trace(const Task& task, TaskId id, std::int64_t begin) const {
    // Task ids of other graphs would be taken for the step's.
    if (env.trace == nullptr || current->graph->kind != GraphKind::kStep) return;
    env.trace->emit({name_of(task.kind).data(), static_cast<std::uint32_t>(task.lane), id, begin, now_ns()});
  }

  static void body_on_stream(void* context, device::Stream& stream) {
    const auto* launch = static_cast<const Launch*>(context);
    launch->impl->run_body(launch->id, stream);
  }

  void run_body(TaskId id, device::Stream& stream) {
    const Task& task = current->graph->tasks[id];
    if (!skips(task)) {
      const std::int64_t begin = env.trace != nullptr ? now_ns() : 0;
      try {
        current->bodies[id]->run(state, stream);
      } catch (...) {
        fail(std::current_exception());
      }
      trace(task, id, begin);
    }
    retire(id);
  }

  /// A communication task on a thread that isn't the communication thread's: one rank, folded.
  void run_collective_here(TaskId id) {
    const Task& task = current->graph->tasks[id];
    if (!skips(task)) {
      const std::int64_t begin = env.trace != nullptr ? now_ns() : 0;
      try {
        comm::Channel& channel = *channels[static_cast<std::size_t>(task.lane)];
        const comm::Channel::Ticket ticket = current->bodies[id]->post(state, channel);
        while (!channel.test(ticket)) channel.progress();
        current->bodies[id]->complete(state);
      } catch (...) {
        fail(std::current_exception());
      }
      trace(task, id, begin);
    }
    retire(id);
    current->events[id]->complete_from_host(epoch);
  }

  void run_thread(int thread) {
    for (const TaskId id : current->of_thread[static_cast<std::size_t>(thread)]) issue_or_fail(id);
  }

  void issue_or_fail(TaskId id) {
    try {
      issue(id);
    } catch (...) {  // of the device itself; others wait for this task all the same
      fail(std::current_exception());
      current->events[id]->complete_from_host(epoch);
    }
    if (current->rings[id] != 0) ring();
  }

  Transfers& transfers_of(Lane disk_lane) { return transfers[disk_lane == Lane::kDiskRead ? 0 : 1]; }

  /// A disk lane whose moves are several at a time on their way. Saving, which is on a lane of the disk as well, goes by itself.
  void run_disk_lane(Lane lane) {
    Transfers& in_flight = transfers_of(lane);
    TaskId other = kNone;  // the last task that was no move
    for (const TaskId id : current->of_thread[static_cast<std::size_t>(thread_of(lane))]) {
      const Task& task = current->graph->tasks[id];
      if (task.kind != TaskKind::kMove) {
        in_flight.drain();
        issue_or_fail(id);
        other = id;
        continue;
      }
      if (other != kNone) current->events[other]->wait_complete(epoch);
      for (const TaskId wait : current->graph->waits_of(task)) {
        current->events[wait]->wait_recorded(epoch);
        current->events[wait]->wait_complete(epoch);
      }
      memory::IoTicket& ticket = in_flight.next_ticket();
      const Transfers::Entry entry{id, now_ns(), skips(task)};
      if (!entry.skipped) {
        try {
          current->bodies[id]->start(state, ticket);
        } catch (...) {
          fail(std::current_exception());
        }
      }
      in_flight.push(entry);
    }
    in_flight.close();
  }

  void end_transfers(Lane lane) {
    Transfers& in_flight = transfers_of(lane);
    Transfers::Entry entry;
    memory::IoTicket* ticket = nullptr;
    while (in_flight.front(entry, ticket)) {
      const TaskId id = entry.id;
      try {
        ticket->wait();  // also after a failure: the memory belongs to the transfer until then
        if (!entry.skipped && !failed.load(std::memory_order_relaxed)) current->bodies[id]->complete(state);
      } catch (...) {
        fail(std::current_exception());
      }
      if (!entry.skipped) trace(current->graph->tasks[id], id, entry.begin);
      retire(id);
      current->events[id]->complete_from_host(epoch);
      if (current->rings[id] != 0) ring();
      in_flight.pop();
    }
  }

  void issue(TaskId id) {
    const Task& task = current->graph->tasks[id];
    device::Stream& stream = *streams[static_cast<std::size_t>(task.lane)];
    for (const TaskId wait : current->graph->waits_of(task)) {
      device::Event& event = *current->events[wait];
      event.wait_recorded(epoch);
      if (is_communication(task.lane)) {
        event.wait_complete(epoch);
      } else {
        stream.wait(event, epoch);
      }
    }
    if (is_communication(task.lane)) {
      run_collective_here(id);
    } else {
      stream.launch(&body_on_stream, &current->launches[id]);
      stream.record(*current->events[id], epoch);
    }
  }

  void run_communication() {
    struct LaneState {
      std::size_t next = 0;
      std::deque<std::pair<comm::Channel::Ticket, TaskId>> in_flight;
      std::deque<std::int64_t> begin;
    };
    std::array<LaneState, kLaneCount> lanes;
    // With nothing in flight the thread sleeps until a task rings instead.
    comm::Backoff backoff;
    for (;;) {
      const std::uint32_t bell = doorbell.load(std::memory_order_seq_cst);
      bool moved = false, left = false, in_flight = false;
      for (std::size_t l = 0; l < kLaneCount; ++l) {
        const std::vector<TaskId>& list = current->of_lane[l];
        LaneState& lane = lanes[l];
        if (list.empty() || (lane.next == list.size() && lane.in_flight.empty())) continue;
        left = true;
        comm::Channel& channel = *channels[l];
        try {
          // Strictly in order: a head that isn't ready holds back its own lane only.
          while (lane.next < list.size()) {
            const TaskId id = list[lane.next];
            const Task& task = current->graph->tasks[id];
            const auto waits = current->graph->waits_of(task);
            const bool ready = std::all_of(waits.begin(), waits.end(), [&](TaskId on) { return current->events[on]->is_complete(epoch); });
            if (!ready && !failed.load(std::memory_order_relaxed)) break;
            if (skips(task)) {
              // Those posted before it must finish first, so that a lane's completions stay in order.
              if (!lane.in_flight.empty() && !failed.load(std::memory_order_relaxed)) break;
              retire(id);
              current->events[id]->complete_from_host(epoch);
            } else {
              lane.begin.push_back(now_ns());
              lane.in_flight.emplace_back(current->bodies[id]->post(state, channel), id);
            }
            ++lane.next;
            moved = true;
          }
          if (!lane.in_flight.empty()) {
            moved = channel.progress() || moved;
            while (!lane.in_flight.empty() && channel.test(lane.in_flight.front().first)) {
              const TaskId id = lane.in_flight.front().second;
              lane.in_flight.pop_front();
              current->bodies[id]->complete(state);
              trace(current->graph->tasks[id], id, lane.begin.front());
              lane.begin.pop_front();
              retire(id);
              current->events[id]->complete_from_host(epoch);
              moved = true;
            }
          }
        } catch (...) {
          fail(std::current_exception());
        }
        if (failed.load(std::memory_order_relaxed)) {
          for (const auto& [ticket, id] : lane.in_flight) current->events[id]->complete_from_host(epoch);
          for (; lane.next < list.size(); ++lane.next) current->events[list[lane.next]]->complete_from_host(epoch);
          lane.in_flight.clear();
          moved = true;
        }
        in_flight = in_flight || !lane.in_flight.empty();
      }
      if (!left) return;
      if (moved) {
        backoff.moved();
      } else if (in_flight || !env.device->completes_inline()) {
        backoff.idle();
      } else {
        comm_sleeps.store(true, std::memory_order_seq_cst);
        doorbell.wait(bell, std::memory_order_seq_cst);
        comm_sleeps.store(false, std::memory_order_seq_cst);
      }
    }
  }

  void worker(int thread, std::uint32_t seen) {
    device::flush_denormals_on_this_thread();
    prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; the default of 50 us would double the naps
    for (;;) {
      start.wait(seen, std::memory_order_acquire);
      ++seen;
      if (quit.load(std::memory_order_acquire)) return;
      if (thread == kCommThread) {
        run_communication();
      } else if (thread == thread_of(Lane::kDiskRead)) {
        run_disk_lane(Lane::kDiskRead);
      } else if (thread == thread_of(Lane::kDiskWrite)) {
        run_disk_lane(Lane::kDiskWrite);
      } else if (thread == ending_thread_of(Lane::kDiskRead)) {
        end_transfers(Lane::kDiskRead);
      } else if (thread == ending_thread_of(Lane::kDiskWrite)) {
        end_transfers(Lane::kDiskWrite);
      } else {
        run_thread(thread);
      }
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void need_worker(int thread) {
    if (workers.count(thread) > 0) return;
    workers.emplace(thread, std::thread([this, thread, seen = start.load()] { worker(thread, seen); }));
  }

  /// The thread that issues a lane's tasks.
  int thread_for(Lane lane, Threading threading) {
    const bool folds_all = threading == Threading::kFolded && env.group->size() == 1;
    if (is_communication(lane) && !folds_all) {
      need_worker(kCommThread);
      return kCommThread;
    }
    if (threading == Threading::kFolded || lane == Lane::kCompute) return kCallersThread;
    need_worker(thread_of(lane));
    if (is_disk(lane)) need_worker(ending_thread_of(lane));
    return thread_of(lane);
  }
};

Executor::Executor(const Environment& environment) : impl_(std::make_unique<Impl>(environment)) {
  Impl& impl = *impl_;
  SLUICE_CHECK(environment.device != nullptr && environment.group != nullptr, "an executor needs a device and a group");
  for (int l = 0; l < kLaneCount; ++l)
    impl.streams[static_cast<std::size_t>(l)] = environment.device->make_stream(std::string(name_of(static_cast<Lane>(l))));
  for (const Lane lane : {Lane::kGatherComm, Lane::kScatterComm, Lane::kMeshComm}) {
    impl.channels[static_cast<std::size_t>(lane)] = environment.group->open_channel(std::string(name_of(lane)));
  }
}

Executor::~Executor() {
  impl_->quit.store(true, std::memory_order_release);
  impl_->start.fetch_add(1, std::memory_order_release);
  impl_->start.notify_all();
  for (auto& [number, worker] : impl_->workers) worker.join();
}

void Executor::bind(const StepGraph& graph) {
  Impl& impl = *impl_;
  comm::all_or_none(*impl.env.group, [&] { check_all(graph); });
  // A graph that the ranks don't share would hang; say which task differs instead (design section 1, ordering law 3).
  const std::string mine = describe_meetings(graph);
  const std::vector<std::string> all = impl.env.group->all_gather(mine.substr(0, mine.find('\n')));
  const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& hash) { return hash != all[0]; });
  if (other != all.end()) {
    const std::vector<std::string> texts = impl.env.group->all_gather(mine);
    const auto rank = other - all.begin();
    throw CommError(
        cat("graph ", name_of(graph.kind)),
        cat("ranks 0 and ", rank, " would meet in different orders: ", first_difference(texts[0], texts[static_cast<std::size_t>(rank)])));
  }
  BoundGraph& bound = impl.graphs[graph.kind];
  bound = {};
  bound.graph = &graph;
  bound.bodies = bind_bodies(graph, impl.env);
  bound.rings.assign(graph.tasks.size(), 0);
  const Threading threading = impl.env.threading == Threading::kPerLane ? Threading::kPerLane : threading_of(graph);
  for (TaskId id = 0; id < graph.tasks.size(); ++id) {
    const Task& task = graph.tasks[id];
    bound.events.push_back(impl.env.device->make_event());
    bound.launches.push_back({&impl, id});
    const int thread = impl.thread_for(task.lane, threading);
    if (thread == kCommThread) {
      bound.of_lane[static_cast<std::size_t>(task.lane)].push_back(id);
      for (const TaskId wait : graph.waits_of(task)) bound.rings[wait] = 1;
    } else {
      bound.of_thread[static_cast<std::size_t>(thread)].push_back(id);
    }
  }
  if (impl.env.poison) {
    bound.use_count.assign(graph.buffers.size(), 0);
    for (const Use& use : graph.uses) ++bound.use_count[use.buffer];
    bound.uses_left = std::vector<std::atomic<std::uint32_t>>(graph.buffers.size());
  }
}

RunResult Executor::run(GraphKind kind, const RunInputs& inputs) {
  Impl& impl = *impl_;
  const auto found = impl.graphs.find(kind);
  SLUICE_CHECK(found != impl.graphs.end(), "graph ", name_of(kind), " isn't bound");
  SLUICE_CHECK(!impl.failed.load(), "an executor isn't used after a failure");
  BoundGraph& bound = found->second;
  impl.current = &bound;
  ++impl.epoch;
  impl.state.inputs = &inputs;
  impl.state.cancelled_from.store(std::numeric_limits<int>::max());
  impl.state.stop_requested.store(false);
  if (impl.env.poison) {
    for (std::size_t b = 0; b < bound.use_count.size(); ++b) bound.uses_left[b].store(bound.use_count[b]);
    for (const Buffer& buffer : bound.graph->buffers) {
      if (!buffer.persistent && buffer.offset >= 0) impl.poison(buffer);
    }
  }
  for (Transfers& transfers : impl.transfers) transfers.open();
  impl.running.store(static_cast<int>(impl.workers.size()), std::memory_order_release);
  impl.start.fetch_add(1, std::memory_order_acq_rel);
  impl.start.notify_all();
  impl.run_thread(0);
  for (int left = impl.running.load(std::memory_order_acquire); left != 0; left = impl.running.load(std::memory_order_acquire))
    impl.running.wait(left, std::memory_order_acquire);
  for (auto& stream : impl.streams) {  // all of them, whatever one reports: nothing runs on when this returns
    try {
      stream->synchronize();
    } catch (...) {
      impl.fail(std::current_exception());
    }
  }
  if (impl.failure) std::rethrow_exception(impl.failure);
  RunResult result;
  result.cancelled = impl.state.cancelled_from.load() != std::numeric_limits<int>::max();
  for (const Buffer& buffer : bound.graph->buffers) {
    if (buffer.tag == BufferTag::kControl && buffer.index == static_cast<std::int32_t>(Control::kReport)) {
      std::memcpy(&result.report, impl.env.arenas[static_cast<std::size_t>(buffer.tier)]->at(buffer.offset, buffer.bytes), sizeof(Report));
      break;
    }
  }
  result.report.stop_requested = impl.state.stop_requested.load();
  return result;
}

const float* Executor::logits() const {
  const auto found = impl_->graphs.find(GraphKind::kGenerate);
  SLUICE_CHECK(found != impl_->graphs.end(), "no generate graph is bound");
  for (const Buffer& buffer : found->second.graph->buffers) {
    if (buffer.tag == BufferTag::kControl && buffer.index == static_cast<std::int32_t>(Control::kLogits)) {
      return reinterpret_cast<const float*>(impl_->env.arenas[static_cast<std::size_t>(buffer.tier)]->at(buffer.offset, buffer.bytes));
    }
  }
  SLUICE_CHECK(false, "the generate graph has no logits");
  return nullptr;
}

comm::Traffic Executor::traffic(Lane lane) const {
  const auto& channel = impl_->channels[static_cast<std::size_t>(lane)];
  return channel ? channel->traffic() : comm::Traffic{};
}

}  // namespace sluice::schedule
