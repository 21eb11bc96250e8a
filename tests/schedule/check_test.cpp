#include "schedule/check.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/place.hpp"
#include "schedule/random_graph.hpp"
#include "schedule/uses.hpp"
#include "support/expect_error.hpp"

namespace sluice::schedule {
namespace {

using testing::expect_error;

/// Three segments hand an activation on: 0 writes a (compute), 1 reads a and writes b (host), 2 reads b (compute), 3 writes c.
StepGraph chain() {
  GraphBuilder builder(GraphKind::kStep);
  const auto buffer = [&](std::int32_t index, std::int64_t bytes) {
    return builder.add_buffer({.tag = BufferTag::kActivation, .index = index, .bytes = bytes});
  };
  const BufferId a = buffer(0, 256), b = buffer(1, 128), c = buffer(2, 64);
  const auto add = [&](Lane lane, std::int32_t segment, const std::vector<Use>& uses) {
    builder.add_task({.kind = TaskKind::kCompute, .lane = lane, .segment = segment}, uses);
  };
  add(Lane::kCompute, 0, {write(a)});
  add(Lane::kHostCompute, 1, {read(a), write(b)});
  add(Lane::kCompute, 2, {read(b)});
  add(Lane::kUpload, 3, {write(c)});
  add(Lane::kCompute, 4, {read(c)});
  StepGraph graph = std::move(builder).finish();
  place(graph);
  return graph;
}

TEST(CheckOrder, TakesWhatTheBuilderMakes) {
  EXPECT_NO_THROW(check_order(chain()));
  EXPECT_NO_THROW(check_races(chain()));
  EXPECT_NO_THROW(check_cancel(chain()));
}

TEST(CheckOrder, AForwardWait) {
  StepGraph graph = chain();
  graph.waits[graph.tasks[1].first_wait] = 2;
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 1 (1) waits for the later task 2"});
  graph.waits[graph.tasks[1].first_wait] = 1;
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 1 (1) waits for the later task 1"});
}

TEST(CheckOrder, AWrongSequence) {
  GraphBuilder builder(GraphKind::kStep);
  for (int c = 0; c < 3; ++c) builder.add_task({.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .chunk = c}, {});
  StepGraph graph = std::move(builder).finish();
  place(graph);
  std::swap(graph.tasks[1].sequence, graph.tasks[2].sequence);
  expect_error<LogicError>([&] { check_order(graph); }, {"gather working of chunk 1 is number 2 of its lane, expected 1"});
}

TEST(CheckOrder, AReadBeforeAnythingWasWritten) {
  GraphBuilder builder(GraphKind::kStep);
  const BufferId a = builder.add_buffer({.tag = BufferTag::kSaved, .index = 7, .bytes = 64});
  builder.add_task({.kind = TaskKind::kCompute, .segment = 5}, std::array<Use, 1>{both(a)});
  StepGraph graph = std::move(builder).finish();
  place(graph);
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 5 (0) reads saved 7 before anything wrote it"});
  graph.buffers[a].persistent = true;  // an earlier run wrote it
  graph.persistent_bytes[0] = 64;
  EXPECT_NO_THROW(check_order(graph));
}

TEST(CheckOrder, ABufferOutsideItsArena) {
  StepGraph graph = chain();
  graph.buffers[1].offset = graph.arena_bytes[0] - 64;
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 1 uses activation 1", "of an arena of"});
  graph.buffers[1].offset = -1;
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 1 uses activation 1 at -1"});
}

TEST(CheckOrder, AUseOutsideTheLifetimeThatPlacementSaw) {
  StepGraph graph = chain();
  graph.buffers[0].last = 0;
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 1 uses activation 0 outside its lifetime"});
}

/// Nothing races here, since lanes order all: what stood in the buffer is simply gone.
TEST(CheckOrder, OverlappingBuffersThatAreAliveTogether) {
  GraphBuilder builder(GraphKind::kStep);
  const BufferId a = builder.add_buffer({.tag = BufferTag::kActivation, .index = 0, .bytes = 128}),
                 b = builder.add_buffer({.tag = BufferTag::kWorkspace, .index = 1, .bytes = 128});
  for (const auto& [segment, use] : {std::pair{0, write(a)}, {1, write(b)}, {2, read(a)}})
    builder.add_task({.kind = TaskKind::kCompute, .segment = segment}, std::array<Use, 1>{use});
  StepGraph graph = std::move(builder).finish();
  place(graph);
  EXPECT_NO_THROW(check_order(graph));
  graph.buffers[b].offset = graph.buffers[a].offset + 64;
  graph.arena_bytes[0] = 1024;
  EXPECT_NO_THROW(check_races(graph));
  expect_error<LogicError>([&] { check_order(graph); },
                           {"forward segment 2 (2) reads activation 0", "forward segment 1 (1) wrote workspace 1 over it at byte"});
}

TEST(CheckOrder, OverlappingBuffersOfOneTask) {
  StepGraph graph = chain();
  graph.buffers[1].offset = graph.buffers[0].offset + 192;
  graph.arena_bytes[0] = 1024;
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 1 (1) uses activation 0 and activation 1, which overlap"});
}

TEST(CheckOrder, PersistentBuffersStandApart) {
  GraphBuilder builder(GraphKind::kSave);
  const BufferId p = builder.add_buffer({.tag = BufferTag::kWorking, .persistent = true, .index = 0, .bytes = 128});
  const BufferId q = builder.add_buffer({.tag = BufferTag::kMoments, .persistent = true, .index = 1, .bytes = 128});
  const BufferId t = builder.add_buffer({.tag = BufferTag::kWorkspace, .bytes = 64});
  builder.add_task({.kind = TaskKind::kCompute, .segment = 0}, std::array<Use, 2>{read(p), write(t)});
  StepGraph graph = std::move(builder).finish();
  place(graph);
  EXPECT_NO_THROW(check_order(graph));
  graph.buffers[q].offset = 64;
  expect_error<LogicError>([&] { check_order(graph); }, {"persistent moments 1 and working 0 overlap"});
  graph.buffers[q].offset = 192;
  expect_error<LogicError>([&] { check_order(graph); }, {"persistent moments 1 stands at 192", "256"});
  graph.buffers[q].offset = 128;
  graph.buffers[t].offset = 192;  // into q, which this graph doesn't even use
  expect_error<LogicError>([&] { check_order(graph); }, {"forward segment 0 uses workspace at 192, among the persistent buffers"});
}

/// Host buffer to disk and back, and on to the device.
struct Moves {
  StepGraph graph;
  BufferId host, disk, back, device;
  Moves() {
    GraphBuilder builder(GraphKind::kStep);
    host = builder.add_buffer({.tag = BufferTag::kSaved, .tier = spec::Tier::kHost, .bytes = 4096});
    disk = builder.add_buffer({.tag = BufferTag::kMoments, .tier = spec::Tier::kDisk, .persistent = true, .halves = true, .bytes = 8192});
    back = builder.add_buffer({.tag = BufferTag::kMoments, .tier = spec::Tier::kHost, .bytes = 4096});
    device = builder.add_buffer({.tag = BufferTag::kSaved, .bytes = 64});
    builder.add_task({.kind = TaskKind::kLoad, .lane = Lane::kHostCompute}, std::array<Use, 1>{{{host, Access::kWrite, Role::kOutput}}});
    const auto move = [&](Lane lane, BufferId from, BufferId to) {
      builder.add_task({.kind = TaskKind::kMove, .lane = lane, .plane = chunks::Plane::kMoment1, .chunk = 3},
                       std::array<Use, 2>{{{from, Access::kRead, Role::kSource}, {to, Access::kWrite, Role::kTarget}}});
    };
    move(Lane::kDiskWrite, host, disk);
    move(Lane::kDiskRead, disk, back);
    move(Lane::kUpload, back, device);
    graph = std::move(builder).finish();
    graph.alignment = {kBufferAlignment, kDiskAlignment, kDiskAlignment};
    place(graph);
  }
};

TEST(CheckOrder, MovesGoBetweenNeighboursOnTheirLane) {
  EXPECT_NO_THROW(check_order(Moves().graph));
  const auto objects = [](auto change, const std::vector<std::string>& words) {
    Moves moves;
    change(moves);
    expect_error<LogicError>([&] { check_order(moves.graph); }, words);
  };
  objects([](Moves& m) { m.graph.tasks[2].lane = Lane::kDiskWrite; }, {"disk_write exp_avg of chunk 3 (2) goes from disk to host"});
  objects([](Moves& m) { m.graph.tasks[3].lane = Lane::kDownload; }, {"download exp_avg of chunk 3 (3) goes from host to device"});
  objects([](Moves& m) { m.graph.uses[m.graph.tasks[3].first_use].role = Role::kInput; }, {"(3) has no source or no target"});
  objects([](Moves& m) { m.graph.uses[m.graph.tasks[3].first_use].role = Role::kTarget; }, {"(3) has a second target or another access"});
  objects([](Moves& m) { m.graph.uses[m.graph.tasks[3].first_use].access = Access::kReadWrite; },
          {"(3) has a second source or another access"});
  objects([](Moves& m) { m.graph.tasks[2].segment = 1; }, {"(2) moves chunk 3 and segment 1"});
  objects([](Moves& m) { m.graph.tasks[2].chunk = -1; }, {"(2) moves chunk -1 and segment -1"});
  objects([](Moves& m) { m.graph.tasks[3].accumulate = true; }, {"(3) adds to something else than a gradient in host memory"});
}

TEST(CheckOrder, DisksGetWholeBlocks) {
  const auto objects = [](auto change, const std::vector<std::string>& words) {
    Moves moves;
    change(moves);
    expect_error<LogicError>([&] { check_order(moves.graph); }, words);
  };
  objects([](Moves& m) { m.graph.buffers[m.host].bytes = 4000; },
          {"moves between 4096 bytes of the disk at 0 and 4000 bytes of memory at"});
  objects([](Moves& m) { m.graph.buffers[m.disk].bytes = 4096; }, {"moves between 2048 bytes of the disk"});
  objects([](Moves& m) { m.graph.buffers[m.disk].halves = false; },
          {"disk_write exp_avg of chunk 3 (1) writes over the only copy of moments"});
  objects(
      [](Moves& m) {
        m.graph.buffers[m.back].offset += 64;
        m.graph.arena_bytes[1] += 64;
      },
      {"disk_read exp_avg of chunk 3 (2) moves between 4096 bytes of the disk at 0 and 4096 bytes of memory at"});
}

TEST(CheckRaces, AMissingWait) {
  StepGraph graph = chain();
  graph.tasks[1].wait_count = 0;
  expect_error<LogicError>([&] { check_races(graph); }, {"race: forward segment 0 (0) and forward segment 1 (1) both touch byte"});
}

/// A writer that nothing orders against one of two earlier readers.
TEST(CheckRaces, AMissingWaitForAReader) {
  GraphBuilder builder(GraphKind::kStep);
  const BufferId a = builder.add_buffer({.bytes = 64});
  const auto add = [&](Lane lane, std::int32_t segment, Use use) {
    builder.add_task({.kind = TaskKind::kCompute, .lane = lane, .segment = segment}, std::array<Use, 1>{use});
  };
  add(Lane::kUpload, 0, write(a));
  add(Lane::kCompute, 1, read(a));
  add(Lane::kHostCompute, 2, read(a));
  add(Lane::kUpload, 3, write(a));
  StepGraph graph = std::move(builder).finish();
  place(graph);
  EXPECT_NO_THROW(check_races(graph));
  ASSERT_EQ(graph.tasks[3].wait_count, 2U);
  graph.tasks[3].wait_count = 1;  // the wait for the reader on host_compute stays
  expect_error<LogicError>([&] { check_races(graph); }, {"race: forward segment 1 (1) and forward segment 3 (3) both touch byte"});
}

/// Bytes that two dead-and-born buffers share in part.
TEST(CheckRaces, IsAccurateToTheByte) {
  StepGraph graph = chain();
  graph.arena_bytes[0] = 4096;
  graph.tasks[3].wait_count = 0;  // whatever bytes placement had it reuse
  graph.buffers[0].offset = 0;    // 256 bytes, read last by host_compute
  graph.buffers[1].offset = 1024;
  graph.buffers[2].offset = 256;  // 64 bytes, written by upload: nothing orders it after the reader of buffer 0
  EXPECT_NO_THROW(check_races(graph));
  graph.buffers[2].offset = 255;
  expect_error<LogicError>([&] { check_races(graph); }, {"(3) both touch byte 255"});
}

// --- cancel ---------------------------------------------------------------------------------------------------------------

/// agree 0, update; as the builder governs them.
struct Governed {
  GraphBuilder builder{GraphKind::kStep};
  BufferId working = builder.add_buffer({.tag = BufferTag::kWorking, .persistent = true, .index = 0, .bytes = 64});
  TaskId agree(bool can_cancel) {
    return builder.add_task({.kind = TaskKind::kAgree, .lane = Lane::kMeshComm, .can_cancel = can_cancel}, {});
  }
  TaskId update(std::int32_t chunk) {
    return builder.add_task({.kind = TaskKind::kUpdate, .chunk = chunk}, std::array<Use, 1>{{{working, Access::kReadWrite, Role::kParam}}});
  }
  TaskId gather() {
    return builder.add_task({.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .chunk = 0},
                            std::array<Use, 1>{{{working, Access::kReadWrite, Role::kTarget}}});
  }
  StepGraph finish() { return std::move(builder).finish(); }
};

TEST(CheckCancel, EveryTaskWaitsForTheAgreeThatGovernsIt) {
  Governed g;
  const TaskId agree = g.agree(true);
  g.builder.govern_by(agree);
  g.update(0);
  StepGraph graph = g.finish();
  EXPECT_NO_THROW(check_cancel(graph));
  graph.tasks[1].wait_count = 0;
  expect_error<LogicError>([&] { check_cancel(graph); }, {"update chunk 0 (1) does not wait for the agree that governs it, task 0"});
  graph.tasks[1].governed_by = 1;
  expect_error<LogicError>([&] { check_cancel(graph); }, {"update chunk 0 (1) is governed by agree 1 of 1"});
}

TEST(CheckCancel, ACancelPointBetweenUpdates) {
  Governed g;
  g.builder.govern_by(g.agree(true));
  g.update(0);
  const TaskId second = g.agree(true);
  g.builder.govern_by(second);
  g.update(1);
  StepGraph graph = g.finish();
  expect_error<LogicError>([&] { check_cancel(graph); }, {"a cancel at task 2 skips update chunk 1 (3) but not update chunk 0 (1)"});
  graph.tasks[second].can_cancel = false;
  EXPECT_NO_THROW(check_cancel(graph));
}

TEST(CheckCancel, ACancelPointBetweenAnUpdateAndItsGather) {
  Governed g;
  g.builder.govern_by(g.agree(true));
  g.update(0);
  g.builder.govern_by(g.agree(true));
  g.gather();
  const StepGraph graph = g.finish();
  expect_error<LogicError>([&] { check_cancel(graph); }, {"skips gather working of chunk 0 (3) but not update chunk 0 (1)"});
}

/// A move that brings states home belongs to the update before it.
TEST(CheckCancel, ACancelPointBetweenAnUpdateAndItsMoves) {
  for (const BufferTag tag : {BufferTag::kMoments, BufferTag::kMaster, BufferTag::kWorking, BufferTag::kGradient}) {
    Governed g;
    const BufferId staged = g.builder.add_buffer({.tag = tag, .tier = spec::Tier::kHost, .bytes = 4096});
    const BufferId home = g.builder.add_buffer({.tag = tag, .tier = spec::Tier::kDisk, .persistent = true, .bytes = 8192});
    g.builder.govern_by(g.agree(true));
    g.update(0);
    g.builder.govern_by(g.agree(true));
    g.builder.add_task({.kind = TaskKind::kMove, .lane = Lane::kDiskWrite, .plane = chunks::Plane::kMoment1, .chunk = 0},
                       std::array<Use, 2>{{{staged, Access::kRead, Role::kSource}, {home, Access::kWrite, Role::kTarget}}});
    const StepGraph graph = g.finish();
    if (tag == BufferTag::kGradient) {  // of the step alone
      EXPECT_NO_THROW(check_cancel(graph));
    } else {
      expect_error<LogicError>([&] { check_cancel(graph); }, {"skips disk_write exp_avg of chunk 0 (3) but not update chunk 0 (1)"});
    }
  }
}

TEST(CheckCancel, WhatRunsAfterACancelNeedsNothingThatIsSkipped) {
  Governed g;
  g.builder.govern_by(g.agree(true));
  g.update(0);
  g.update(1);
  StepGraph graph = g.finish();
  graph.tasks[2].governed_by = -1;
  expect_error<LogicError>([&] { check_cancel(graph); },
                           {"update chunk 1 (2) runs on after a cancel that skips the earlier update chunk 0 (1)"});
}

// --- meetings -------------------------------------------------------------------------------------------------------------

StepGraph meetings(const std::vector<std::pair<Lane, std::int32_t>>& order, std::int64_t bytes = 64) {
  GraphBuilder builder(GraphKind::kStep);
  for (const auto& [lane, chunk] : order) {
    const BufferId b = builder.add_buffer({.bytes = bytes});
    builder.add_task({.kind = lane == Lane::kScatterComm ? TaskKind::kScatter : TaskKind::kGather,
                      .lane = lane,
                      .plane = chunks::Plane::kWorking,
                      .chunk = chunk},
                     std::array<Use, 1>{write(b)});
  }
  return std::move(builder).finish();
}

void check(const std::vector<const StepGraph*>& classes) {
  check_meetings(classes);
}

TEST(CheckMeetings, EqualClassesMeet) {
  const StepGraph a = meetings({{Lane::kGatherComm, 0}, {Lane::kScatterComm, 0}, {Lane::kGatherComm, 1}});
  // Another order between lanes is another rank's own business.
  const StepGraph b = meetings({{Lane::kGatherComm, 0}, {Lane::kGatherComm, 1}, {Lane::kScatterComm, 0}});
  EXPECT_NO_THROW(check({&a, &b, &a}));
  EXPECT_NO_THROW(check({&a}));
  EXPECT_NO_THROW(check({}));
}

TEST(CheckMeetings, AnotherOrderInALane) {
  const StepGraph a = meetings({{Lane::kGatherComm, 0}, {Lane::kGatherComm, 1}, {Lane::kGatherComm, 2}});
  const StepGraph b = meetings({{Lane::kGatherComm, 0}, {Lane::kGatherComm, 2}, {Lane::kGatherComm, 1}});
  expect_error<LogicError>(
      [&] {
        check({&a, &b});
      },
      {"rank classes don't meet in the same order",
       "\"gather_comm gather working of chunk 1, 64 bytes of f32\" against \"gather_comm gather working of chunk 2, 64 bytes of f32\""});
}

TEST(CheckMeetings, OtherBytesAndMissingTasks) {
  const StepGraph a = meetings({{Lane::kGatherComm, 0}, {Lane::kGatherComm, 1}});
  const StepGraph bytes = meetings({{Lane::kGatherComm, 0}, {Lane::kGatherComm, 1}}, 128);
  expect_error<LogicError>([&] { check({&a, &bytes}); }, {"chunk 0, 64 bytes of f32\" against", "chunk 0, 128 bytes of f32"});
  const StepGraph fewer = meetings({{Lane::kGatherComm, 0}});
  expect_error<LogicError>([&] { check({&a, &a, &fewer}); }, {"chunk 1, 64 bytes of f32\" against \"(nothing)\""});
  expect_error<LogicError>([&] { check({&fewer, &a}); }, {"\"(nothing)\" against \"gather_comm gather working of chunk 1"});
}

TEST(CheckMeetings, OtherElementsAndReductions) {
  const StepGraph a = meetings({{Lane::kGatherComm, 0}, {Lane::kScatterComm, 0}});
  StepGraph b = a;
  b.storage = DType::kBF16;
  expect_error<LogicError>([&] { check({&a, &b}); }, {"gather working of chunk 0, 64 bytes of f32\" against", "64 bytes of bf16\""});
  EXPECT_NE(a.hash(), b.hash());
  b = a;
  b.tasks[1].plane = chunks::Plane::kGradient;
  const StepGraph once = b;
  b.tasks[1].accumulate = true;
  expect_error<LogicError>(
      [&] {
        check({&once, &b});
      },
      {"scatter gradient of chunk 0, 64 bytes of f32 summed\" against", "of f32 summed onto the target\""});
}

TEST(CheckMeetings, ACancelThatSkipsOnlyOneSide) {
  const auto with_agree = [](bool governs_first) {
    Governed g;
    const TaskId agree = g.agree(true);
    if (governs_first) g.builder.govern_by(agree);
    g.gather();
    if (!governs_first) g.builder.govern_by(agree);
    return g.finish();
  };
  const StepGraph a = with_agree(true), b = with_agree(false);
  EXPECT_NO_THROW(check_cancel(a));
  EXPECT_NO_THROW(check_cancel(b));
  expect_error<LogicError>([&] { check({&a, &b}); }, {"chunk 0, 64 bytes of f32, under agree 0\" against", "chunk 0, 64 bytes of f32\""});
}

/// Each class is in order, each lane meets in order, and still both wait for ever.
TEST(CheckMeetings, ACycleAcrossClasses) {
  const auto one_after_the_other = [](bool gather_first) {
    GraphBuilder builder(GraphKind::kStep);
    const BufferId a = builder.add_buffer({.bytes = 64}), b = builder.add_buffer({.bytes = 64});
    const Task gather{.kind = TaskKind::kGather, .lane = Lane::kGatherComm, .chunk = 3},
        scatter{.kind = TaskKind::kScatter, .lane = Lane::kScatterComm, .chunk = 4};
    builder.add_task(gather_first ? gather : scatter, std::array<Use, 1>{write(a)});
    builder.add_task({.kind = TaskKind::kCompute, .segment = 0}, std::array<Use, 2>{read(a), write(b)});
    builder.add_task(gather_first ? scatter : gather, std::array<Use, 1>{both(b)});
    return std::move(builder).finish();
  };
  const StepGraph a = one_after_the_other(true), b = one_after_the_other(false);
  EXPECT_NO_THROW(check({&a}));
  EXPECT_NO_THROW(check({&b}));
  expect_error<LogicError>([&] { check({&a, &b}); }, {"the ranks' orders form a cycle through", "of class 0"});
}

TEST(Meetings, TheHashStandsFirst) {
  const StepGraph a = meetings({{Lane::kGatherComm, 0}}), b = meetings({{Lane::kGatherComm, 1}});
  const std::string text = describe_meetings(a);
  EXPECT_EQ(text.substr(text.find('\n') + 1), "gather_comm gather working of chunk 0, 64 bytes of f32\n");
  EXPECT_EQ(describe_meetings(a), describe_meetings(meetings({{Lane::kGatherComm, 0}})));
  EXPECT_NE(text.substr(0, text.find('\n')), describe_meetings(b).substr(0, text.find('\n')));
}

TEST(Meetings, TheFirstDifference) {
  EXPECT_EQ(first_difference("h\na\nb\n", "h\na\nb\n"), "");
  EXPECT_EQ(first_difference("1\na\nb\nc\n", "2\na\nx\ny\n"), "\"b\" against \"x\"");
  EXPECT_EQ(first_difference("1\na\n", "2\na\nb\n"), "\"(nothing)\" against \"b\"");
  EXPECT_EQ(first_difference("1\na\nb\n", "2\na\n"), "\"b\" against \"(nothing)\"");
  EXPECT_EQ(first_difference("1\na\n", "2\na\n"), "the hashes differ but no line does");
}

}  // namespace
}  // namespace sluice::schedule
