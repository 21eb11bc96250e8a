// Three tiers: wherever working parameters, gradients and states stand between their uses, a training has the bits that it has with
// everything on the device (design section 6); and a fault of the disk ends it in order.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/units.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "memory/io/faulty_io.hpp"
#include "memory/io/swap_file.hpp"
#include "support/home_cases.hpp"
#include "support/lagging_io.hpp"
#include "support/random_device.hpp"
#include "support/tiny_training.hpp"
#include "train/loop.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using schedule::GraphKind;
using spec::ChunkHomes;
using spec::Precision;
using spec::Tier;
using spec::UpdateMode;

constexpr std::array<UpdateMode, 3> kModes{UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward};

TinyRun run_of(int ranks, int stage, std::int64_t accumulation, UpdateMode mode, Precision precision, std::int64_t chunk = 5120,
               int prefetch = 1) {
  TinyRun run;
  run.ranks = ranks;
  run.steps = 2;
  run.training.precision = precision;
  if (mode == UpdateMode::kInBackward) run.training.optimizer.gradient_clipping = 0;
  run.plan = tiny_plan(ranks, stage, accumulation, mode, false, chunk, prefetch);
  return run;
}

TinyRun homed(TinyRun run, const std::vector<ChunkHomes>& homes) {
  run.plan = with_homes(run.model, run.training, run.plan, homes);
  return run;
}

/// What a stage and an update mode allow, each alone, and all of them mixed with chunks that stay on the device.
std::vector<std::vector<ChunkHomes>> choices_of_stage(int stage, UpdateMode mode) {
  std::vector<std::vector<ChunkHomes>> choices;
  for (const ChunkHomes& homes : homes_of_stage(stage, mode)) choices.push_back({homes});
  choices.push_back(homes_of_stage(stage, mode));
  choices.back().emplace_back();
  return choices;
}

std::string description_of(const std::vector<ChunkHomes>& homes) {
  return homes.size() > 1 ? "mixed homes" : words_of(homes.front());
}

/// Everything on the device, at the end of the step: what all plans of one arithmetic signature are held against.
class References {
 public:
  const TinyResult& of(TinyRun run) {
    run.plan.homes.clear();
    run.plan.update_mode = UpdateMode::kAtEnd;
    run.plan.order = spec::MicroBatchOrder::kDepthFirst;
    run.plan.zero_stage = run.plan.zero_stage >= 2 ? 2 : 0;
    run.threading = schedule::Threading::kFolded;
    run.poison = false;
    run.lag_seed = 0;
    run.make_device = {};
    run.io = {};
    const auto key = std::tuple(run.ranks, run.plan.accumulation, run.plan.zero_stage, run.training.precision,
                                run.training.optimizer.gradient_clipping > 0, run.steps);
    const auto [found, is_new] = results_.try_emplace(key);
    if (is_new) found->second = run_tiny(run);
    return found->second;
  }

 private:
  std::map<std::tuple<int, std::int64_t, int, Precision, bool, int>, TinyResult> results_;
};

void train_under_every_home(int stage) {
  References references;
  const auto choices = choices_of_stage(stage, UpdateMode::kAtEnd);
  std::set<std::array<int, 3>> pairs;  // what was together in one run: choice with ranks, accumulation, precision
  std::set<std::array<int, 4>> signatures;
  int n = 0;
  for (std::size_t choice = 0; choice < choices.size(); ++choice) {
    for (int mode = 0; mode < 3; ++mode, ++n) {
      const int c = static_cast<int>(choice);
      const int ranks = 1 + (mode + c) % 3, accumulation = (mode + c / 3) % 2 == 0 ? 4 : 1;
      const bool narrow = (mode + (c / 2) % 2) % 3 != 1;
      std::vector<ChunkHomes> homes = choices[choice];
      UpdateMode update = kModes[static_cast<std::size_t>(mode)];
      if (update == UpdateMode::kInBackward) {  // without gradients on disk
        if (homes.size() > 1) homes = choices_of_stage(stage, update).back();
        if (homes.front().gradient == Tier::kDisk) update = UpdateMode::kAtEnd;
      }
      TinyRun run =
          run_of(ranks, stage, accumulation, update, narrow ? Precision::kBf16 : Precision::kFp32, n % 2 == 0 ? 5120 : 20480, n % 3);
      if (stage >= 2 && n % 4 == 1) run.plan.order = spec::MicroBatchOrder::kLayerByLayer;
      run.plan.state_prefetch = n % 4 % 3;
      if (n % 5 == 0) run.plan.rcache_elements *= 2;
      const std::string what = "zero_stage " + std::to_string(stage) + ", " + description_of(homes) + ", " +
                               std::string(name_of(run.plan.order)) + ", ranks " + std::to_string(ranks) + ", accumulation " +
                               std::to_string(accumulation) + ", " + std::string(name_of(run.plan.update_mode)) + ", " +
                               std::string(name_of(run.training.precision)) + ", case " + std::to_string(n);
      SCOPED_TRACE(what);
      const TinyResult& expected = references.of(run);
      ASSERT_EQ(difference(expected, run_tiny(homed(run, homes))), "");
      pairs.insert({c, 0, ranks});
      pairs.insert({c, 1, accumulation});
      pairs.insert({c, 2, narrow ? 1 : 0});
    }
  }
  EXPECT_EQ(pairs.size(), choices.size() * (3 + 2 + 2)) << "not every pair came together";
}

TEST(Tiers, SameBitsWithZeRO0) {
  train_under_every_home(0);
}
TEST(Tiers, SameBitsWithZeRO1) {
  train_under_every_home(1);
}
TEST(Tiers, SameBitsWithZeRO2) {
  train_under_every_home(2);
}
TEST(Tiers, SameBitsWithZeRO3) {
  train_under_every_home(3);
}

/// Frozen chunks, which have only working parameters, and optimizers with one moment and none.
TEST(Tiers, SameBitsWithFrozenChunksAndFewerMoments) {
  for (const auto kind : {spec::OptimizerKind::kSgd, spec::OptimizerKind::kLion}) {
    for (const bool freezes : {false, true}) {
      SCOPED_TRACE(std::string(name_of(kind)) + (freezes ? ", frozen" : ""));
      TinyRun run = run_of(2, 3, 2, UpdateMode::kNextForward, Precision::kBf16);
      run.training.optimizer.kind = kind;
      if (freezes) run.training.trainable = {"h\\.[12]\\."};
      run.plan.rcache_elements = 1 << 20;  // other classes of parameters make other chunks
      const TinyResult expected = run_tiny(run);
      const auto all = choices_of_stage(3, run.plan.update_mode);
      EXPECT_EQ(difference(expected, run_tiny(homed(run, all.back()))), "");
      EXPECT_EQ(difference(expected, run_tiny(homed(run, {{Tier::kDisk, Tier::kHost, Tier::kDisk}}))), "");
      EXPECT_EQ(difference(expected, run_tiny(homed(run, {{Tier::kHost, Tier::kDisk, Tier::kDisk}}))), "");
    }
  }
}

/// Whatever order the device, the ranks and the disk take, with dead buffers full of NaN.
TEST(Tiers, SameBitsInAnyOrder) {
  References references;
  int n = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const UpdateMode mode : kModes) {
      const auto choices = choices_of_stage(stage, mode);
      for (const std::size_t choice : {choices.size() - 1, static_cast<std::size_t>(n) % (choices.size() - 1)}) {
        TinyRun run = run_of(1 + n % 3, stage, n % 2 == 0 ? 1 : 2, mode, n % 4 < 2 ? Precision::kBf16 : Precision::kFp32,
                             n % 2 == 0 ? 5120 : 20480, n % 3);
        run.plan.state_prefetch = n % 3;
        SCOPED_TRACE("zero_stage " + std::to_string(stage) + ", " + description_of(choices[choice]) + ", " + std::string(name_of(mode)) +
                     ", seed " + std::to_string(n));
        const TinyResult& expected = references.of(run);
        run = homed(run, choices[choice]);
        run.poison = true;
        run.lag_seed = static_cast<std::uint64_t>(n) + 1;
        const int workers = 1 + n % 2;
        run.make_device = [n, workers](int rank) {
          return std::make_unique<RandomDevice>(
              RandomDeviceOptions{.seed = static_cast<std::uint64_t>(n * 100 + rank), .workers = workers});
        };
        const LaggingIo io(static_cast<std::uint64_t>(n));
        run.io = [&io](int) { return &io; };
        ASSERT_EQ(difference(expected, run_tiny(run)), "");
        ++n;
      }
    }
  }
}

/// Gradients on disk, summed there micro-batch by micro-batch, or in host memory where those follow each other.
TEST(Tiers, SameBitsWithGradientsOnDiskInBothOrders) {
  References references;
  int n = 0;
  for (const int stage : {2, 3}) {
    for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
      for (const auto order : {spec::MicroBatchOrder::kDepthFirst, spec::MicroBatchOrder::kLayerByLayer}) {
        for (const std::int64_t accumulation : {1, 4}) {
          TinyRun run = run_of(1 + n % 3, stage, accumulation, mode, n / 2 % 2 == 0 ? Precision::kFp32 : Precision::kBf16,
                               n % 3 == 0 ? 20480 : 5120, n % 2);
          run.plan.order = order;
          SCOPED_TRACE("zero_stage " + std::to_string(stage) + ", " + std::string(name_of(mode)) + ", " + std::string(name_of(order)) +
                       ", accumulation " + std::to_string(accumulation));
          const TinyResult& expected = references.of(run);
          run = homed(run, {{stage == 3 ? Tier::kHost : Tier::kDevice, Tier::kDisk, Tier::kDisk}});
          run.poison = true;
          run.lag_seed = static_cast<std::uint64_t>(n) + 1;
          const LaggingIo io(static_cast<std::uint64_t>(n));
          run.io = [&io](int) { return &io; };
          ASSERT_EQ(difference(expected, run_tiny(run)), "");
          ++n;
        }
      }
    }
  }
}

// --- what changes nothing ----------------------------------------------------------------------------------------------------

/// What a rank has in its disk arena between runs.
std::string arena_on_disk(TinyRank& rank) {
  std::string file;
  for (const auto& entry : fs::recursive_directory_iterator(rank.swap()->path())) {
    if (entry.is_regular_file()) file = entry.path().string();
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(rank.engine().graph(GraphKind::kStep).persistent_bytes[static_cast<std::size_t>(Tier::kDisk)]),
                    '\0');
  in.seekg(memory::kSwapHeaderBytes);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  SLUICE_CHECK(in.good() && !bytes.empty(), file, " is too short");
  return bytes;
}

/// The states in there, of every buffer the first `halves`.
std::string states_on_disk(TinyRank& rank, int halves = 2) {
  const std::string bytes = arena_on_disk(rank);
  std::string states;
  for (const schedule::Buffer& buffer : rank.engine().graph(GraphKind::kStep).buffers) {
    if (buffer.persistent && buffer.tier == Tier::kDisk && buffer.halves)
      states += bytes.substr(static_cast<std::size_t>(buffer.offset), static_cast<std::size_t>(buffer.copy_bytes() * halves));
  }
  return states;
}

void on_ranks(const TinyRun& run, const std::function<void(TinyRank&, comm::Communicator&)>& body) {
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();
    TinyRank rank(run, world);
    body(rank, world);
  });
}

const std::vector<ChunkHomes> kStatesOnDisk{{Tier::kDevice, Tier::kDevice, Tier::kDisk}};
const std::vector<ChunkHomes> kAllOnDisk{{Tier::kDisk, Tier::kHost, Tier::kDisk}};  // but for gradients
const std::vector<ChunkHomes> kGradientsToo{{Tier::kDisk, Tier::kDisk, Tier::kDisk}};

/// Steps in which no token counts, with every update mode.
TEST(Tiers, AnEmptyStepLeavesAllTiersAsTheyAre) {
  for (const UpdateMode mode : kModes) {
    for (const int stage : {0, 2, 3}) {
      SCOPED_TRACE(std::string(name_of(mode)) + ", zero_stage " + std::to_string(stage));
      TinyRun run = run_of(2, stage, 2, mode, Precision::kBf16);
      // Samples of step 2.
      run.counts = [batch = run.training.batch.global_batch](std::int64_t sample, std::int64_t t) {
        return (sample < batch || sample >= 2 * batch) && t % 5 != 0;
      };
      run.steps = 4;
      const TinyResult expected = run_tiny(run);
      run = homed(run, stage != 3 ? kStatesOnDisk : mode == UpdateMode::kInBackward ? kAllOnDisk : kGradientsToo);
      on_ranks(run, [&](TinyRank& rank, comm::Communicator&) {
        rank.step(1);
        const std::string state = rank.state(), disk = states_on_disk(rank);
        EXPECT_TRUE(rank.step(2).report.skipped);
        EXPECT_TRUE(states_on_disk(rank) == disk) << "something was written";
        EXPECT_TRUE(rank.state() == state);
        EXPECT_EQ(rank.step(3).report.loss, expected.losses[2]);
        EXPECT_EQ(rank.step(4).report.loss, expected.losses[3]);
        EXPECT_TRUE(rank.state() == expected.state);
      });
      if (HasFailure()) return;
    }
  }
}

TEST(Tiers, AnOverflowInFp16LeavesAllTiersAsTheyAre) {
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(name_of(mode)) + ", zero_stage " + std::to_string(stage));
      TinyRun run = run_of(1 + stage % 3, stage, 2, mode, Precision::kFp16);
      run.training.loss_scale = {.initial_power = 24, .window = 2, .hysteresis = 1};
      constexpr int kSteps = 10;
      TinyResult expected;
      on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
        for (int s = 1; s <= kSteps; ++s) {
          const double loss = rank.step(s).report.loss;
          if (world.rank() == 0) expected.losses.push_back(loss);
        }
        const std::string state = rank.state();
        if (world.rank() == 0) expected.state = state;
      });
      std::vector<std::vector<ChunkHomes>> choices{choices_of_stage(stage, mode).back()};
      if (stage == 3) choices.insert(choices.end(), {kAllOnDisk, kGradientsToo});
      for (const auto& homes : choices) {
        on_ranks(homed(run, homes), [&](TinyRank& rank, comm::Communicator&) {
          int skipped = 0;
          for (int s = 1; s <= kSteps; ++s) {
            rank.engine().flush();  // next_forward's update would come with the step
            const std::string disk = states_on_disk(rank);
            const schedule::Report report = rank.step(s).report;
            ASSERT_EQ(report.loss, expected.losses[static_cast<std::size_t>(s - 1)]) << "step " << s;
            if (!report.skipped) continue;
            ++skipped;
            EXPECT_TRUE(states_on_disk(rank) == disk) << "step " << s << " wrote";
          }
          EXPECT_GT(skipped, 3);
          EXPECT_LT(skipped, kSteps - 1);
          EXPECT_TRUE(rank.state() == expected.state);
        });
      }
      if (HasFailure()) return;
    }
  }
}

/// A step stopped at any of its questions is that of before on all tiers, or whole.
TEST(Tiers, ACancelledStepLeavesTheStateOfTheStepBefore) {
  for (const UpdateMode mode : kModes) {
    for (const int stage : {1, 3}) {
      SCOPED_TRACE(std::string(name_of(mode)) + ", zero_stage " + std::to_string(stage));
      TinyRun run = homed(run_of(2, stage, 2, mode, Precision::kFp32), choices_of_stage(stage, mode).back());
      run.segments_between_agrees = 2;
      std::vector<bool> can_cancel;
      {
        const GraphInputs inputs(run.model, run.training, run.plan, run.segments_between_agrees);
        for (const schedule::Task& task : inputs.build(GraphKind::kStep).tasks) {
          if (task.lane == schedule::Lane::kMeshComm) can_cancel.push_back(task.can_cancel);
        }
      }
      const int questions = static_cast<int>(can_cancel.size());
      std::vector<std::string> states;
      TinyRun plain = run;
      plain.plan.homes.clear();
      on_ranks(plain, [&](TinyRank& rank, comm::Communicator& world) {
        for (int s = 0; s <= questions; ++s) {
          if (s > 0) rank.step(s);
          const std::string state = rank.state();
          if (world.rank() == 0) states.push_back(state);
        }
      });
      std::atomic<int> cancelled{0};
      on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
        for (int s = 1; s <= questions; ++s) {
          int question = 0;
          const schedule::RunResult result = rank.step(s, [&] { return question++ == s - 1 && world.rank() == s % 2; });
          EXPECT_EQ(result.cancelled, can_cancel[static_cast<std::size_t>(s - 1)]) << s;
          if (result.cancelled) {
            ++cancelled;
            EXPECT_TRUE(rank.state() == states[static_cast<std::size_t>(s - 1)]) << "stopped at question " << s - 1;
            rank.step(s);
          }
          EXPECT_TRUE(rank.state() == states[static_cast<std::size_t>(s)]) << "after step " << s;
        }
      });
      EXPECT_GT(cancelled, 0);
      if (HasFailure()) return;
    }
  }
}

// --- checkpoints -------------------------------------------------------------------------------------------------------------

void save(TinyRank& rank, comm::Communicator& world, const std::string& directory, std::int64_t step) {
  train::Engine& engine = rank.engine();
  checkpoint::Progress progress;
  progress.step = step;
  progress.adam_count = engine.adam_count();
  checkpoint::CheckpointSave saving(world, directory, progress, {}, train::param_infos(engine.model()),
                                    train::checkpoint_pieces(engine.model(), engine.owned_pieces()), {});
  engine.save([&](std::size_t piece, const void* data) { saving.write(piece, data); });
  const checkpoint::CommitResult result = saving.commit();
  ASSERT_TRUE(result.ok) << result.reason;
}

/// Where states stand is no matter of the checkpoint: any homes, stages and rank counts continue from any other's.
TEST(Tiers, CheckpointsKnowNoHomes) {
  struct Side {
    int ranks;
    int stage;
    std::vector<ChunkHomes> homes;
    std::int64_t chunk;
  };
  const std::vector<Side> sides{{1, 0, {{}}, 5120},
                                {2, 1, {{Tier::kDevice, Tier::kDevice, Tier::kHost}}, 20480},
                                {3, 3, kAllOnDisk, 5120},
                                {1, 3, {{Tier::kHost, Tier::kHost, Tier::kDisk}}, 5120},
                                {2, 3, choices_of_stage(3, UpdateMode::kNextForward).back(), 1024},
                                {2, 3, kGradientsToo, 5120},
                                {3, 0, kStatesOnDisk, 20480}};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (std::size_t from = 0; from < sides.size(); ++from) {
      const TempDir dir;
      const auto make = [&](const Side& side) {
        return homed(run_of(side.ranks, side.stage, 1, UpdateMode::kNextForward, precision, side.chunk), side.homes);
      };
      std::string state;
      on_ranks(make(sides[from]), [&](TinyRank& rank, comm::Communicator& world) {
        rank.step(1);
        rank.step(2);
        save(rank, world, dir.path(), 2);
        const std::string mine = rank.state();
        if (world.rank() == 0) state = mine;
      });
      const std::size_t to = (from + (precision == Precision::kFp32 ? 1 : 3)) % sides.size();
      SCOPED_TRACE(std::string(name_of(precision)) + ", from " + std::to_string(from) + " to " + std::to_string(to));
      std::vector<std::string> continued(2);
      on_ranks(make(sides[to]), [&](TinyRank& rank, comm::Communicator& world) {
        EXPECT_FALSE(rank.state() == state) << "nothing to load";
        const auto loaded =
            checkpoint::load_newest(world, dir.path(), train::param_infos(rank.engine().model()), train::filling(rank.engine()));
        ASSERT_TRUE(loaded.has_value());
        rank.engine().resume(loaded->manifest.progress);
        EXPECT_TRUE(rank.state() == state);
        rank.step(3);
        const std::string mine = rank.state();
        if (world.rank() == 0) continued[0] = mine;
      });
      // The working copies, which are in no checkpoint, are right as well: the next step is that of a plan with everything on the device.
      TinyRun plain = make(sides[to]);
      plain.plan.homes.clear();
      on_ranks(plain, [&](TinyRank& rank, comm::Communicator& world) {
        const auto loaded =
            checkpoint::load_newest(world, dir.path(), train::param_infos(rank.engine().model()), train::filling(rank.engine()));
        rank.engine().resume(loaded->manifest.progress);
        rank.step(3);
        const std::string mine = rank.state();
        if (world.rank() == 0) continued[1] = mine;
      });
      EXPECT_TRUE(continued[0] == continued[1]);
      if (HasFailure()) return;
    }
  }
}

TEST(Tiers, ADamagedCheckpointIsPassedOver) {
  const TempDir dir;
  const TinyRun run = homed(run_of(2, 3, 1, UpdateMode::kAtEnd, Precision::kBf16), kAllOnDisk);
  std::string older;
  on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
    for (const int s : {1, 2}) {
      rank.step(s);
      save(rank, world, dir.path(), s);
      const std::string state = rank.state();
      if (world.rank() == 0 && s == 1) older = state;
    }
  });
  {
    // In the last numbers, so that much of the engine is filled before it shows.
    const checkpoint::Manifest manifest = checkpoint::read_manifest(dir / "step-00000002");
    const checkpoint::StoredPlane& plane = manifest.shards[1].planes.back();
    File(dir / "step-00000002/rank-00001.h5", O_RDWR).write_at("\x7f\x7f\x7f\x7f", 4, plane.offset + (plane.elements - 1) * 4);
  }
  on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
    const auto loaded =
        checkpoint::load_newest(world, dir.path(), train::param_infos(rank.engine().model()), train::filling(rank.engine()));
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->manifest.progress.step, 1);
    EXPECT_EQ(loaded->refused.size(), 1U);
    EXPECT_TRUE(rank.state() == older);
  });
}

// --- the engine's account of itself ------------------------------------------------------------------------------------------

TEST(Tiers, HeldPiecesComeOnceAndInAsManyCallsOnEveryRank) {
  // Chunks of one block: some ranks have none of some.
  TinyRun run = homed(run_of(3, 3, 1, UpdateMode::kAtEnd, Precision::kBf16, 256), {{Tier::kDisk, Tier::kHost, Tier::kDisk}, {}});
  on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
    int calls = 0;
    std::map<std::tuple<chunks::Plane, int, std::int64_t>, int> seen;
    rank.engine().fill([&](std::span<const train::HeldPiece> batch) {
      ++calls;
      for (const train::HeldPiece& piece : batch) {
        ASSERT_NE(piece.data, nullptr);
        ++seen[{piece.plane, piece.param, piece.begin}];
        std::memset(piece.data, 0x3C, static_cast<std::size_t>(piece.count * size_of(piece.dtype)));
      }
    });
    EXPECT_GT(calls, 1);
    EXPECT_EQ(seen.size(), rank.engine().held_pieces().size());
    for (const auto& [piece, times] : seen) EXPECT_EQ(times, 1);
    const auto& held = rank.engine().held_pieces();
    const auto on_disk = std::count_if(held.begin(), held.end(), [](const train::HeldPiece& piece) { return piece.data == nullptr; });
    EXPECT_EQ(on_disk > 0, world.rank() == 2) << "the last rank has a block that can't be shared";
    for (const std::string& other : world.all_gather(std::to_string(calls))) EXPECT_EQ(other, std::to_string(calls));
    const std::string state = rank.state();
    EXPECT_EQ(std::count(state.begin(), state.end(), '\x3C'), static_cast<std::ptrdiff_t>(state.size()));
  });
}

TEST(Tiers, CountsTheBytesOfTheDisk) {
  const TinyRun run = homed(run_of(2, 1, 1, UpdateMode::kAtEnd, Precision::kFp32), kStatesOnDisk);
  on_ranks(run, [&](TinyRank& rank, comm::Communicator& world) {
    train::Engine& engine = rank.engine();
    std::int64_t moved = 0;  // in a step, each way: this rank's part of both moments of every chunk, in whole blocks
    for (const chunks::Chunk& chunk : engine.build_inputs().layout->chunks()) {
      const auto bounds = chunks::shard_bounds(chunk.elements, 2);
      const auto r = static_cast<std::size_t>(world.rank());
      moved += 2 * round_up((bounds[r + 1] - bounds[r]) * static_cast<std::int64_t>(sizeof(float)), 4096);
    }
    const train::SwapBytes before = engine.swap_bytes();
    EXPECT_GE(before.written, engine.arena_bytes()[static_cast<std::size_t>(Tier::kDisk)]);
    rank.step(1);
    const train::SwapBytes after = engine.swap_bytes();
    EXPECT_EQ(after.read - before.read, moved);
    EXPECT_EQ(after.written - before.written, moved);
  });
  TinyRun plain = run;
  plain.plan.homes.clear();
  on_ranks(plain, [&](TinyRank& rank, comm::Communicator&) {
    rank.step(1);
    EXPECT_EQ(rank.engine().swap_bytes().written, 0);
    EXPECT_TRUE(rank.engine().notes().empty());
  });
}

// --- faults ------------------------------------------------------------------------------------------------------------------

/// A request of rank `failing` in the middle of a step fails: that rank throws what failed, the others are told, and what the last step
/// left on disk is whole. `at`: which request of the step; -1: the last.
void fail_in_mid_step(const TinyRun& given, int failing, memory::IoDirection direction, int at) {
  TinyRun run = given;
  std::vector<memory::FaultyIo> disks(static_cast<std::size_t>(run.ranks));
  run.io = [&disks](int rank) { return &disks[static_cast<std::size_t>(rank)]; };
  std::vector<std::unique_ptr<TinyRank>> ranks(static_cast<std::size_t>(run.ranks));  // other ranks may read their memory to the end
  std::atomic<int> failed{0}, told{0};
  const auto body = [&](comm::Communicator& world) {
    device::flush_denormals_on_this_thread();
    auto& rank = ranks[static_cast<std::size_t>(world.rank())];
    memory::FaultyIo& disk = disks[static_cast<std::size_t>(world.rank())];
    rank = std::make_unique<TinyRank>(run, world);
    rank->step(1);
    rank->step(2);
    disk.arm();
    rank->step(3);
    const int of_step = disk.requests(direction);
    ASSERT_GT(of_step, 0);
    if (run.plan.update_mode == UpdateMode::kNextForward) rank->step(4);  // one update is still to come
    // Filling wrote the second halves and three updates turned them over: the state stands in the first.
    const std::string before = states_on_disk(*rank, 1);
    if (world.rank() == failing) {
      disk.arm([=](memory::IoDirection of, int index, std::int64_t bytes) {
        return of == direction && index == (at >= 0 ? at : of_step - 1) ? std::int64_t{-EIO} : bytes;
      });
    }
    world.barrier();
    try {
      rank->step(5);
      EXPECT_NE(world.rank(), failing);
      rank->step(6);  // who has no meeting left in a step when another rank fails in it hears of it in the next
      ADD_FAILURE() << "rank " << world.rank() << " went on";
    } catch (const IoError& error) {
      EXPECT_EQ(world.rank(), failing);
      EXPECT_EQ(error.error_number, EIO);
      EXPECT_NE(std::string(error.what()).find(".swap"), std::string::npos) << error.what();
      EXPECT_TRUE(states_on_disk(*rank, 1) == before) << "the last step's states are gone";
      EXPECT_THROW(rank->step(5), LogicError) << "an executor isn't used after a failure";
      ++failed;
      throw;
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("failed: "), std::string::npos) << error.what();
      ++told;
      throw;
    }
  };
  EXPECT_THROW(comm::run_local_ranks(run.ranks, body), IoError);
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(told, run.ranks - 1);
}

/// Before anything is written of the files to swap to, every rank is asked; what one of them answers ends the run on all.
TEST(Tiers, FillingTheDiskEndsEverywhereWhereOneRankEndsIt) {
  for (const bool stops : {false, true}) {
    TinyRun run = homed(run_of(2, 3, 2, UpdateMode::kAtEnd, Precision::kBf16), kAllOnDisk);
    std::atomic<int> asked{0}, ended{0};
    run.on_fill = [&](int rank, std::int64_t written, std::int64_t bytes) {
      EXPECT_EQ(written, 0);
      EXPECT_GT(bytes, 0);
      ++asked;
      if (stops && rank == 1) throw ResumableStop("asked to stop");
    };
    comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
      try {
        const TinyRank rank(run, world);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kResumable);
        EXPECT_TRUE(error.is_agreed());
        EXPECT_STREQ(error.what(), "rank 1: asked to stop");
        ++ended;
      }
    });
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(ended, stops ? 2 : 0);
  }
}

TEST(Tiers, AFaultOfTheDiskEndsTheStepEverywhere) {
  int n = 0;
  for (const UpdateMode mode : kModes) {
    for (const auto direction : {memory::IoDirection::kRead, memory::IoDirection::kWrite}) {
      for (const int at : {0, 3, -1}) {
        const int ranks = 1 + n % 3;
        SCOPED_TRACE(std::string(name_of(mode)) + (direction == memory::IoDirection::kRead ? ", read " : ", write ") + std::to_string(at) +
                     ", ranks " + std::to_string(ranks));
        TinyRun run = homed(run_of(ranks, 3, 2, mode, Precision::kBf16), n % 2 == 0 ? kAllOnDisk : choices_of_stage(3, mode).back());
        if (n % 4 == 3) {
          run.make_device = [](int rank) {
            return std::make_unique<RandomDevice>(RandomDeviceOptions{.seed = static_cast<std::uint64_t>(rank)});
          };
        }
        fail_in_mid_step(run, ranks - 1, direction, at);
        ++n;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
