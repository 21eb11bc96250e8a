#include "schedule/price.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "model/build.hpp"
#include "parallel/unsharded.hpp"
#include "schedule/simulate.hpp"
#include "support/plain_machine.hpp"

namespace sluice::schedule {
namespace {

using testing::plain_machine;

class PriceListTest : public ::testing::Test {
 protected:
  PriceListTest()
      : factory_(parallel::make_unsharded_modules()),
        model_(model::build_model({.name = "small", .vocab = 64, .context = 32, .hidden = 16, .layers = 1, .heads = 2, .ffn = 64},
                                  *factory_)) {}
  const model::Segment& mlp() const { return *model_.segments[2]; }
  double seconds(const spec::MachineSpec& m, std::int64_t rows, std::int64_t sequence = 8) const {
    const PriceList list(m, 1, 4);
    return list.alone_seconds(list.compute(mlp(), 16, model::Phase::kForward, {rows, sequence}));
  }
  std::unique_ptr<model::ModuleFactory> factory_;
  model::Model model_;
};

TEST_F(PriceListTest, UnmeasuredSegmentsFollowTheRoofline) {
  const spec::MachineSpec m = plain_machine();
  const model::Work work = mlp().work(model::Phase::kForward, {2, 8});
  EXPECT_DOUBLE_EQ(seconds(m, 2), std::max(work.flops / 40, work.memory_bytes / 100));
  spec::MachineSpec fast = m;
  fast.memory_bytes_per_second = 1e9;
  EXPECT_DOUBLE_EQ(seconds(fast, 2), work.flops / 40);
}

TEST_F(PriceListTest, MeasuredSegmentsAreTakenInterpolatedAndScaled) {
  spec::MachineSpec m = plain_machine();
  m.memory_bytes_per_second = 1e12;
  m.segments = {{"mlp", "forward", 16, 2, 8, 3.0},
                {"mlp", "forward", 16, 6, 8, 7.0},
                {"mlp", "backward", 16, 2, 8, 100.0},
                {"mlp", "forward", 32, 2, 8, 50.0}};
  EXPECT_DOUBLE_EQ(seconds(m, 2), 3.0);
  EXPECT_DOUBLE_EQ(seconds(m, 6), 7.0);
  EXPECT_DOUBLE_EQ(seconds(m, 3), 4.0);
  EXPECT_DOUBLE_EQ(seconds(m, 12), 14.0);    // compute-bound: twice the work of 6 rows
  EXPECT_DOUBLE_EQ(seconds(m, 2, 16), 6.0);  // another sequence length, from the nearest
  m.segments.clear();
  m.segments = {{"mlp", "forward", 32, 2, 8, 50.0}};  // another hidden size says nothing
  EXPECT_DOUBLE_EQ(seconds(m, 2), mlp().work(model::Phase::kForward, {2, 8}).flops / 40);
}

TEST_F(PriceListTest, CollectivesAndPassesCostWhatTheMachineSays) {
  spec::MachineSpec m = plain_machine();
  m.ranks_per_node = 2;
  m.cores_per_node = 8;
  const PriceList list(m, 2, 4);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.gather(512, 4, false)), 0.5 + 1.0);  // 1 KiB from the other rank
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.scatter(512, true)), 0.25 + 2.0);
  EXPECT_DOUBLE_EQ(list.gather(512, 4, false).comm_thread_seconds, 1.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(4, {}, false)), 2.0);  // 112 bytes at 56
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.norm(25, false)), 2.0);       // 100 bytes at half of the node's 100
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.agree()), 0.125);
  // What an operation takes of the cores comes on top, on the thread that communicates.
  spec::MachineSpec busy = m;
  busy.gather.core_seconds = 0.125;
  const PriceList beside(busy, 2, 4);
  EXPECT_DOUBLE_EQ(beside.gather(512, 4, false).comm_thread_seconds, 1.125);
  EXPECT_DOUBLE_EQ(beside.gather(512, 4, false).core_seconds, 1.125);
  EXPECT_DOUBLE_EQ(beside.scatter(512, true).core_seconds, 2.0);
  // 2 bytes an element to be gathered, and two more to be written by an update.
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.gather(1024, 2, false)), 0.5 + 1.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(28, {.storage = DType::kBF16}, false)), 28 * 30 / 56.0);
  // A moment is read and written: 8 bytes an element.
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(28, {.moments = 1}, false)), 28 * 20 / 56.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(28, {.storage = DType::kF16, .moments = 0}, false)), 28 * 14 / 56.0);
  const PriceList single(m, 1, 4);
  EXPECT_DOUBLE_EQ(single.alone_seconds(single.gather(512, 4, false)), 0);
  EXPECT_DOUBLE_EQ(single.alone_seconds(single.gather(256, 4, true)), 2 * 1024 / 100.0);
}

TEST_F(PriceListTest, OtherNodesAreReachedOverTheNetwork) {
  spec::MachineSpec m = plain_machine();
  m.ranks_per_node = 2;
  m.cores_per_node = 8;
  m.memory_bytes_per_second = 1e9;
  m.link_bytes_per_second = 512;  // 256 a rank
  m.link_latency_seconds = 1;
  const PriceList list(m, 4, 4);  // two nodes
  // 1024 elements: 3072 bytes from the three others, 2048 of them over the network at 256 a second.
  const Price price = list.gather(1024, 4, false);
  EXPECT_DOUBLE_EQ(price.link_bytes, 2048);
  EXPECT_DOUBLE_EQ(list.alone_seconds(price), 0.5 + 1 + 8);
  const PriceList one_node(m, 2, 4);
  EXPECT_DOUBLE_EQ(one_node.gather(1024, 4, false).link_bytes, 0);
}

TEST_F(PriceListTest, MovesOnACpuAreCopiesByOneThread) {
  spec::MachineSpec m = plain_machine();
  const PriceList list(m, 1, 4);
  // Read and written, at the memory's 100 bytes a second; read twice where it is added.
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.move(Lane::kUpload, 50, false)), 1.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.move(Lane::kDownload, 50, true)), 1.5);
  EXPECT_DOUBLE_EQ(list.move(Lane::kUpload, 50, false).cores, 1);
  m.download_bytes_per_second = 10;
  const PriceList measured(m, 1, 4);
  const Price price = measured.move(Lane::kDownload, 50, false);
  EXPECT_DOUBLE_EQ(measured.alone_seconds(price), 5.0);
  EXPECT_DOUBLE_EQ(price.memory_bytes, 100);
  EXPECT_DOUBLE_EQ(measured.alone_seconds(measured.move(Lane::kDownload, 50, true)), 7.5);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(4, {}, true)), 2.0);  // the cores are the device
}

TEST_F(PriceListTest, AnAcceleratorHasALinkEachWayAndItsHostAMemory) {
  spec::MachineSpec m = plain_machine();
  m.device_flops = 1e3;
  m.device_memory_bytes_per_second = 1000;
  m.upload_bytes_per_second = 20;
  m.download_bytes_per_second = 10;
  const PriceList list(m, 1, 4);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.move(Lane::kUpload, 60, false)), 3.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.move(Lane::kDownload, 60, false)), 6.0);
  EXPECT_DOUBLE_EQ(list.move(Lane::kUpload, 60, false).memory_bytes, 60);
  EXPECT_DOUBLE_EQ(list.move(Lane::kDownload, 60, true).memory_bytes, 180);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(4, {}, false)), 2.0);        // as measured of the device
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.update(4, {}, true)), 112 / 100.);  // at the speed of the host's memory
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.norm(25, true)), 1.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.norm(25, false)), 0.1);
}

TEST(BytesADay, AreThoseOfAllItsSteps) {
  EXPECT_EQ(bytes_a_day(1000, 2), 43'200'000);
  EXPECT_EQ(bytes_a_day(0, 1), 0);
  EXPECT_THROW(bytes_a_day(1000, 0), LogicError);
}

TEST_F(PriceListTest, TheNodesRanksShareItsDisk) {
  spec::MachineSpec m = plain_machine();
  m.ranks_per_node = 2;
  m.memory_bytes_per_second = 1e9;
  m.disk = {.read_bytes_per_second = 200, .write_bytes_per_second = 100, .read_beside_write = 120, .write_beside_read = 80};
  const PriceList list(m, 2, 1);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.move(Lane::kDiskRead, 300, false)), 3.0);
  EXPECT_DOUBLE_EQ(list.alone_seconds(list.move(Lane::kDiskWrite, 300, false)), 6.0);
  EXPECT_DOUBLE_EQ(list.move(Lane::kDiskWrite, 300, false).core_seconds, 300 * 0.01e-9);
  // 60 and 40 bytes a second at once: 4 s for the writes, then 60 bytes are left to be read at 100.
  EXPECT_DOUBLE_EQ(disk_seconds(list, 300, 160), 4.6);
  EXPECT_DOUBLE_EQ(disk_seconds(list, 300, 0), 3.0);
  EXPECT_DOUBLE_EQ(disk_seconds(list, 0, 0), 0);
  // What gains nothing at once is better done in turn.
  m.disk.read_beside_write = m.disk.write_beside_read = 20;
  EXPECT_DOUBLE_EQ(disk_seconds(PriceList(m, 2, 1), 300, 160), 3.0 + 3.2);
  // Not measured: half of each, which is as good as in turn.
  m.disk.read_beside_write = m.disk.write_beside_read = 0;
  EXPECT_DOUBLE_EQ(disk_seconds(PriceList(m, 2, 1), 100, 50), 2.0);
  EXPECT_THROW(PriceList(plain_machine(), 1, 1).move(Lane::kDiskRead, 1, false), LogicError);
}

TEST_F(PriceListTest, EveryTaskOfABuiltGraphHasItsPrice) {
  const optim::Grouping grouping = optim::group_parameters(model_, {.optimizer = {.weight_decay = 0.1}});
  const chunks::ChunkLayout layout(model_.params, grouping, 2048);
  spec::MachineSpec m = plain_machine();
  m.ranks_per_node = 2;
  for (const int stage : {0, 1, 2, 3}) {
    BuildInputs inputs{.model = &model_, .layout = &layout, .sequence_length = 8, .ranks = 2, .needs_norm = true};
    inputs.plan = {.zero_stage = stage,
                   .chunk_elements = 2048,
                   .rcache_elements = layout.elements(),
                   .micro_batch = 2,
                   .accumulation = 2,
                   .activations = std::vector<spec::Activation>(4, spec::Activation::kKeep)};
    const StepGraph graph = build(GraphKind::kStep, inputs);
    const std::vector<Price> prices = price_tasks(graph, inputs, m);
    ASSERT_EQ(prices.size(), graph.tasks.size());
    const PriceList list(m, 2, 1);
    double updated = 0;
    for (TaskId id = 0; id < graph.tasks.size(); ++id) {
      if (graph.tasks[id].kind == TaskKind::kUpdate) updated += list.alone_seconds(prices[id]);
      if (graph.tasks[id].kind == TaskKind::kCompute) {
        EXPECT_GT(prices[id].core_seconds, 0) << graph.task_name(id);
      }
    }
    double elements = 0;
    for (const chunks::Chunk& chunk : layout.chunks())
      elements += static_cast<double>(stage == 0 ? chunk.elements : chunks::largest_shard(chunk.elements, 2));
    // 28 bytes an element at 56 a second, measured on 4 threads; a rank has 2 cores and computes on one.
    EXPECT_NEAR(updated, elements * 28 / 56 * 2, 1e-6 * updated) << "zero_stage " << stage;
    const Simulation s = simulate(graph, prices, m, {.ranks = 2});
    EXPECT_GT(s.seconds, 0);
    EXPECT_EQ(s.bytes_peak, graph.arena_bytes);
    for (const double use : s.use) EXPECT_LE(use, 1 + 1e-9);
  }
}

}  // namespace
}  // namespace sluice::schedule
