// A rank that fails throws what failed; the others are told; nobody waits for ever.

#include <gtest/gtest.h>

#include <atomic>

#include "base/error.hpp"
#include "comm/local/local_communicator.hpp"
#include "support/random_device.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::UpdateMode;

constexpr int kFailing = 1;

TinyRun failing_run(int ranks, int stage, UpdateMode mode, bool random, schedule::Threading threading) {
  TinyRun run;
  run.ranks = ranks;
  run.threading = threading;
  run.plan = tiny_plan(ranks, stage, 2, mode, false, 5120);
  if (random) {
    run.make_device = [](int rank) {
      return std::make_unique<RandomDevice>(RandomDeviceOptions{.seed = static_cast<std::uint64_t>(rank)});
    };
  }
  return run;
}

/// Runs `body` on every rank. The ranks outlive the run, as the memory of a process does that other ranks may still read.
template <typename E>
void expect_failure(const TinyRun& run, const std::string& message, const std::function<void(TinyRank&, int rank)>& body) {
  std::vector<std::unique_ptr<TinyRank>> ranks(static_cast<std::size_t>(run.ranks));
  std::atomic<int> failed{0}, told{0};
  const auto everywhere = [&](comm::Communicator& world) {
    auto& rank = ranks[static_cast<std::size_t>(world.rank())];
    rank = std::make_unique<TinyRank>(run, world);
    world.barrier();
    try {
      body(*rank, world.rank());
      ADD_FAILURE() << "rank " << world.rank() << " went on";
    } catch (const E& error) {
      if (world.rank() == std::min(kFailing, run.ranks - 1)) {
        EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
        EXPECT_THROW(rank->step(9), LogicError) << "an executor isn't used after a failure";
        ++failed;
      }
      throw;
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 failed: " + message), std::string::npos) << error.what();
      EXPECT_THROW(rank->step(9), LogicError);
      ++told;
      throw;
    }
  };
  EXPECT_THROW(comm::run_local_ranks(run.ranks, everywhere), E);
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(told, run.ranks - 1);
}

struct Where {
  bool random;
  schedule::Threading threading;
};
constexpr Where kPlaces[] = {{false, schedule::Threading::kFolded},
                             {false, schedule::Threading::kPerLane},
                             {true, schedule::Threading::kFolded},
                             {true, schedule::Threading::kPerLane}};

TEST(Failure, OfAHostBody) {
  for (const auto& [random, threading] : kPlaces) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(std::to_string(stage) + (random ? " random" : " cpu") +
                   (threading == schedule::Threading::kFolded ? " folded" : " per lane"));
      const TinyRun run = failing_run(3, stage, UpdateMode::kAtEnd, random, threading);
      expect_failure<DivergedError>(run, "the data ran out", [](TinyRank& rank, int number) {
        rank.step(1);
        rank.before_load = [number](int micro) {
          if (number == kFailing && micro == 1) throw DivergedError("the data ran out");
        };
        rank.step(2);
      });
    }
  }
}

TEST(Failure, OnTheCommunicationThread) {
  for (const auto& [random, threading] : kPlaces) {
    const TinyRun run = failing_run(2, 2, UpdateMode::kNextForward, random, threading);
    expect_failure<FormatError>(run, "stop.json: no such answer", [](TinyRank& rank, int number) {
      rank.step(1);
      int question = 0;
      rank.step(2, [&]() -> bool {
        if (number == kFailing && question++ == 1) throw FormatError("stop.json", "no such answer");
        return false;
      });
    });
  }
}

TEST(Failure, WhileSaving) {
  for (const auto& [random, threading] : kPlaces) {
    for (const int ranks : {1, 2}) {
      const TinyRun run = failing_run(ranks, 1, UpdateMode::kNextForward, random, threading);
      expect_failure<IoError>(run, "rank-0000", [ranks](TinyRank& rank, int number) {
        rank.step(1);
        int pieces = 0;
        rank.engine().save([&](std::size_t, const void*) {
          if ((number == kFailing || ranks == 1) && ++pieces == 3) throw IoError("write", "rank-00001.h5", 28);
        });
        rank.step(2);  // the other ranks meet the failed one here
      });
    }
  }
}

/// Faults of the device itself, at any launch of the first step.
TEST(Failure, OfTheDevice) {
  std::int64_t launches = 0;
  const TinyRun plain = failing_run(2, 3, UpdateMode::kInBackward, true, schedule::Threading::kFolded);
  const auto unclipped = [](TinyRun run) {
    run.training.optimizer.gradient_clipping = 0;
    return run;
  };
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    TinyRank rank(unclipped(plain), world);
    rank.step(1);
    if (world.rank() == 0) launches = dynamic_cast<RandomDevice&>(rank.device()).launches();
  });
  ASSERT_GT(launches, 50);
  for (const std::int64_t at : {std::int64_t{1}, std::int64_t{2}, launches / 3, launches / 2, launches - 1, launches}) {
    for (const bool at_launch : {false, true}) {
      for (const auto threading : {schedule::Threading::kFolded, schedule::Threading::kPerLane}) {
        SCOPED_TRACE(std::to_string(at) + (at_launch ? " at launch" : " on the device"));
        TinyRun run = unclipped(failing_run(2, 3, UpdateMode::kInBackward, true, threading));
        run.make_device = [at, at_launch](int rank) {
          RandomDeviceOptions options{.seed = static_cast<std::uint64_t>(at)};
          if (rank == kFailing) (at_launch ? options.fail_launch : options.fail_body) = at;
          return std::make_unique<RandomDevice>(options);
        };
        expect_failure<DeviceError>(run, at_launch ? "launch " + std::to_string(at) + " failed" : "a body failed on the device",
                                    [](TinyRank& rank, int /*number*/) {
                                      rank.step(1);
                                      rank.step(2);
                                    });
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
