#include "profile/measure.hpp"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"
#include "comm/backoff.hpp"
#include "device/cpu/cpu_device.hpp"
#include "memory/arena.hpp"
#include "model/build.hpp"
#include "ops/adamw.hpp"
#include "ops/fill.hpp"
#include "ops/matmul.hpp"
#include "parallel/unsharded.hpp"
#include "profile/timing.hpp"

namespace sluice::profile {
namespace {

using model::Phase;
using Json = nlohmann::json;

constexpr double kMostSeconds = 45;  // in all: no further shape is begun that would end later, nor is anything repeated

double seconds_since(std::int64_t begin) {
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

/// Figures of one rank by name, in the order of measuring, the same on all ranks.
struct Figures {
  std::vector<std::pair<std::string, double>> list;
  void add(const std::string& name, double value) { list.emplace_back(name, value); }
};

/// Posts collectives and sees them end on a thread of its own beside the caller's computing, as the executor does.
class Poster {
 public:
  using Post = std::function<comm::Channel::Ticket()>;
  explicit Poster(comm::Channel& channel) : channel_(channel), thread_([this] { run(); }) {}
  ~Poster() {
    quits_ = true;
    asked_.fetch_add(1);
    asked_.notify_one();
    thread_.join();
  }
  Poster(const Poster&) = delete;
  Poster& operator=(const Poster&) = delete;

  /// Asks for `count` more, each by a call of `post`, which is the same until wait().
  void ask(const Post& post, std::uint32_t count) {
    post_ = &post;
    asked_.fetch_add(count);
    asked_.notify_one();
  }
  void wait() {
    const std::uint32_t asked = asked_.load();
    for (std::uint32_t done; (done = done_.load()) != asked;) done_.wait(done);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    std::uint32_t posted = 0;
    std::deque<comm::Channel::Ticket> in_flight;
    comm::Backoff backoff;
    for (;;) {
      const std::uint32_t asked = asked_.load();
      if (quits_) return;
      if (posted == asked && in_flight.empty()) {
        asked_.wait(asked);
        continue;
      }
      bool moved = posted != asked;
      try {
        for (; posted != asked; ++posted) in_flight.push_back((*post_)());
        moved = channel_.progress() || moved;
        for (; !in_flight.empty() && channel_.test(in_flight.front()); in_flight.pop_front()) {
          moved = true;
          done_.fetch_add(1);
        }
        if (moved) done_.notify_one();
      } catch (...) {
        failure_ = std::current_exception();
        in_flight.clear();
        posted = asked;
        done_ = asked;
        done_.notify_one();
      }
      if (moved) {
        backoff.moved();
      } else {
        backoff.idle();
      }
    }
  }

  comm::Channel& channel_;
  const Post* post_ = nullptr;
  std::atomic<std::uint32_t> asked_{0}, done_{0};
  std::atomic<bool> quits_{false};
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

class Measuring {
 public:
  Measuring(comm::Communicator& world, const MeasureRequest& request)
      : world_(world), request_(request), ops_(ops::make_cpu_context(request.threads)) {}

  Figures run() {
    gemm();
    memory_and_update();
    events();
    collectives();
    segments();
    // What this measurement has given back to the allocator only is neither the run's need nor its to keep.
    malloc_trim(0);
    figures_.add("unplanned_bytes", static_cast<double>(device::read_resident_bytes().now));
    return std::move(figures_);
  }

  /// What speaks against the figures, the same on all ranks; empty: nothing.
  std::string unsteady() const {
    if (unsteady_ == 0) return {};
    return cat(unsteady_, " of ", timings_, " timings were disturbed, and again when repeated: repeats differ by up to ",
               percent(worst_spread_), " %, ranks of a node by ", percent(worst_apart_), " %");
  }

 private:
  static int percent(double ratio) { return static_cast<int>(std::lround((ratio - 1) * 100)); }

  /// Seconds of `body`, with all ranks starting together. What was disturbed twice is counted.
  double time(const std::function<void()>& body) {
    const Timing timing = time_together(world_, body, world_.all_agree(seconds_since(begin_) < kMostSeconds));
    ++timings_;
    if (!timing.is_steady()) {
      ++unsteady_;
      worst_spread_ = std::max(worst_spread_, timing.spread);
      worst_apart_ = std::max(worst_apart_, timing.apart);
    }
    return timing.seconds;
  }

  /// The same of what threads or ranks do with one another: uneven by nature, it doesn't tell whether the machine is quiet.
  double time_of_meeting(const std::function<void()>& body) { return time_together(world_, body, false).seconds; }

  void gemm() {
    const std::int64_t m = 512, c = std::clamp<std::int64_t>(request_.model.hidden, 128, 1024), n = 4 * c;
    std::vector<float> a(static_cast<std::size_t>(m * c), 0.5F), b(static_cast<std::size_t>(c * n), 0.25F),
        out(static_cast<std::size_t>(m * n));
    ops::MatmulArgs args{m, n, c, a.data(), c, false, b.data(), n, false, out.data(), n};
    flops_ = 2.0 * static_cast<double>(m * n * c) / time([&] { ops::matmul(ops_, args); });
    figures_.add("flops_per_core", flops_ / ops_.threads);
  }

  void memory_and_update() {
    // Elements: far more than the caches hold, where four arrays of them leave room for others.
    const std::int64_t free = device::read_cpu_facts().memory_available_bytes / std::max(1, world_.node_size());
    const std::int64_t n = std::clamp(free / 32, std::int64_t{1} << 20, std::int64_t{8} << 20);
    std::vector<float> param(static_cast<std::size_t>(n), 1.0F), grad(param), m(param), v(param);
    const double copy = time([&] {
      const std::int64_t part = n / ops_.threads;
      const auto copy_part = [&](std::int64_t t) {
        std::memcpy(grad.data() + t * part, param.data() + t * part, static_cast<std::size_t>(part) * sizeof(float));
      };
      std::vector<std::thread> others;
      for (std::int64_t t = 1; t < ops_.threads; ++t) others.emplace_back(copy_part, t);
      copy_part(0);
      for (std::thread& other : others) other.join();
    });
    figures_.add("memory_bytes_per_second", 2.0 * static_cast<double>(n) * sizeof(float) / copy * world_.node_size());
    // One thread of each rank, as moves between device and host memory are made.
    const double one = time([&] { std::memcpy(grad.data(), param.data(), static_cast<std::size_t>(n) * sizeof(float)); });
    figures_.add("copy_bytes_per_second", static_cast<double>(n) * sizeof(float) / one);
    ops::AdamwArgs args{};
    args.n = n;
    args.param = param.data();
    args.grad = grad.data();
    args.moment1 = m.data();
    args.moment2 = v.data();
    args.learning_rate = 1e-6;
    args.beta1 = 0.9;
    args.beta2 = 0.999;
    args.eps = 1e-8;
    args.count = 10;
    figures_.add("update_bytes_per_second", 28.0 * static_cast<double>(n) / time([&] { ops::adamw(ops_, args); }));
  }

  /// Executor costs: completing an event, and waking a thread that sleeps on one.
  void events() {
    const auto device = device::make_cpu_device();
    constexpr int kEvents = 1000;
    std::vector<std::unique_ptr<device::Event>> events;
    for (int i = 0; i < kEvents; ++i) events.push_back(device->make_event());
    std::uint64_t epoch = 0;
    // A task costs about a completion, a wait, two clock readings for the trace and its calls.
    figures_.add("task_seconds", time_of_meeting([&] {
                                   ++epoch;
                                   for (const auto& event : events) {
                                     sink_ = now_ns() + now_ns();
                                     event->complete_from_host(epoch);
                                     event->wait_complete(epoch);
                                   }
                                 }) / kEvents);
    const auto there = device->make_event(), back = device->make_event();
    constexpr int kRounds = 200;
    const double seconds = time_of_meeting([&] {
      const std::uint64_t first = epoch + 1;
      epoch += kRounds;
      std::thread other([&] {
        for (std::uint64_t e = first; e < first + kRounds; ++e) {
          there->wait_complete(e);
          back->complete_from_host(e);
        }
      });
      for (std::uint64_t e = first; e < first + kRounds; ++e) {
        there->complete_from_host(e);
        back->wait_complete(e);
      }
      other.join();
    });
    wake_seconds_ = seconds / (2 * kRounds);
    figures_.add("wake_seconds", wake_seconds_);
  }

  /// seconds = latency + bytes / rate through two sizes; the latency.
  double add_linear(const std::string& name, double bytes_small, double seconds_small, double bytes_large, double seconds_large) {
    // On a disturbed machine the small one may take as long as the large one; it isn't free for that.
    const double rate = (bytes_large - bytes_small) / std::max(seconds_large - seconds_small, seconds_large / 10);
    const double latency = std::max(0.0, seconds_small - bytes_small / rate);
    figures_.add(name + ".bytes_per_second", rate);
    figures_.add(name + ".latency_seconds", latency);
    return latency;
  }

  /// What small collectives cost ranks that compute and so have no core for them: one that each product waits for shows how unevenly
  /// the ranks come to it, many beside the products what each takes of the cores. `gather_latency`: on idle cores.
  void busy_collectives(comm::Channel& channel, const Poster::Post& gather, double gather_latency, const Poster::Post& scatter) {
    constexpr int kProducts = 4, kTurns = 12;
    constexpr std::uint32_t kBeside = 64;
    constexpr double kProductSeconds = 2e-3;  // about that of a small model's segment
    const std::int64_t c = std::clamp<std::int64_t>(request_.model.hidden, 128, 1024), n = 4 * c;
    const double row_flops = 2.0 * static_cast<double>(c * n);
    std::int64_t m = 1;  // as large on each rank
    for (const std::string& each : world_.all_gather(cat(static_cast<std::int64_t>(kProductSeconds * flops_ / row_flops))))
      m = std::max<std::int64_t>(m, std::stoll(each));
    std::vector<float> a(static_cast<std::size_t>(m * c), 0.5F), b(static_cast<std::size_t>(c * n), 0.25F),
        out(static_cast<std::size_t>(m * n));
    const ops::MatmulArgs args{m, n, c, a.data(), c, false, b.data(), n, false, out.data(), n};
    Poster poster(channel);
    const auto meet = [&] {
      poster.ask(gather, 1);
      poster.wait();
    };
    // In turns, and the differences of neighbours: what disturbs the machine for a while disturbs both.
    std::vector<double> skews, gathers, scatters;
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto seconds_of_product = [&](const Poster::Post* beside, bool meets) {
        world_.barrier();
        const std::int64_t begin = now_ns();
        for (int i = 0; i < kProducts; ++i) {
          if (beside != nullptr) poster.ask(*beside, kBeside);
          ops::matmul(ops_, args);
          if (beside != nullptr) poster.wait();
          if (meets) meet();
        }
        return seconds_since(begin) / kProducts;
      };
      const double alone = seconds_of_product(nullptr, false), met = seconds_of_product(nullptr, true);
      skews.push_back(met - alone - gather_latency - 2 * wake_seconds_);
      gathers.push_back((seconds_of_product(&gather, true) - met) / kBeside);
      scatters.push_back((seconds_of_product(&scatter, true) - met) / kBeside);
    }
    const auto add_median = [&](const std::string& name, std::vector<double> values) {
      std::sort(values.begin(), values.end());
      figures_.add(name, std::max(0.0, values[values.size() / 2]));
    };
    add_median("skew_seconds", std::move(skews));
    add_median("gather.core_seconds", std::move(gathers));
    add_median("scatter.core_seconds", std::move(scatters));
  }

  void collectives() {
    const int ranks = world_.size();
    const std::int64_t large = 4 << 20, small = 16 << 10;  // elements a region
    const auto backing = world_.allocate_window(2 * large * static_cast<std::int64_t>(sizeof(float)), "profile");
    auto* region = reinterpret_cast<float*>(backing->data());
    float* shard = region + large;
    std::fill(region, region + 2 * large, 1.0F);
    const auto channel = world_.open_channel("profile");
    const auto finish = [&](comm::Channel::Ticket ticket) {  // waiting as the executor does
      for (comm::Backoff backoff; !channel->test(ticket);) {
        if (channel->progress()) {
          backoff.moved();
        } else {
          backoff.idle();
        }
      }
    };
    std::array<double, 2> gather{}, scatter{};
    for (const std::int64_t elements : {small, large}) {
      std::vector<std::int64_t> bounds, byte_bounds;
      for (int r = 0; r <= ranks; ++r) bounds.push_back(elements * r / ranks);
      for (const std::int64_t bound : bounds) byte_bounds.push_back(bound * static_cast<std::int64_t>(sizeof(float)));
      const std::size_t i = elements == small ? 0 : 1;
      gather[i] = time_of_meeting([&] { finish(channel->post_gather(shard, region, byte_bounds)); });
      scatter[i] = time_of_meeting([&] { finish(channel->post_scatter(region, shard, bounds, false)); });
    }
    // What crosses: a gather receives all but the own part, a scatter the own part from each of the others.
    const double others = ranks > 1 ? static_cast<double>(ranks - 1) / ranks : 1.0;
    const double small_bytes = static_cast<double>(small * static_cast<std::int64_t>(sizeof(float))) * others,
                 large_bytes = static_cast<double>(large * static_cast<std::int64_t>(sizeof(float))) * others;
    const double gather_latency = add_linear("gather", small_bytes, gather[0], large_bytes, gather[1]);
    add_linear("scatter", small_bytes, scatter[0], large_bytes, scatter[1]);
    std::int64_t mine = 1;
    std::vector<std::int64_t> all(static_cast<std::size_t>(ranks));
    figures_.add("agree_seconds", time_of_meeting([&] { finish(channel->post_exchange(&mine, all.data(), sizeof mine)); }));
    if (ranks == 1) {  // there is nobody to wait for
      for (const char* name : {"skew_seconds", "gather.core_seconds", "scatter.core_seconds"}) figures_.add(name, 0);
    } else {
      std::vector<std::int64_t> bounds, byte_bounds;
      for (int r = 0; r <= ranks; ++r) bounds.push_back(std::int64_t{256} * r);
      for (const std::int64_t bound : bounds) byte_bounds.push_back(bound * static_cast<std::int64_t>(sizeof(float)));
      busy_collectives(
          *channel, [&] { return channel->post_gather(shard, region, byte_bounds); }, gather_latency,
          [&] { return channel->post_scatter(region, shard, bounds, false); });
    }
    world_.barrier();  // nobody frees its window while another reads it
  }

  void segments() {
    spec::ModelSpec one = request_.model;
    one.layers = 1;
    const auto modules = parallel::make_unsharded_modules();
    const model::Model model = model::build_model(one, *modules);
    std::vector<std::vector<float>> params, grads;
    for (const model::ParamSpec& param : model.params) {
      params.emplace_back(static_cast<std::size_t>(param.elements()));
      ops::fill_normal(ops_, params.back().data(), param.elements(), 0.02F, {1, 2}, 0);
      grads.emplace_back(params.back().size());
    }
    std::vector<std::int64_t> all_rows = request_.rows;
    std::sort(all_rows.begin(), all_rows.end());
    double last_seconds = 0;
    for (std::size_t r = 0; r < all_rows.size(); ++r) {
      const std::int64_t rows = all_rows[r];
      // Time grows with the rows at most: what wouldn't end in time on some rank is left to interpolation on all of them.
      const double expected = r == 0 ? 0 : last_seconds * static_cast<double>(rows) / static_cast<double>(all_rows[r - 1]);
      if (!world_.all_agree(r == 0 || seconds_since(begin_) + expected < kMostSeconds)) break;
      const std::int64_t began = now_ns();
      const model::Shape shape{rows, request_.sequence_length};
      const auto tokens = static_cast<std::size_t>(shape.tokens());
      std::vector<std::int32_t> inputs(tokens), targets(tokens);
      for (std::size_t i = 0; i < tokens; ++i) {
        inputs[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(one.vocab));
        targets[i] = static_cast<std::int32_t>(i * 104729 % static_cast<std::size_t>(one.vocab));
      }
      std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
      const auto width = tokens * static_cast<std::size_t>(one.hidden);
      std::vector<float> x(width), y(width), d(width);
      ops::fill_normal(ops_, x.data(), static_cast<std::int64_t>(width), 1.0F, {3, 4}, 0);
      for (const auto& segment : model.segments) {
        std::vector<const float*> p;
        std::vector<float*> g;
        for (const int index : segment->params()) {
          p.push_back(params[static_cast<std::size_t>(index)].data());
          g.push_back(grads[static_cast<std::size_t>(index)].data());
        }
        const std::vector<std::uint8_t> accumulate(p.size(), 1);
        const auto saved = memory::make_plain_backing(segment->saved_bytes(shape), "profile");
        double loss = 0;
        for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kForwardBackward}) {
          if (!segment->has_phase(phase)) continue;
          const auto workspace = memory::make_plain_backing(segment->workspace_bytes(phase, shape, ops_.threads), "profile");
          model::SegmentCall call;
          call.ops = &ops_;
          call.shape = shape;
          call.step = {1, 1, true, 1.0F / static_cast<float>(tokens)};
          call.inputs = inputs.data();
          call.targets = targets.data();
          call.sample_ids = ids.data();
          call.params = p;
          call.grads = g;
          call.accumulate = accumulate;
          call.x = x.data();
          call.y = y.data();
          call.d = d.data();
          call.saved = saved->data();
          call.workspace = workspace->data();
          call.loss_sum = &loss;
          const double seconds = time([&] {
            // Backward works in place; a fresh gradient each time keeps its numbers ordinary.
            if (phase == Phase::kBackward) std::fill(d.begin(), d.end(), 1e-3F);
            segment->run(phase, call);
          });
          figures_.add(cat("segment ", model::name_of(segment->kind()), " ", model::name_of(phase), " ", rows), seconds);
        }
      }
      last_seconds = seconds_since(began);
    }
  }

  comm::Communicator& world_;
  const MeasureRequest& request_;
  ops::Context ops_;
  const std::int64_t begin_ = now_ns();
  Figures figures_;
  double flops_ = 0, wake_seconds_ = 0;  // measured before what needs them
  int timings_ = 0, unsteady_ = 0;
  double worst_spread_ = 1, worst_apart_ = 1;  // of the unsteady ones
  volatile std::int64_t sink_ = 0;
};

bool is_rate(const std::string& name) {
  return name.find("per_second") != std::string::npos || name.find("per_core") != std::string::npos;
}

}  // namespace

int cores_of_node(comm::Communicator& world) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  std::ostringstream text;
  text << world.host_name();
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) text << ' ' << cpu;
  }
  std::set<int> cores;
  for (const std::string& other : world.all_gather(text.str())) {
    std::istringstream words(other);
    std::string host;
    words >> host;
    if (host != world.host_name()) continue;
    for (int cpu = 0; words >> cpu;) cores.insert(cpu);
  }
  return static_cast<int>(cores.size());
}

std::string cache_key(comm::Communicator& world, const MeasureRequest& request) {
  const device::CpuFacts facts = device::read_cpu_facts();
  std::ostringstream key;
  for (const std::string& rank : world.all_gather(cat(world.host_name(), " ", facts.model_name, " ", facts.cores))) key << rank << "; ";
  const spec::ModelSpec& m = request.model;
  key << device::name_of(device::detect_isa()) << ", " << ops::library_versions() << ", threads " << request.threads << ", width "
      << m.hidden << "/" << m.heads << "/" << m.key_value_heads() << "/" << m.head_width() << "/" << m.ffn << "/" << m.vocab
      << " of family " << m.family << ", dropout " << m.embedding_dropout << "/" << m.attention_dropout << "/" << m.residual_dropout
      << ", sequence " << request.sequence_length << ", rows";
  for (const std::int64_t rows : request.rows) key << " " << rows;
  if (!request.disk.paths.empty()) {
    key << ", disks";
    for (const std::string& rank : world.all_gather(disk_key(request.disk))) key << rank << ";";
  }
  return key.str();
}

Measurement measure(comm::Communicator& world, const MeasureRequest& request) {
  SLUICE_CHECK(request.threads > 0 && request.sequence_length > 0 && !request.rows.empty(), "nothing to measure");
  const std::int64_t begin = now_ns();
  const int cores = cores_of_node(world);
  const device::CpuFacts facts = device::read_cpu_facts();
  Measuring measuring(world, request);
  Measurement result;
  if (!request.disk.paths.empty()) result.disk = measure_disks(world, request.disk);
  const Figures mine = measuring.run();
  result.unsteady = measuring.unsteady();
  Json json = Json::array();
  for (const auto& [name, value] : mine.list) json.push_back({name, value});
  // The slowest rank rules: the largest time, the smallest rate. All ranks measured the same names in the same order.
  std::map<std::string, double> merged;
  double worst_ratio = 1;
  std::string worst;
  const std::vector<std::string> texts = world.all_gather(json.dump());
  std::vector<Json> ranks;
  for (const std::string& text : texts) ranks.push_back(Json::parse(text));
  for (std::size_t i = 0; i < mine.list.size(); ++i) {
    const std::string& name = mine.list[i].first;
    double low = ranks[0][i][1].get<double>(), high = low;
    std::size_t slowest = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      SLUICE_CHECK(ranks[r][i][0].get<std::string>() == name, "rank ", r, " measured ", ranks[r][i][0].get<std::string>(), " where rank ",
                   world.rank(), " measured ", name);
      const double value = ranks[r][i][1].get<double>();
      if (is_rate(name) ? value < low : value > high) slowest = r;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    merged[name] = is_rate(name) ? low : high;
    if (name.rfind("segment", 0) == 0 || is_rate(name)) {
      const double ratio = high / std::max(low, 1e-12);
      if (ratio > worst_ratio) {
        worst_ratio = ratio;
        worst = cat(name, " (rank ", slowest, " is the slowest)");
      }
    }
  }
  spec::MachineSpec& m = result.machine;
  m.name = cat(world.host_name(), world.size() > world.node_size() ? " and others" : "");
  m.device = "cpu";
  m.device_name = facts.model_name;
  m.isa = device::name_of(device::detect_isa());
  m.ranks_per_node = world.node_size();
  m.cores_per_node = cores;
  m.threads_per_rank = request.threads;
  m.flops_per_core = merged.at("flops_per_core");
  m.memory_bytes_per_second = merged.at("memory_bytes_per_second");
  m.update_bytes_per_second = merged.at("update_bytes_per_second");
  m.upload_bytes_per_second = m.download_bytes_per_second = merged.at("copy_bytes_per_second");
  m.disk = result.disk.speed;
  const auto cost_of = [&](const std::string& name) {
    return spec::LinearCost{merged.at(name + ".latency_seconds"), merged.at(name + ".bytes_per_second"), merged.at(name + ".core_seconds")};
  };
  m.gather = cost_of("gather");
  m.scatter = cost_of("scatter");
  m.agree_seconds = merged.at("agree_seconds");
  m.skew_seconds = merged.at("skew_seconds");
  m.task_seconds = merged.at("task_seconds");
  m.wake_seconds = merged.at("wake_seconds");
  m.device_bytes = facts.memory_available_bytes / std::max(1, world.node_size());
  m.host_bytes = facts.memory_available_bytes;
  m.unplanned_bytes = static_cast<std::int64_t>(merged.at("unplanned_bytes"));
  for (const std::int64_t rows : request.rows) {
    for (const auto& [name, seconds] : merged) {
      std::istringstream words(name);
      std::string head, kind, phase;
      std::int64_t found = 0;
      if (!(words >> head >> kind >> phase >> found) || head != "segment" || found != rows) continue;
      m.segments.push_back({kind, phase, request.model.hidden, rows, request.sequence_length, seconds});
    }
  }
  m.sources["*"] = "measured by sluice profile, all ranks at once";
  // Every rank holds the same merged figures but for what it read of its own node; rank 0's count.
  const std::string all = world.broadcast(spec::to_json(m), 0);
  m = spec::machine_spec_from_json(all, "the profile");
  if (worst_ratio > 1.25)
    result.spread = cat("ranks differ by up to ", std::lround((worst_ratio - 1) * 100), " % in ", worst, "; the slowest rules");
  result.seconds = seconds_since(begin);
  return result;
}

std::string to_json(const std::string& key, const Measurement& measurement) {
  Json json{{"key", key}, {"spread", measurement.spread}, {"unsteady", measurement.unsteady}, {"seconds", measurement.seconds}};
  json["disk"] = {{"lines", measurement.disk.lines}, {"warnings", measurement.disk.warnings}};
  json["machine"] = Json::parse(spec::to_json(measurement.machine));
  return json.dump(2) + "\n";
}

Measurement measurement_from_json(const std::string& text, const std::string& source, std::string& key) {
  try {
    const Json json = Json::parse(text);
    Measurement measurement;
    key = json.at("key").get<std::string>();
    measurement.spread = json.at("spread").get<std::string>();
    measurement.unsteady = json.value("unsteady", std::string());  // of before it was noticed
    measurement.seconds = json.at("seconds").get<double>();
    measurement.disk.lines = json.at("disk").at("lines").get<std::vector<std::string>>();
    measurement.disk.warnings = json.at("disk").at("warnings").get<std::vector<std::string>>();
    measurement.machine = spec::machine_spec_from_json(json.at("machine").dump(), source);
    measurement.disk.speed = measurement.machine.disk;
    return measurement;
  } catch (const Json::exception& error) {
    throw FormatError(source, cat("is no profile: ", error.what(), "; remove it, and it is measured again"));
  }
}

}  // namespace sluice::profile
