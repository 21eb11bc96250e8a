// A rank that fails, for mpi_fault_test: mpi_fault_program HOW, under tests/support/mpirun.
//   throw CODE   the last rank throws while the others wait in a barrier; its catch in main aborts with CODE
//   thread CODE  the last rank's second thread aborts while its first sits in MPI
//   kill         the last rank is killed by SIGKILL while the others poll a channel
//   stop         the last rank stops (SIGSTOP) while the others poll a channel that waits two seconds for it
//   barrier      the last rank stops (SIGSTOP) while the others wait for it in a barrier, and then they ask once more
//   escape       an exception leaves the environment's scope on the last rank, others wait in a barrier
//   exit CODE    all ranks agree on an error and return CODE

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/backoff.hpp"
#include "comm/mpi/mpi_communicator.hpp"

namespace {

using sluice::comm::Communicator;

void poll_for_ever(Communicator& world, int signal) {
  const auto channel = world.open_channel("poll");
  const auto window = world.allocate_window(1 << 20, "poll");
  std::vector<std::int64_t> bounds;
  for (int r = 0; r <= world.size(); ++r) bounds.push_back(r * 1000);
  auto* region = reinterpret_cast<float*>(window->data());
  sluice::comm::Backoff backoff;
  const bool dies = world.rank() == world.size() - 1;
  for (int round = 0;; ++round) {
    if (dies && round == 20) kill(getpid(), signal);
    const auto ticket = channel->post_scatter(region, region + bounds[world.rank()], bounds, false);
    while (!channel->test(ticket)) {
      if (!channel->progress()) backoff.idle();
    }
  }
}

int run(sluice::comm::MpiEnvironment& environment, const std::string& how, int code) {
  const auto world = environment.world({.silence_limit_seconds = 2});
  const bool last = world->rank() == world->size() - 1;
  // Before anyone fails, everybody's process number is known to the test.
  std::printf("process %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  world->barrier();
  try {
    if (how == "kill") poll_for_ever(*world, SIGKILL);
    if (how == "stop") poll_for_ever(*world, SIGSTOP);
    if (how == "exit") agree_or_throw(*world, last ? "agreed" : "", code);
    if (how == "thread" && last) {
      std::thread([&world, code] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        world->abort(code);
      }).detach();
    }
    if (how == "throw" && last) throw sluice::Error(static_cast<sluice::ExitCode>(code), "a fault of the last rank");
    if (how == "barrier" && last) kill(getpid(), SIGSTOP);
    if (how == "escape" && last) throw std::string("not an Error");
    if (how != "thread" || !last) world->barrier();
    std::this_thread::sleep_for(std::chrono::hours(1));
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", world->rank(), error.what());
    if (how == "exit") return static_cast<int>(error.code());
    if (how == "barrier") {
      try {
        world->all_gather("");
      } catch (const sluice::comm::PeerLost& again) {
        std::fprintf(stderr, "rank %d, again: %s\n", world->rank(), again.what());
        std::this_thread::sleep_for(std::chrono::seconds(1));  // so that the other one says it, too
      }
    }
    world->abort(static_cast<int>(error.code()));
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const int code = argc > 2 ? std::atoi(argv[2]) : 0;
  try {
    sluice::comm::MpiEnvironment environment;
    return run(environment, how, code);
  } catch (const std::string&) {
    return 9;
  }
}
