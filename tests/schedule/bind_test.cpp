// Ranks with different plans find out before the first step, and say where they differ.

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "base/error.hpp"
#include "comm/local/local_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "schedule/check.hpp"
#include "support/expect_error.hpp"
#include "support/graph_inputs.hpp"
#include "support/tiny_training.hpp"

namespace sluice::testing {
namespace {

using schedule::GraphKind;
using spec::UpdateMode;

std::string meetings_of(const TinyRun& run) {
  return schedule::describe_meetings(GraphInputs(run.model, run.training, run.plan).build(GraphKind::kStep));
}

/// The last of three ranks has `odd`, the others `plain`.
void expect_refused(const TinyRun& plain, const TinyRun& odd) {
  const std::string difference = schedule::first_difference(meetings_of(plain), meetings_of(odd));
  ASSERT_NE(difference, "");
  std::atomic<int> refused{0};
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    const TinyRun& mine = world.rank() == 2 ? odd : plain;
    expect_error<CommError>(
        [&] {
          TinyRank rank(mine, world);
          ADD_FAILURE() << "rank " << world.rank() << " was bound";
        },
        {"graph step", "ranks 0 and 2 would meet in different orders: " + difference});
    ++refused;
  });
  EXPECT_EQ(refused, 3);
}

void expect_refused(const spec::Plan& plain, const spec::Plan& odd, double clipping) {
  TinyRun run;
  run.ranks = 3;
  run.training.optimizer.gradient_clipping = clipping;
  TinyRun other = run;
  run.plan = plain;
  other.plan = odd;
  expect_refused(run, other);
}

TEST(Bind, RefusesDifferentPlans) {
  const spec::Plan plain = tiny_plan(3, 2, 2, UpdateMode::kAtEnd, false, 5120);
  expect_refused(plain, tiny_plan(3, 2, 2, UpdateMode::kAtEnd, false, 6144), 1);
  expect_refused(plain, tiny_plan(3, 3, 2, UpdateMode::kAtEnd, false, 5120), 1);
  expect_refused(plain, tiny_plan(3, 2, 1, UpdateMode::kAtEnd, false, 5120), 1);
  expect_refused(plain, tiny_plan(3, 2, 2, UpdateMode::kNextForward, false, 5120), 1);
  expect_refused(plain, tiny_plan(3, 2, 2, UpdateMode::kInBackward, false, 5120), 0);
}

/// Two bytes an element on every rank, and the same tasks: only what the bytes mean differs.
TEST(Bind, RefusesDifferentElements) {
  TinyRun bf16;
  bf16.ranks = 3;
  bf16.plan = tiny_plan(3, 3, 2, UpdateMode::kAtEnd, false, 5120);
  TinyRun fp16 = bf16;
  bf16.training.precision = spec::Precision::kBf16;
  fp16.training.precision = spec::Precision::kFp16;
  std::string text = meetings_of(bf16);
  for (std::size_t at; (at = text.find("bf16")) != std::string::npos;) text.erase(at, 1);
  EXPECT_EQ(text.substr(text.find('\n')), meetings_of(fp16).substr(text.find('\n')));
  expect_refused(bf16, fp16);
}

/// What a rank keeps to itself may differ: recompute, threads of lanes.
TEST(Bind, TakesDifferencesThatNobodyMeets) {
  TinyRun run;
  run.ranks = 2;
  std::array<double, 2> losses{};
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    TinyRun mine = run;
    mine.plan = tiny_plan(2, 2, 2, UpdateMode::kAtEnd, world.rank() == 1, 5120);
    mine.threading = world.rank() == 1 ? schedule::Threading::kPerLane : schedule::Threading::kFolded;
    TinyRank rank(mine, world);
    losses[static_cast<std::size_t>(world.rank())] = rank.step(1).report.loss;
  });
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Executor, RunsWhatIsBound) {
  TinyRun run;
  const GraphInputs inputs(run.model, run.training, tiny_plan(1, 0, 1, UpdateMode::kAtEnd, false, 5120));
  const schedule::StepGraph save = inputs.build(GraphKind::kSave);
  const auto device = device::make_cpu_device();
  const auto world = comm::make_single_rank();
  const memory::Arena arena(spec::Tier::kDevice, memory::make_plain_backing(save.arena_bytes[0], "test"));
  const memory::Arena host(spec::Tier::kHost, memory::make_plain_backing(save.arena_bytes[1], "test"));
  schedule::Environment env;
  env.device = device.get();
  env.arenas = {&arena, &host, nullptr};
  env.model = &inputs.model();
  env.layout = &inputs.layout();
  env.grouping = &inputs.grouping();
  env.plan = inputs.plan();
  env.sequence_length = 16;
  env.group = world.get();
  schedule::Executor executor(env);
  schedule::RunInputs in;
  expect_error<LogicError>([&] { executor.run(GraphKind::kSave, in); }, {"graph save isn't bound"});
  expect_error<LogicError>([&] { executor.logits(); }, {"no generate graph"});
  schedule::StepGraph broken = save;  // its first task has a wait for itself
  broken.waits.push_back(0);
  broken.tasks[0].first_wait = static_cast<std::uint32_t>(broken.waits.size()) - 1;
  broken.tasks[0].wait_count = 1;
  expect_error<LogicError>([&] { executor.bind(broken); }, {"waits for the later task 0"});
  expect_error<LogicError>([&] { executor.run(GraphKind::kSave, in); }, {"graph save isn't bound"});
  executor.bind(save);
  std::int64_t elements = 0;
  in.save = [&](chunks::Plane plane, int chunk, std::int64_t begin, std::int64_t count, const void* data) {
    EXPECT_NE(plane, chunks::Plane::kGradient);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(count, inputs.layout().chunks()[static_cast<std::size_t>(chunk)].elements);
    EXPECT_EQ(static_cast<const float*>(data)[count - 1], 0.0F);
    elements += count;
  };
  executor.run(GraphKind::kSave, in);
  EXPECT_EQ(elements, 3 * inputs.layout().elements());
  env.device = nullptr;
  EXPECT_THROW(schedule::Executor{env}, LogicError);
}

}  // namespace
}  // namespace sluice::testing
