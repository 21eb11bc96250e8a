// The disk's lanes: several transfers at a time on their way, halves that hold the state, and what a failure leaves.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "memory/io/faulty_io.hpp"
#include "schedule/check.hpp"
#include "schedule/execute.hpp"
#include "schedule/place.hpp"
#include "support/graph_inputs.hpp"
#include "support/temp_dir.hpp"

namespace sluice::schedule {
namespace {

using memory::IoDirection;
using spec::Tier;
using testing::GraphInputs;

constexpr std::int64_t kBytes = 2 * kDiskAlignment;
constexpr int kBuffers = 12;  // more than a lane has on their way

spec::TrainingSpec some_training() {
  spec::TrainingSpec training;
  training.batch.sequence_length = 16;
  return training;
}

spec::Plan some_plan() {
  spec::Plan plan;
  plan.chunk_elements = 5120;
  plan.threads = 1;
  return plan;
}

/// Host buffers 0 to kBuffers - 1 to move from, as many to move to, and disk buffers that keep two halves: the same in all graphs.
class DiskLanes : public ::testing::Test {
 protected:
  DiskLanes()
      : inputs_(testing::tiny_model_without_dropout(), some_training(), some_plan()),
        world_(comm::make_single_rank()),
        device_(device::make_cpu_device()) {}

  struct Builder {
    explicit Builder(GraphKind kind) : builder(kind) {
      for (std::int32_t i = 0; i < 2 * kBuffers; ++i)
        builder.add_buffer({.tag = BufferTag::kMoments, .tier = Tier::kHost, .persistent = true, .index = i, .bytes = kBytes});
      for (std::int32_t i = 0; i < kBuffers; ++i)
        builder.add_buffer(
            {.tag = BufferTag::kMoments, .tier = Tier::kDisk, .persistent = true, .halves = true, .index = i, .bytes = 2 * kBytes});
    }
    static BufferId from(int i) { return static_cast<BufferId>(i); }
    static BufferId to(int i) { return static_cast<BufferId>(kBuffers + i); }
    static BufferId kept(int i) { return static_cast<BufferId>(2 * kBuffers + i); }
    void move(Lane lane, BufferId source, BufferId target) {
      builder.add_task({.kind = TaskKind::kMove, .lane = lane, .segment = 0},
                       std::array<Use, 2>{{{source, Access::kRead, Role::kSource}, {target, Access::kWrite, Role::kTarget}}});
    }
    StepGraph finish() {
      StepGraph graph = std::move(builder).finish();
      for (const Tier tier : {Tier::kHost, Tier::kDisk}) graph.alignment[static_cast<std::size_t>(tier)] = kDiskAlignment;
      place(graph, 0);
      check_order(graph);
      check_races(graph);
      return graph;
    }
    GraphBuilder builder;
  };

  /// A disk for graphs that need up to that many bytes of it.
  void open(const StepGraph& graph) {
    memory::SwapSpace::Options options;
    options.paths = {dir_.path()};
    options.identity = {"here", "lanes", 0};
    options.extents = {{0, graph.arena_bytes[static_cast<std::size_t>(Tier::kDisk)]}};
    disk_.emplace(memory::SwapSpace::open(options, io_), 3 * kBuffers);
    host_ = std::make_unique<memory::Arena>(Tier::kHost,
                                            memory::make_plain_backing(graph.arena_bytes[static_cast<std::size_t>(Tier::kHost)], "test"));
  }

  Environment environment() {
    Environment env;
    env.device = device_.get();
    env.arenas = {nullptr, host_.get(), nullptr};
    env.disk = &*disk_;
    env.model = &inputs_.model();
    env.layout = &inputs_.layout();
    env.grouping = &inputs_.grouping();
    env.plan = inputs_.plan();
    env.group = world_.get();
    return env;
  }

  std::byte* memory_of(const StepGraph& graph, BufferId id) const { return host_->at(graph.buffers[id].offset, kBytes); }
  void fill_sources(const StepGraph& graph, int tag) const {
    for (int i = 0; i < kBuffers; ++i) std::memset(memory_of(graph, Builder::from(i)), 16 * tag + i, kBytes);
  }
  void expect_arrived(const StepGraph& graph, int tag) const {
    for (int i = 0; i < kBuffers; ++i) {
      const std::string wanted(kBytes, static_cast<char>(16 * tag + i));
      EXPECT_EQ(std::memcmp(memory_of(graph, Builder::to(i)), wanted.data(), kBytes), 0) << i;
    }
  }

  const testing::TempDir dir_;
  memory::FaultyIo io_;
  const GraphInputs inputs_;
  const std::unique_ptr<comm::Communicator> world_;
  const std::unique_ptr<device::Device> device_;
  std::unique_ptr<memory::Arena> host_;
  std::optional<DiskState> disk_;
};

TEST_F(DiskLanes, HaveSeveralOnTheirWayAndEndInOrder) {
  Builder builder(GraphKind::kFlush);
  std::vector<BufferId> on_disk;
  for (std::int32_t i = 0; i < kBuffers; ++i) {
    on_disk.push_back(builder.builder.add_buffer({.tag = BufferTag::kSaved, .tier = Tier::kDisk, .index = i, .bytes = kBytes}));
    builder.move(Lane::kDiskWrite, Builder::from(i), on_disk.back());
  }
  for (int i = 0; i < kBuffers; ++i) builder.move(Lane::kDiskRead, on_disk[static_cast<std::size_t>(i)], Builder::to(i));
  const StepGraph graph = builder.finish();
  EXPECT_EQ(threading_of(graph), Threading::kPerLane);
  io_.refuse_aio = ENOSYS;  // every transfer is then a call of its own, and those on their way can be counted while they are held
  open(graph);
  Executor executor(environment());
  executor.bind(graph);
  for (int run = 1; run <= 3; ++run) {
    fill_sources(graph, run);
    io_.arm();
    io_.hold(IoDirection::kWrite);
    std::atomic<bool> returned{false};
    std::thread runner([&] {
      executor.run(GraphKind::kFlush, {});
      returned = true;
    });
    io_.await_held(IoDirection::kWrite, 2);
    EXPECT_FALSE(returned);
    EXPECT_EQ(io_.requests(IoDirection::kRead), 0) << "of what isn't written";
    io_.release(IoDirection::kWrite);
    runner.join();
    expect_arrived(graph, run);
    EXPECT_EQ(io_.requests(IoDirection::kWrite), kBuffers);
    EXPECT_EQ(io_.requests(IoDirection::kRead), kBuffers);
  }
}

/// What was written is the state once it is all there; until then, and after a failure, the state is that of before.
TEST_F(DiskLanes, AStateIsReplacedWhenItsSuccessorIsWhole) {
  Builder out(GraphKind::kFlush), in(GraphKind::kEvaluate);
  for (int i = 0; i < kBuffers; ++i) out.move(Lane::kDiskWrite, Builder::from(i), Builder::kept(i));
  for (int i = 0; i < kBuffers; ++i) in.move(Lane::kDiskRead, Builder::kept(i), Builder::to(i));
  const StepGraph write = out.finish(), read = in.finish();
  open(write);
  {
    Executor executor(environment());
    executor.bind(write);
    executor.bind(read);
    for (int run = 1; run <= 3; ++run) {
      fill_sources(write, run);
      executor.run(GraphKind::kFlush, {});
      executor.run(GraphKind::kEvaluate, {});
      expect_arrived(read, run);
    }
    fill_sources(write, 4);
    io_.arm([](IoDirection, int index, std::int64_t bytes) { return index == 0 ? std::int64_t{-EIO} : bytes; });
    try {
      executor.run(GraphKind::kFlush, {});
      ADD_FAILURE() << "no error";
    } catch (const IoError& error) {
      EXPECT_EQ(error.error_number, EIO);
      EXPECT_NE(std::string(error.what()).find("writing"), std::string::npos) << error.what();
    }
    EXPECT_THROW(executor.run(GraphKind::kEvaluate, {}), LogicError);
  }
  io_.arm();
  Executor again(environment());
  again.bind(read);
  again.run(GraphKind::kEvaluate, {});
  const std::string before(kBytes, static_cast<char>(16 * 3));
  EXPECT_EQ(std::memcmp(memory_of(read, Builder::to(0)), before.data(), kBytes), 0) << "the half that failed was taken for the state";
}

/// The memory of a transfer belongs to it until it is over, also where another one has failed.
TEST_F(DiskLanes, AFailureWaitsForWhatIsOnItsWay) {
  Builder builder(GraphKind::kFlush);
  builder.move(Lane::kDiskRead, Builder::kept(0), Builder::to(0));
  builder.move(Lane::kDiskWrite, Builder::from(1), Builder::kept(1));
  const StepGraph graph = builder.finish();
  open(graph);
  Executor executor(environment());
  executor.bind(graph);
  io_.arm([](IoDirection direction, int, std::int64_t bytes) { return direction == IoDirection::kWrite ? std::int64_t{-EIO} : bytes; });
  io_.hold(IoDirection::kRead);
  io_.hold(IoDirection::kWrite);
  std::atomic<bool> returned{false};
  std::thread runner([&] {
    EXPECT_THROW(executor.run(GraphKind::kFlush, {}), IoError);
    returned = true;
  });
  io_.await_held(IoDirection::kRead, 1);
  io_.await_held(IoDirection::kWrite, 1);
  io_.release(IoDirection::kWrite);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(returned) << "the read is still on its way";
  io_.release(IoDirection::kRead);
  runner.join();
  EXPECT_TRUE(returned);
}

TEST_F(DiskLanes, RefusesWhatIsNotPlacedForTheDisk) {
  Builder builder(GraphKind::kFlush);
  builder.move(Lane::kDiskRead, Builder::kept(0), Builder::to(0));
  StepGraph graph = builder.finish();
  open(graph);
  Executor executor(environment());
  graph.buffers[Builder::to(0)].offset = 64;
  EXPECT_THROW(executor.bind(graph), LogicError);
  graph.buffers[Builder::to(0)].offset = 0;
  Environment without = environment();
  without.disk = nullptr;
  Executor diskless(without);
  EXPECT_THROW(diskless.bind(graph), LogicError);
}

}  // namespace
}  // namespace sluice::schedule
