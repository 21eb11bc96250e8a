// What the planner counts for graphs and executor beside the arenas, held against the heap.

#include <gtest/gtest.h>
#include <malloc.h>

#include "comm/local/local_communicator.hpp"
#include "schedule/build.hpp"
#include "support/home_cases.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using spec::Tier;

std::int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

struct Kept {
  double planned = 0, heap = 0;  // bytes a rank
};

/// Of so many elements that they are some 600 of the smallest chunks.
spec::ModelSpec wide_model() {
  spec::ModelSpec model = tiny_model();
  model.hidden = 256;
  model.ffn = 1024;
  return model;
}

/// A whole run's graphs, bound.
Kept kept_with(const spec::Plan& plan, int ranks) {
  TinyRun run;
  run.model = wide_model();
  run.plan = plan;
  Kept kept;
  const std::int64_t before = heap_bytes();
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    TinyRank rank(run, world);
    world.barrier();
    if (world.rank() == 0) {
      kept.heap = static_cast<double>(heap_bytes() - before) / ranks;
      const schedule::StepGraph& step = rank.engine().graph(schedule::GraphKind::kStep);
      kept.planned = static_cast<double>(schedule::bytes_of_set(step, rank.engine().build_inputs()).bookkeeping);
      EXPECT_NEAR(static_cast<double>(rank.engine().bookkeeping_bytes()) / kept.planned, 1, 0.02);
    }
    world.barrier();
  });
  return kept;
}

TEST(Bookkeeping, IsWhatTheHeapKeeps) {
  for (const int ranks : {1, 2}) {
    for (const int stage : {0, 3}) {
      for (const Tier states : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
        const auto kept = [&](std::int64_t chunk_elements) {
          spec::Plan plan = tiny_plan(ranks, stage, 2, spec::UpdateMode::kAtEnd, false, chunk_elements);
          plan.rcache_elements = 4 << 20;  // the whole model
          if (states != Tier::kDevice) plan = with_homes(wide_model(), tiny_training(), plan, {{.states = states}});
          return kept_with(plan, ranks);
        };
        // What models, layouts and streams of any run take is in both.
        const Kept few = kept(1 << 20), many = kept(4096);
        const double planned = many.planned - few.planned, heap = many.heap - few.heap;
        EXPECT_NEAR(planned / heap, 1, 0.15) << ranks << " ranks, zero_stage " << stage << ", states on " << name_of(states);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
