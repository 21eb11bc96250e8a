// Speed of the gradient reduction, held against the contract: at two ranks gradient bytes per rank and second >= 0.6 x the
// memcpy bytes per second of one thread per rank with all ranks copying; < 5 % of a core while idle.
//
//   tests/support/mpirun -n 2 BUILD/bench/comm_bench [MIB_PER_CHUNK [CHUNKS]]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "comm/backoff.hpp"
#include "comm/mpi/mpi_communicator.hpp"

namespace sluice::comm {
namespace {

constexpr int kRepetitions = 9;

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Median over repetitions of bytes per second of the slowest rank; all ranks run `work` at once.
double rate(Communicator& world, std::int64_t bytes, const std::function<void()>& work) {
  std::vector<double> rates;
  for (int i = 0; i < kRepetitions; ++i) {
    world.barrier();
    const std::int64_t begin = now_ns();
    work();
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    double slowest = 0;
    for (const std::string& text : world.all_gather(std::to_string(seconds))) slowest = std::max(slowest, std::stod(text));
    rates.push_back(static_cast<double>(bytes) / slowest);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

void finish(Channel& channel, Channel::Ticket ticket) {
  Backoff backoff;
  while (!channel.test(ticket)) {
    if (channel.progress()) {
      backoff.moved();
    } else {
      backoff.idle();
    }
  }
}

double memcpy_rate(Communicator& world, std::int64_t bytes) {
  std::vector<char> from(static_cast<std::size_t>(bytes), 1);
  std::vector<char> to(static_cast<std::size_t>(bytes), 2);
  return rate(world, bytes, [&] { std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes)); });
}

struct Rates {
  double scatter = 0;
  double accumulate = 0;
  double gather = 0;
};

Rates channel_rates(MpiEnvironment& environment, const MpiOptions& options, std::int64_t chunk_bytes, int chunks) {
  const auto world = environment.world(options);
  const auto channel = world->open_channel("bench");
  const std::int64_t floats = chunk_bytes / 4;
  std::vector<std::int64_t> elements;
  std::vector<std::int64_t> bytes;
  for (int r = 0; r <= world->size(); ++r) {
    elements.push_back(r * floats / world->size());
    bytes.push_back(elements.back() * 4);
  }
  const auto gradients = world->allocate_window(chunk_bytes * chunks, "gradients");
  const auto shards = world->allocate_window((bytes[1] + 4) * chunks, "shards");
  std::memset(gradients->data(), 0, static_cast<std::size_t>(gradients->bytes()));
  std::memset(shards->data(), 0, static_cast<std::size_t>(shards->bytes()));
  const auto region = [&](int chunk) { return gradients->data() + chunk * chunk_bytes; };
  const auto shard = [&](int chunk) { return shards->data() + chunk * (bytes[1] + 4); };
  const auto scatter = [&](bool accumulate) {
    Channel::Ticket last = 0;
    for (int c = 0; c < chunks; ++c) {
      last = channel->post_scatter(reinterpret_cast<float*>(region(c)), reinterpret_cast<float*>(shard(c)), elements, accumulate);
    }
    finish(*channel, last);
  };
  const auto gather = [&] {
    Channel::Ticket last = 0;
    for (int c = 0; c < chunks; ++c) last = channel->post_gather(shard(c), region(c), bytes);
    finish(*channel, last);
  };
  Rates rates;
  rates.scatter = rate(*world, chunk_bytes * chunks, [&] { scatter(false); });
  rates.accumulate = rate(*world, chunk_bytes * chunks, [&] { scatter(true); });
  rates.gather = rate(*world, chunk_bytes * chunks, gather);
  world->barrier();
  return rates;
}

/// Share of a core that this rank uses while it polls for peers that come 2 s later.
double idle_share(MpiEnvironment& environment, const MpiOptions& options) {
  const auto world = environment.world(options);
  const auto channel = world->open_channel("idle");
  std::vector<float> region(1024);
  std::vector<std::int64_t> bounds;
  for (int r = 0; r <= world->size(); ++r) bounds.push_back(r * 1024 / world->size());
  world->barrier();
  double share = 0;
  if (world->rank() == 0) {
    const double cpu_begin = process_cpu_seconds();
    const std::int64_t begin = now_ns();
    finish(*channel, channel->post_scatter(region.data(), region.data(), bounds, false));
    share = (process_cpu_seconds() - cpu_begin) / (static_cast<double>(now_ns() - begin) * 1e-9);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    finish(*channel, channel->post_scatter(region.data(), region.data() + bounds[world->rank()], bounds, false));
  }
  world->barrier();
  return share;
}

void run(MpiEnvironment& environment, std::int64_t chunk_bytes, int chunks) {
  const auto world = environment.world();
  const bool prints = world->rank() == 0;
  const double copying = memcpy_rate(*world, chunk_bytes * chunks);
  if (prints) {
    std::printf("%d ranks, %s, %d chunks of %s\n", world->size(), mpi_library_version().c_str(), chunks, format_bytes(chunk_bytes).c_str());
    std::printf("memcpy, all ranks copying:    %6.2f GB/s a rank\n", copying * 1e-9);
  }
  for (const bool windows : {true, false}) {
    MpiOptions options;
    options.use_windows = windows;
    const Rates rates = channel_rates(environment, options, chunk_bytes, chunks);
    const double idle = idle_share(environment, options);
    if (!prints) continue;
    std::printf(
        "%s scatter: %6.2f GB/s a rank = %.2f x memcpy; accumulating %6.2f = %.2f x; gather %6.2f = %.2f x; idle %.1f %% of a core\n",
        windows ? "windows, " : "messages,", rates.scatter * 1e-9, rates.scatter / copying, rates.accumulate * 1e-9,
        rates.accumulate / copying, rates.gather * 1e-9, rates.gather / copying, idle * 100);
  }
}

}  // namespace
}  // namespace sluice::comm

int main(int argc, char** argv) {
  const std::int64_t chunk_bytes = (argc > 1 ? std::atoi(argv[1]) : 16) * sluice::kMiB;
  const int chunks = argc > 2 ? std::atoi(argv[2]) : 16;
  if (chunk_bytes <= 0 || chunks <= 0) {
    std::fprintf(stderr, "usage: comm_bench [MIB_PER_CHUNK [CHUNKS]]\n");
    return 2;
  }
  try {
    sluice::comm::MpiEnvironment environment;
    sluice::comm::run(environment, chunk_bytes, chunks);
    return 0;
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "comm_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
