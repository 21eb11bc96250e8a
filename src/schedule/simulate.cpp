#include "schedule/simulate.hpp"

#include <algorithm>
#include <limits>

#include "base/check.hpp"

namespace sluice::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kCallersThread = 0;
constexpr int kMostServers = kLaneCount + 1;

/// Lanes that run one task at a time together: an issuing thread's, or one communication lane.
struct Server {
  enum class State : std::uint8_t { kFree, kLatency, kWork };
  std::vector<TaskId> queue;
  std::size_t next = 0;
  int thread = 0;
  State state = State::kFree;
  bool has_several_in_flight = false;  // its tasks' latencies pass side by side, though their work doesn't
  double posted = 0;                   // when its last task was
  bool waited = false;                 // the head wasn't ready when the server became free
  // The running task:
  TaskId task = kNone;
  double latency_left = 0;
  double work_left = 0;  // seconds at full speed
  double speed = 1;
  Demand demand;
  Resource limiter = Resource::kCores;  // at the present speed
  std::array<double, kResourceCount> held_back{};

  bool has_head() const { return next < queue.size(); }
};

class Simulator {
 public:
  Simulator(const StepGraph& graph, std::span<const Price> prices, const spec::MachineSpec& machine, const SimulateOptions& options)
      : graph_(graph), prices_(prices), machine_(machine), list_(machine, options.ranks, 1), capacities_(list_.capacities()) {
    SLUICE_CHECK(prices.size() == graph.tasks.size(), prices.size(), " prices for ", graph.tasks.size(), " tasks");
    make_servers(options);
  }

  Simulation run() {
    const std::size_t count = graph_.tasks.size();
    result_.tasks.resize(count);
    done_.assign(count, 0);
    cause_.assign(count, kNone);
    held_back_by_.assign(count, Resource::kLatency);
    std::size_t left = count;
    while (left > 0) {
      start_ready();
      share_out();
      const double step = time_to_next_event();
      SLUICE_CHECK(step < kNever, "no task of graph ", name_of(graph_.kind), " can go on; ", left, " are left, the first is ",
                   graph_.task_name(first_left()));
      advance(step);
      left -= finish_tasks();
    }
    result_.seconds = now_;
    result_.bytes_peak = graph_.arena_bytes;
    result_.graph_hash = graph_.hash();
    for (std::size_t r = 0; r < kSharedResourceCount; ++r) {
      if (capacities_[r] < kNever && now_ > 0) result_.use[r] = used_[r] / (capacities_[r] * now_);
    }
    find_critical_chain();
    return std::move(result_);
  }

 private:
  void make_servers(const SimulateOptions& options) {
    const bool folds_all = options.threading == Threading::kFolded && options.ranks == 1;
    constexpr int kCommThread = kLaneCount + 1;
    std::array<int, kLaneCount> server_of{};
    server_of.fill(-1);
    int caller = -1;
    const auto add = [&](int thread) {
      servers_.emplace_back();
      servers_.back().thread = thread;
      return static_cast<int>(servers_.size()) - 1;
    };
    for (TaskId id = 0; id < graph_.tasks.size(); ++id) {
      const auto lane = static_cast<std::size_t>(graph_.tasks[id].lane);
      if (server_of[lane] < 0) {
        const Lane l = graph_.tasks[id].lane;
        if (is_communication(l) && !folds_all) {
          server_of[lane] = add(kCommThread);
          servers_.back().has_several_in_flight = true;
        } else if (options.threading == Threading::kPerLane && l != Lane::kCompute) {
          server_of[lane] = add(static_cast<int>(lane) + 1);
          servers_.back().has_several_in_flight = is_asynchronous(l);
        } else {
          if (caller < 0) caller = add(kCallersThread);
          server_of[lane] = caller;
        }
      }
      servers_[static_cast<std::size_t>(server_of[lane])].queue.push_back(id);
    }
    thread_of_lane_.fill(0);
    for (std::size_t l = 0; l < kLaneCount; ++l) {
      if (server_of[l] >= 0) thread_of_lane_[l] = servers_[static_cast<std::size_t>(server_of[l])].thread;
    }
  }

  bool is_ready(TaskId id) const {
    const auto waits = graph_.waits_of(graph_.tasks[id]);
    return std::all_of(waits.begin(), waits.end(), [&](TaskId on) { return done_[on] != 0; });
  }

  void start_ready() {
    for (Server& server : servers_) {
      if (server.state != Server::State::kFree || !server.has_head()) continue;
      const TaskId id = server.queue[server.next];
      if (!is_ready(id)) {
        server.waited = true;
        continue;
      }
      start(server, id);
    }
  }

  void start(Server& server, TaskId id) {
    double wake = 0;
    cause_[id] = server.next > 0 ? server.queue[server.next - 1] : kNone;
    if (server.waited) {
      TaskId latest = kNone;
      for (const TaskId on : graph_.waits_of(graph_.tasks[id])) {
        if (latest == kNone || result_.tasks[on].end > result_.tasks[latest].end) latest = on;
      }
      cause_[id] = latest;
      if (thread_of_lane_[static_cast<std::size_t>(graph_.tasks[latest].lane)] != server.thread) wake = machine_.wake_seconds;
      if (server.thread == kCallersThread && is_communication(graph_.tasks[latest].lane)) {
        // Ranks that have only just met come to the next meeting together.
        wake += std::min(machine_.skew_seconds, computed_);
        computed_ = 0;
      }
    }
    ++server.next;
    server.waited = false;
    server.task = id;
    server.state = Server::State::kLatency;
    result_.tasks[id].begin = now_ + wake;
    const Price& price = prices_[id];
    server.latency_left = wake + price.latency_seconds;
    if (server.has_several_in_flight) {
      double ready = server.posted;
      for (const TaskId on : graph_.waits_of(graph_.tasks[id])) ready = std::max(ready, result_.tasks[on].end);
      server.posted = ready;
      server.latency_left = std::max(0.0, server.latency_left - (now_ - ready));
    }
    server.demand = demand_of(price, capacities_);
    server.work_left = server.demand.seconds;
    server.held_back.fill(0);
    server.held_back[static_cast<std::size_t>(Resource::kLatency)] = -wake;  // which is before it begins
    if (server.latency_left <= 0) server.state = Server::State::kWork;
  }

  /// Speeds of the tasks at work: all rise alike until a resource is used up; those that want it stay there.
  void share_out() {
    std::array<Server*, kMostServers> rising{};
    std::size_t count = 0;
    for (Server& server : servers_) {
      if (server.state == Server::State::kWork && server.work_left > 0) rising[count++] = &server;
    }
    if (count == 1) {  // nobody to share with
      rising[0]->speed = 1;
      rising[0]->limiter = rising[0]->demand.binding;
      return;
    }
    Capacities left = uses_disk_both_ways(rising, count) ? list_.capacities_of_both_directions() : capacities_;
    double level = 0;
    while (count > 0) {
      double rise = 1 - level;
      std::size_t scarce = kSharedResourceCount;
      for (std::size_t r = 0; r < kSharedResourceCount; ++r) {
        double wanted = 0;
        for (std::size_t i = 0; i < count; ++i) wanted += rising[i]->demand.rate[r];
        // A little slack: one task alone asks for exactly the capacity.
        if (wanted > 0 && left[r] < wanted * rise * (1 - 1e-12)) {
          rise = std::max(0.0, left[r] / wanted);
          scarce = r;
        }
      }
      level += rise;
      std::size_t kept = 0;
      for (std::size_t i = 0; i < count; ++i) {
        Server& server = *rising[i];
        for (std::size_t r = 0; r < kSharedResourceCount; ++r) left[r] -= rise * server.demand.rate[r];
        if (scarce == kSharedResourceCount) {
          server.speed = 1;
          server.limiter = server.demand.binding;
        } else if (server.demand.rate[scarce] > 0) {
          server.speed = level;
          server.limiter = static_cast<Resource>(scarce);
        } else {
          rising[kept++] = &server;
        }
      }
      if (scarce == kSharedResourceCount) return;
      count = kept;
    }
  }

  static bool uses_disk_both_ways(const std::array<Server*, kMostServers>& servers, std::size_t count) {
    bool reads = false, writes = false;
    for (std::size_t i = 0; i < count; ++i) {
      reads = reads || servers[i]->demand.rate[static_cast<std::size_t>(Resource::kDiskRead)] > 0;
      writes = writes || servers[i]->demand.rate[static_cast<std::size_t>(Resource::kDiskWrite)] > 0;
    }
    return reads && writes;
  }

  double time_to_next_event() const {
    double step = kNever;
    for (const Server& server : servers_) {
      if (server.state == Server::State::kLatency) step = std::min(step, server.latency_left);
      if (server.state == Server::State::kWork) step = std::min(step, server.work_left <= 0 ? 0 : server.work_left / server.speed);
    }
    return step;
  }

  void advance(double step) {
    now_ += step;
    for (Server& server : servers_) {
      if (server.state == Server::State::kLatency) {
        server.held_back[static_cast<std::size_t>(Resource::kLatency)] += step;
        server.latency_left -= step;
        if (server.latency_left <= 1e-15) server.state = Server::State::kWork;
      } else if (server.state == Server::State::kWork && server.work_left > 0) {
        server.held_back[static_cast<std::size_t>(server.limiter)] += step;
        for (std::size_t r = 0; r < kSharedResourceCount; ++r) used_[r] += server.demand.rate[r] * server.speed * step;
        server.work_left -= server.speed * step;
        if (server.work_left <= 1e-12 * server.demand.seconds) server.work_left = 0;
      }
    }
  }

  std::size_t finish_tasks() {
    std::size_t finished = 0;
    for (Server& server : servers_) {
      if (server.state != Server::State::kWork || server.work_left > 0) continue;
      const TaskId id = server.task;
      TaskTimes& times = result_.tasks[id];
      times.end = std::max(now_, times.begin);
      result_.busy_seconds[static_cast<std::size_t>(graph_.tasks[id].lane)] += times.end - times.begin;
      const auto most = std::max_element(server.held_back.begin(), server.held_back.end());
      held_back_by_[id] = static_cast<Resource>(most - server.held_back.begin());
      done_[id] = 1;
      server.state = Server::State::kFree;
      server.task = kNone;
      if (server.thread == kCallersThread) computed_ += times.end - times.begin;
      ++finished;
    }
    return finished;
  }

  TaskId first_left() const {
    for (TaskId id = 0; id < graph_.tasks.size(); ++id) {
      if (done_[id] == 0) return id;
    }
    return 0;
  }

  void find_critical_chain() {
    if (graph_.tasks.empty()) return;
    TaskId id = 0;
    for (TaskId other = 0; other < graph_.tasks.size(); ++other) {
      if (result_.tasks[other].end > result_.tasks[id].end) id = other;
    }
    while (id != kNone) {
      const TaskTimes& times = result_.tasks[id];
      const TaskId before = cause_[id];
      const double since = before == kNone ? 0 : result_.tasks[before].end;
      result_.critical_seconds[static_cast<std::size_t>(held_back_by_[id])] += times.end - times.begin;
      result_.critical_seconds[static_cast<std::size_t>(Resource::kLatency)] += times.begin - since;  // the wake-up
      result_.critical_lane_seconds[static_cast<std::size_t>(graph_.tasks[id].lane)] += times.end - since;
      id = before;
    }
    const auto most = std::max_element(result_.critical_seconds.begin(), result_.critical_seconds.end());
    result_.bound = static_cast<Resource>(most - result_.critical_seconds.begin());
  }

  const StepGraph& graph_;
  std::span<const Price> prices_;
  const spec::MachineSpec& machine_;
  const PriceList list_;
  const Capacities& capacities_;
  std::vector<Server> servers_;
  std::array<int, kLaneCount> thread_of_lane_{};
  double now_ = 0;
  double computed_ = 0;  // seconds of the calling thread's tasks since it last waited for other ranks
  std::array<double, kSharedResourceCount> used_{};
  std::vector<std::uint8_t> done_;
  std::vector<TaskId> cause_;  // whose end let the task start
  std::vector<Resource> held_back_by_;
  Simulation result_;
};

}  // namespace

Simulation simulate(const StepGraph& graph, std::span<const Price> prices, const spec::MachineSpec& machine,
                    const SimulateOptions& options) {
  return Simulator(graph, prices, machine, options).run();
}

}  // namespace sluice::schedule
