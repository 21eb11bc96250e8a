#include "schedule/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "support/plain_machine.hpp"
#include "support/sanitized.hpp"

namespace sluice::schedule {
namespace {

using testing::plain_machine;

Price cores_for(double seconds, double cores = 1) {
  return {.core_seconds = seconds * cores, .cores = cores};
}
Price memory(double bytes) {
  return {.memory_bytes = bytes};
}
Price latency(double seconds) {
  return {.latency_seconds = seconds};
}

/// Tasks by lane and what each touches; waits follow from the buffers.
class TestGraph {
 public:
  BufferId buffer() { return builder_.add_buffer({.bytes = 64}); }
  TaskId add(Lane lane, const Price& price, std::vector<Use> uses = {}) {
    prices.push_back(price);
    return builder_.add_task({.kind = TaskKind::kCompute, .lane = lane}, uses);
  }
  static Use read(BufferId b) { return {b, Access::kRead, Role::kInput}; }
  static Use write(BufferId b) { return {b, Access::kWrite, Role::kOutput}; }
  Simulation run(const spec::MachineSpec& machine, const SimulateOptions& options) const {
    return simulate(builder_.graph(), prices, machine, options);
  }
  const StepGraph& graph() const { return builder_.graph(); }
  std::vector<Price> prices;

 private:
  GraphBuilder builder_{GraphKind::kStep};
};

double critical(const Simulation& s, Resource r) {
  return s.critical_seconds[static_cast<std::size_t>(r)];
}
double busy(const Simulation& s, Lane l) {
  return s.busy_seconds[static_cast<std::size_t>(l)];
}

TEST(Simulate, AChainTakesTheSumAndSaysWhatHeldIt) {
  TestGraph g;
  g.add(Lane::kCompute, cores_for(2));
  g.add(Lane::kCompute, memory(300));
  g.add(Lane::kCompute, latency(0.5));
  const Simulation s = g.run(plain_machine(), {});
  EXPECT_DOUBLE_EQ(s.seconds, 5.5);
  EXPECT_DOUBLE_EQ(s.tasks[1].begin, 2);
  EXPECT_DOUBLE_EQ(s.tasks[1].end, 5);
  EXPECT_DOUBLE_EQ(critical(s, Resource::kCores), 2);
  EXPECT_DOUBLE_EQ(critical(s, Resource::kMemory), 3);
  EXPECT_DOUBLE_EQ(critical(s, Resource::kLatency), 0.5);
  EXPECT_EQ(s.bound, Resource::kMemory);
  EXPECT_DOUBLE_EQ(s.use[static_cast<std::size_t>(Resource::kMemory)], 3 / 5.5);
  EXPECT_DOUBLE_EQ(s.use[static_cast<std::size_t>(Resource::kCores)], 2.0 / (4 * 5.5));
  EXPECT_EQ(s.graph_hash, g.graph().hash());
}

TEST(Simulate, ATaskIsAsSlowAsItsScarcestResourceAllows) {
  TestGraph g;
  g.add(Lane::kCompute, {.core_seconds = 4, .cores = 2, .memory_bytes = 150, .latency_seconds = 1});  // 2 s of cores, 1.5 s of memory
  g.add(Lane::kCompute, {.core_seconds = 16, .cores = 8});                                            // wants 8 cores, there are 4
  const Simulation s = g.run(plain_machine(), {});
  EXPECT_DOUBLE_EQ(s.tasks[0].end, 3);
  EXPECT_DOUBLE_EQ(s.tasks[1].end, 7);
}

TEST(Simulate, OneFoldedRankRunsEverythingInTurn) {
  TestGraph g;
  g.add(Lane::kGatherComm, cores_for(1));
  g.add(Lane::kCompute, cores_for(2));
  g.add(Lane::kScatterComm, cores_for(3));
  EXPECT_DOUBLE_EQ(g.run(plain_machine(), {.ranks = 1}).seconds, 6);
  EXPECT_DOUBLE_EQ(g.run(plain_machine(), {.ranks = 1, .threading = Threading::kPerLane}).seconds, 3);
}

TEST(Simulate, CommunicationOverlapsWhatDoesNotWaitForIt) {
  TestGraph g;
  const BufferId region = g.buffer();
  g.add(Lane::kGatherComm, cores_for(3), {TestGraph::write(region)});
  g.add(Lane::kCompute, cores_for(2));
  const TaskId user = g.add(Lane::kCompute, cores_for(1), {TestGraph::read(region)});
  spec::MachineSpec machine = plain_machine();
  const SimulateOptions two{.ranks = 2};
  EXPECT_DOUBLE_EQ(g.run(machine, two).seconds, 4);
  machine.wake_seconds = 0.25;
  const Simulation s = g.run(machine, two);
  EXPECT_DOUBLE_EQ(s.tasks[user].begin, 3.25);
  EXPECT_DOUBLE_EQ(s.seconds, 4.25);
  EXPECT_DOUBLE_EQ(critical(s, Resource::kLatency), 0.25);
  EXPECT_DOUBLE_EQ(critical(s, Resource::kCores), 4);
  EXPECT_DOUBLE_EQ(s.critical_lane_seconds[static_cast<std::size_t>(Lane::kGatherComm)], 3);
  EXPECT_DOUBLE_EQ(busy(s, Lane::kCompute), 3);
}

TEST(Simulate, LatenciesOfCollectivesInFlightPassSideBySide) {
  TestGraph g;
  const BufferId made = g.buffer();
  const Price price{.core_seconds = 1, .latency_seconds = 2};
  g.add(Lane::kCompute, cores_for(4), {TestGraph::write(made)});
  const TaskId first = g.add(Lane::kGatherComm, price), second = g.add(Lane::kGatherComm, price);
  const TaskId third = g.add(Lane::kGatherComm, price, {TestGraph::read(made)});
  const Simulation s = g.run(plain_machine(), {.ranks = 2});
  EXPECT_DOUBLE_EQ(s.tasks[first].end, 3);
  EXPECT_DOUBLE_EQ(s.tasks[second].end, 4);  // posted at 0 as well
  EXPECT_DOUBLE_EQ(s.tasks[third].end, 7);   // posted at 4
  // A lane that does one thing at a time has each latency by itself.
  TestGraph in_turn;
  for (int i = 0; i < 2; ++i) in_turn.add(Lane::kCompute, price);
  EXPECT_DOUBLE_EQ(in_turn.run(plain_machine(), {.ranks = 2}).seconds, 6);
}

TEST(Simulate, ComputingThatWaitsForOtherRanksPaysTheirSkewButNoMoreThanItComputed) {
  TestGraph g;
  const BufferId made = g.buffer(), gathered = g.buffer(), again = g.buffer();
  g.add(Lane::kCompute, cores_for(4), {TestGraph::write(made)});
  g.add(Lane::kGatherComm, cores_for(1), {TestGraph::read(made), TestGraph::write(gathered)});
  const TaskId user = g.add(Lane::kCompute, cores_for(0.25), {TestGraph::read(gathered), TestGraph::write(made)});
  g.add(Lane::kGatherComm, cores_for(1), {TestGraph::read(made), TestGraph::write(again)});
  const TaskId last = g.add(Lane::kCompute, cores_for(1), {TestGraph::read(again)});
  spec::MachineSpec machine = plain_machine();
  machine.skew_seconds = 0.5;
  const Simulation s = g.run(machine, {.ranks = 2});
  EXPECT_DOUBLE_EQ(s.tasks[user].begin, 5.5);
  EXPECT_DOUBLE_EQ(s.tasks[last].begin, 5.5 + 0.25 + 1 + 0.25);
  EXPECT_DOUBLE_EQ(critical(s, Resource::kLatency), 0.75);
  // Alone there is nobody to wait for, and another lane of the same rank is no other rank.
  EXPECT_DOUBLE_EQ(g.run(machine, {.ranks = 1}).seconds, 7.25);
  TestGraph moves;
  const BufferId moved = moves.buffer();
  moves.add(Lane::kUpload, cores_for(1), {TestGraph::write(moved)});
  moves.add(Lane::kCompute, cores_for(1), {TestGraph::read(moved)});
  EXPECT_DOUBLE_EQ(moves.run(machine, {.ranks = 2, .threading = Threading::kPerLane}).seconds, 2);
}

TEST(Simulate, WhoFindsTheWaitOverPaysNoWakeUp) {
  TestGraph g;
  const BufferId region = g.buffer();
  g.add(Lane::kGatherComm, cores_for(1), {TestGraph::write(region)});
  g.add(Lane::kCompute, cores_for(2));
  g.add(Lane::kCompute, cores_for(1), {TestGraph::read(region)});
  spec::MachineSpec machine = plain_machine();
  machine.wake_seconds = 0.25;
  EXPECT_DOUBLE_EQ(g.run(machine, {.ranks = 2}).seconds, 3);
}

TEST(Simulate, AHeadThatIsNotReadyHoldsBackItsOwnLaneOnly) {
  TestGraph g;
  const BufferId a = g.buffer();
  g.add(Lane::kCompute, cores_for(4), {TestGraph::write(a)});
  g.add(Lane::kScatterComm, cores_for(1), {TestGraph::read(a)});
  const TaskId behind = g.add(Lane::kScatterComm, cores_for(1));
  const TaskId beside = g.add(Lane::kGatherComm, cores_for(1));
  const Simulation s = g.run(plain_machine(), {.ranks = 2});
  EXPECT_DOUBLE_EQ(s.tasks[beside].end, 1);
  EXPECT_DOUBLE_EQ(s.tasks[behind].begin, 5);
}

TEST(Simulate, MemoryIsSharedByThoseThatWantIt) {
  TestGraph g;
  const TaskId wide = g.add(Lane::kCompute, memory(300));       // 3 s alone
  const TaskId narrow = g.add(Lane::kGatherComm, memory(100));  // 1 s alone
  const TaskId other = g.add(Lane::kScatterComm, cores_for(1));
  const Simulation s = g.run(plain_machine(), {.ranks = 2});
  EXPECT_DOUBLE_EQ(s.tasks[other].end, 1);  // wants no memory: not slowed
  EXPECT_DOUBLE_EQ(s.tasks[narrow].end, 2);
  EXPECT_DOUBLE_EQ(s.tasks[wide].end, 4);
}

TEST(Simulate, DiskReadsAndWritesSlowEachOtherAsMeasured) {
  spec::MachineSpec machine = plain_machine();
  machine.disk = {.read_bytes_per_second = 10, .write_bytes_per_second = 10, .read_beside_write = 8, .write_beside_read = 4};
  TestGraph g;
  const TaskId read = g.add(Lane::kDiskRead, {.disk_read_bytes = 16});
  const TaskId write = g.add(Lane::kDiskWrite, {.disk_write_bytes = 18});
  const SimulateOptions per_lane{.threading = Threading::kPerLane};
  Simulation s = g.run(machine, per_lane);
  EXPECT_DOUBLE_EQ(s.tasks[read].end, 2);   // at 8 a second
  EXPECT_DOUBLE_EQ(s.tasks[write].end, 3);  // 8 bytes beside it, then 10 alone
  EXPECT_DOUBLE_EQ(busy(s, Lane::kDiskWrite), 3);
  EXPECT_DOUBLE_EQ(s.use[static_cast<std::size_t>(Resource::kDiskRead)], 16.0 / 30);
  // Not measured: one channel for both.
  machine.disk.read_beside_write = machine.disk.write_beside_read = 0;
  s = g.run(machine, per_lane);
  EXPECT_DOUBLE_EQ(s.tasks[read].end, 3.2);
  EXPECT_DOUBLE_EQ(s.seconds, 3.4);
  // On one thread they take turns at full speed.
  EXPECT_DOUBLE_EQ(g.run(machine, {}).seconds, 3.4);
}

TEST(Simulate, AWideTaskSlowsAlikeWithTheThreadsBesideIt) {
  TestGraph g;
  const TaskId compute = g.add(Lane::kCompute, cores_for(4, 4));
  const TaskId comm = g.add(Lane::kGatherComm, cores_for(1));
  const Simulation s = g.run(plain_machine(), {.ranks = 2});
  // Five threads on four cores: each gets 0.8 of one until the short one is done.
  EXPECT_DOUBLE_EQ(s.tasks[comm].end, 1.25);
  EXPECT_DOUBLE_EQ(s.tasks[compute].end, 4.25);
}

TEST(Simulate, CollectivesShareTheCommunicationThread) {
  TestGraph g;
  const Price copy{.core_seconds = 2, .comm_thread_seconds = 2};
  g.add(Lane::kGatherComm, copy);
  g.add(Lane::kScatterComm, copy);
  g.add(Lane::kMeshComm, latency(0.5));
  const Simulation s = g.run(plain_machine(), {.ranks = 2});
  EXPECT_DOUBLE_EQ(s.tasks[0].end, 4);
  EXPECT_DOUBLE_EQ(s.tasks[1].end, 4);
  EXPECT_DOUBLE_EQ(s.tasks[2].end, 0.5);
  EXPECT_EQ(s.bound, Resource::kCommThread);
}

TEST(Simulate, TwoRanksOfANodeHaveHalfOfItEach) {
  spec::MachineSpec machine = plain_machine();
  machine.ranks_per_node = 2;
  machine.cores_per_node = 2;
  TestGraph g;
  g.add(Lane::kCompute, {.core_seconds = 1, .memory_bytes = 100});  // 1 s of its core; 2 s of half the memory
  EXPECT_DOUBLE_EQ(g.run(machine, {.ranks = 2}).seconds, 2);
  TestGraph h;  // computing beside communicating on the one core that is a rank's share
  h.add(Lane::kCompute, cores_for(3));
  h.add(Lane::kGatherComm, cores_for(1));
  const Simulation s = h.run(machine, {.ranks = 2});
  EXPECT_DOUBLE_EQ(s.tasks[1].end, 2);
  EXPECT_DOUBLE_EQ(s.seconds, 4);
  EXPECT_DOUBLE_EQ(s.use[static_cast<std::size_t>(Resource::kCores)], 1);
}

TEST(Simulate, RefusesOtherCountsOfPrices) {
  TestGraph g;
  g.add(Lane::kCompute, cores_for(1));
  g.prices.clear();
  EXPECT_THROW(g.run(plain_machine(), {}), LogicError);
}

/// Random graphs: whatever overlaps, no thread is busier than the time, no resource is used beyond what there is, waits hold,
/// and the critical chain explains the whole time.
TEST(Simulate, ConservesTimeAndResources) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto key = rng_key(seed, RngPurpose::kSample, 7);
    std::uint64_t at = 0;
    const auto draw = [&](std::uint64_t bound) { return bounded_at(key, at++, bound); };
    TestGraph g;
    std::vector<BufferId> buffers;
    for (int b = 0; b < 6; ++b) buffers.push_back(g.buffer());
    for (int t = 0; t < 120; ++t) {
      const std::array<Lane, 5> lanes{Lane::kCompute, Lane::kHostCompute, Lane::kGatherComm, Lane::kScatterComm, Lane::kMeshComm};
      const Lane lane = lanes[draw(5)];
      Price price{.cores = 1.0 + static_cast<double>(draw(4))};
      price.core_seconds = static_cast<double>(draw(50)) / 10;
      price.memory_bytes = static_cast<double>(draw(200));
      price.latency_seconds = static_cast<double>(draw(3)) / 10;
      if (is_communication(lane)) {
        price.cores = 1;
        price.comm_thread_seconds = price.core_seconds;
      }
      const BufferId b = buffers[draw(6)];
      g.add(lane, price, {draw(2) == 0 ? TestGraph::read(b) : TestGraph::write(b)});
    }
    spec::MachineSpec machine = plain_machine();
    machine.wake_seconds = 0.01;
    for (const Threading threading : {Threading::kFolded, Threading::kPerLane}) {
      const Simulation s = g.run(machine, {.ranks = 2, .threading = threading});
      const double slack = 1 + 1e-9;
      for (int l = 0; l < kLaneCount; ++l) EXPECT_LE(s.busy_seconds[static_cast<std::size_t>(l)], s.seconds * slack);
      for (const double use : s.use) EXPECT_LE(use, slack);
      for (TaskId id = 0; id < g.graph().tasks.size(); ++id) {
        for (const TaskId on : g.graph().waits_of(g.graph().tasks[id])) EXPECT_LE(s.tasks[on].end, s.tasks[id].begin * slack + 1e-9);
      }
      EXPECT_NEAR(std::accumulate(s.critical_seconds.begin(), s.critical_seconds.end(), 0.0), s.seconds, 1e-6 * s.seconds);
      EXPECT_NEAR(std::accumulate(s.critical_lane_seconds.begin(), s.critical_lane_seconds.end(), 0.0), s.seconds, 1e-6 * s.seconds);
      // Core-seconds are what the prices say.
      double core_seconds = 0;
      for (const Price& price : g.prices) core_seconds += price.core_seconds;
      EXPECT_NEAR(s.use[static_cast<std::size_t>(Resource::kCores)] * 4 * s.seconds, core_seconds, 1e-6 * core_seconds);
    }
    // Nothing overlaps with one rank: the sum of what each takes alone.
    const PriceList list(machine, 1, 1);
    double sum = 0;
    for (const Price& price : g.prices) sum += list.alone_seconds(price);
    EXPECT_NEAR(g.run(machine, {.ranks = 1}).seconds, sum, 1e-9 * sum);
  }
}

TEST(Simulate, AMillionTasksTakeSeconds) {
  GraphBuilder builder(GraphKind::kStep);
  const std::array<BufferId, 3> regions{builder.add_buffer({.bytes = 1}), builder.add_buffer({.bytes = 1}),
                                        builder.add_buffer({.bytes = 1})};
  std::vector<Price> prices;
  constexpr int kTasks = 1'000'000;
  for (int i = 0; i < kTasks; ++i) {
    const Use use{regions[static_cast<std::size_t>(i / 2 % 3)], i % 2 == 0 ? Access::kWrite : Access::kRead, Role::kTarget};
    builder.add_task({.kind = TaskKind::kCompute, .lane = i % 2 == 0 ? Lane::kGatherComm : Lane::kCompute}, std::array<Use, 1>{use});
    prices.push_back({.core_seconds = 1e-3 * (1 + i % 5), .memory_bytes = 0.1});
  }
  const StepGraph graph = std::move(builder).finish();
  const auto start = std::chrono::steady_clock::now();
  const Simulation s = simulate(graph, prices, plain_machine(), {.ranks = 2});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, testing::kIsSanitized ? 100 : 10) << "budget: a few seconds in an optimised build";
  EXPECT_GT(seconds, 0);
  EXPECT_GT(s.seconds, 0);
}

}  // namespace
}  // namespace sluice::schedule
