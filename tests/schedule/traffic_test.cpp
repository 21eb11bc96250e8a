// Bytes that a step moves, counted where they are moved, against formulas over the chunk layout.

#include <gtest/gtest.h>

#include "chunks/residency.hpp"
#include "comm/local/local_communicator.hpp"
#include "ops/grad_norm.hpp"
#include "support/graph_inputs.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using schedule::Lane;
using spec::UpdateMode;

comm::Traffic operator-(const comm::Traffic& a, const comm::Traffic& b) {
  return {a.gathered_bytes - b.gathered_bytes, a.reduced_bytes - b.reduced_bytes, a.exchanged_bytes - b.exchanged_bytes,
          a.operations - b.operations};
}

/// Of this rank: bytes of all its shards, and of everybody else's.
struct Shards {
  std::int64_t own = 0, rest = 0;
  std::int64_t chunks = 0;
  std::int64_t element;  // bytes
  Shards(const chunks::ChunkLayout& layout, int rank, int ranks, std::int64_t element_bytes) : element(element_bytes) {
    for (const chunks::Chunk& chunk : layout.chunks()) add(chunk, rank, ranks);
  }
  explicit Shards(std::int64_t element_bytes) : element(element_bytes) {}
  void add(const chunks::Chunk& chunk, int rank, int ranks) {
    // Blocks floor(r n / R) to floor((r + 1) n / R) - 1 of n blocks of 256 elements.
    const std::int64_t n = chunk.elements / 256, mine = (rank + 1) * n / ranks - rank * n / ranks;
    own += mine * 256 * element;
    rest += (n - mine) * 256 * element;
    ++chunks;
  }
};

/// What the gathers of zero_stage 3 bring: the stays of a cache over the segments in the order of the step.
Shards gathered_in_stage_3(const GraphInputs& inputs, bool trains, int rank) {
  const auto& segments = inputs.model().segments;
  std::vector<std::vector<int>> uses;
  const auto visit = [&](std::size_t s) {
    std::vector<int> runs;
    for (const int param : segments[s]->params()) {
      const int run = inputs.layout().place(param).run;
      if (std::find(runs.begin(), runs.end(), run) == runs.end()) runs.push_back(run);
    }
    uses.push_back(runs);
  };
  for (std::int64_t m = 0; m < (trains ? inputs.plan().accumulation : 1); ++m) {
    for (std::size_t s = 0; s < segments.size(); ++s) visit(s);  // the head: forward and backward at once
    if (!trains) continue;
    for (std::size_t s = segments.size() - 1; s-- > 0;) {
      if (inputs.plan().recomputes(s) && segments[s]->has_phase(model::Phase::kRecompute)) visit(s);
      visit(s);
    }
  }
  std::vector<std::int64_t> elements;
  for (const chunks::Run& run : inputs.layout().runs()) elements.push_back(run.elements);
  Shards shards(inputs.layout().element_bytes(chunks::Plane::kWorking));
  for (const chunks::Residency& stay :
       chunks::plan_residency(uses, elements, inputs.plan().rcache_elements, inputs.plan().prefetch_segments)) {
    const chunks::Run& run = inputs.layout().runs()[static_cast<std::size_t>(stay.run)];
    for (int c = run.first_chunk; c < run.first_chunk + run.chunk_count; ++c)
      shards.add(inputs.layout().chunks()[static_cast<std::size_t>(c)], rank, inputs.inputs().ranks);
  }
  return shards;
}

void expect_traffic(int ranks, int stage, int accumulation, UpdateMode mode, bool roomy,
                    spec::Precision precision = spec::Precision::kFp32) {
  TinyRun run;
  run.ranks = ranks;
  run.training.precision = precision;
  run.plan = tiny_plan(ranks, stage, accumulation, mode, stage == 3, accumulation == 1 ? 20480 : 5120);
  if (roomy) run.plan.rcache_elements = std::int64_t{1} << 30;
  const GraphInputs inputs(run.model, run.training, run.plan);
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    TinyRank rank(run, world);
    const Shards all(inputs.layout(), world.rank(), ranks, 4);
    // Working parameters travel as they are stored.
    const Shards all_working(inputs.layout(), world.rank(), ranks, precision == spec::Precision::kFp32 ? 4 : 2);
    std::array<comm::Traffic, schedule::kLaneCount> seen;
    const auto count = [&](Lane lane) {
      comm::Traffic& last = seen[static_cast<std::size_t>(lane)];
      const comm::Traffic now = rank.engine().traffic(lane), moved = now - last;
      last = now;
      return moved;
    };
    for (int s = 1; s <= 2; ++s) {
      rank.step(s);
      // Gradients: each owner reads its shard from every other rank, once a step or once a micro-batch.
      const std::int64_t reductions = stage >= 2 ? accumulation : 1;
      const comm::Traffic scatter = count(Lane::kScatterComm);
      EXPECT_EQ(scatter.reduced_bytes, reductions * (ranks - 1) * all.own);
      EXPECT_EQ(scatter.operations, reductions * all.chunks);
      EXPECT_EQ(scatter.gathered_bytes + scatter.exchanged_bytes, 0);
      // Stage 0: the reduced gradients of the others come back. 1 and 2: their updated parameters. 3: parameters by stays.
      const Shards gathers = stage == 3 ? gathered_in_stage_3(inputs, true, world.rank()) : stage == 0 ? all : all_working;
      const comm::Traffic gather = count(Lane::kGatherComm);
      EXPECT_EQ(gather.gathered_bytes, gathers.rest);
      EXPECT_EQ(gather.operations, gathers.chunks);
      EXPECT_EQ(gather.reduced_bytes + gather.exchanged_bytes, 0);
      if (roomy) {
        EXPECT_EQ(gathers.rest, all_working.rest) << "with room for everything each chunk comes once";
      }
      // Agrees at the start, after every micro-batch but the last, before the update: tokens and a flag each. Then the report:
      // norm, loss, tokens, flag.
      const std::int64_t agrees = 1 + (accumulation - 1) + 1;
      const comm::Traffic mesh = count(Lane::kMeshComm);
      EXPECT_EQ(mesh.operations, agrees + 1);
      EXPECT_EQ(mesh.exchanged_bytes, (ranks - 1) * (agrees * 16 + static_cast<std::int64_t>(sizeof(ops::NormAccumulator)) + 24));
    }
    rank.engine().flush();
    const bool gathers_updates = mode == UpdateMode::kNextForward && (stage == 1 || stage == 2);
    EXPECT_EQ(count(Lane::kGatherComm).gathered_bytes, gathers_updates ? all_working.rest : 0) << "flush";
    rank.evaluate();
    EXPECT_EQ(count(Lane::kGatherComm).gathered_bytes, stage == 3 ? gathered_in_stage_3(inputs, false, world.rank()).rest : 0)
        << "evaluate";
    EXPECT_EQ(count(Lane::kMeshComm).operations, 1);
    rank.engine().save([](std::size_t, const void*) {});
    EXPECT_EQ(count(Lane::kGatherComm).operations + count(Lane::kScatterComm).operations + count(Lane::kMeshComm).operations, 0) << "save";
  });
}

TEST(Traffic, IsWhatTheStageSays) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      for (const int accumulation : {1, 3}) {
        if (12 % (ranks * accumulation) != 0) continue;
        SCOPED_TRACE("zero_stage " + std::to_string(stage) + ", ranks " + std::to_string(ranks) + ", accumulation " +
                     std::to_string(accumulation));
        expect_traffic(ranks, stage, accumulation, ranks == 2 ? UpdateMode::kNextForward : UpdateMode::kAtEnd, false);
      }
    }
  }
  expect_traffic(2, 3, 3, UpdateMode::kAtEnd, true);
}

TEST(Traffic, OfWorkingParametersHalvesIn16Bits) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_traffic(3, stage, 2, UpdateMode::kNextForward, false, spec::Precision::kBf16);
    expect_traffic(2, stage, 1, UpdateMode::kAtEnd, false, spec::Precision::kFp16);
  }
  expect_traffic(2, 3, 3, UpdateMode::kAtEnd, true, spec::Precision::kBf16);
}

TEST(Traffic, OneRankMovesNothing) {
  for (const int stage : {0, 3}) expect_traffic(1, stage, 3, UpdateMode::kAtEnd, false);
}

}  // namespace
}  // namespace sluice::testing
