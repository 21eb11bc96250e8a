#include "profile/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace sluice::profile {
namespace {

TraceSpan span(std::int64_t subject, std::int64_t begin_ns, std::int64_t end_ns, schedule::Lane lane = schedule::Lane::kCompute) {
  return {"compute", static_cast<std::uint32_t>(lane), subject, begin_ns, end_ns};
}

/// Two tasks on two lanes.
schedule::StepGraph two_tasks() {
  schedule::GraphBuilder builder(schedule::GraphKind::kStep);
  const schedule::BufferId buffer = builder.add_buffer({.bytes = 4});
  const std::array<schedule::Use, 1> write{{{buffer, schedule::Access::kWrite, schedule::Role::kTarget}}};
  const std::array<schedule::Use, 1> read{{{buffer, schedule::Access::kRead, schedule::Role::kParam}}};
  builder.add_task({.kind = schedule::TaskKind::kGather, .lane = schedule::Lane::kGatherComm, .chunk = 7, .micro = 0}, write);
  builder.add_task({.kind = schedule::TaskKind::kCompute, .lane = schedule::Lane::kCompute, .segment = 3, .micro = 0}, read);
  return std::move(builder).finish();
}

TEST(TraceFile, ShowsPredictedBesideMeasured) {
  const schedule::StepGraph graph = two_tasks();
  const std::array<schedule::Price, 2> prices{{{.latency_seconds = 0.25}, {.latency_seconds = 0.5}}};
  spec::MachineSpec machine;
  machine.wake_seconds = 0;
  const schedule::Simulation predicted = schedule::simulate(graph, prices, machine, {.ranks = 2});
  TraceRing ring(16);
  ring.begin_step(1);
  ring.emit(span(0, 5'000'000, 6'000'000, schedule::Lane::kGatherComm));
  ring.begin_step(2);
  ring.emit(span(0, 9'000'000, 9'500'000, schedule::Lane::kGatherComm));
  ring.emit(span(1, 9'500'000, 9'501'500));
  ring.emit(span(-1, 9'600'000, 9'700'000, schedule::Lane::kHostCompute));
  const std::vector<StepSpan> spans = ring.spans();
  std::ostringstream out;
  write_trace(out, "trace.json", graph, &predicted, spans, 3);
  const auto json = nlohmann::json::parse(out.str());
  struct Event {
    int pid, tid;
    std::string name;
    double ts, dur;
    bool operator==(const Event&) const = default;
  };
  std::vector<Event> events;
  std::vector<std::string> names;
  for (const auto& e : json.at("traceEvents")) {
    if (e.at("ph") == "X") {
      events.push_back({e.at("pid"), e.at("tid"), e.at("name"), e.at("ts"), e.at("dur")});
    } else if (e.at("args").contains("name")) {
      names.push_back(e.at("args").at("name"));
    }
  }
  const int gather = static_cast<int>(schedule::Lane::kGatherComm), compute = static_cast<int>(schedule::Lane::kCompute),
            host = static_cast<int>(schedule::Lane::kHostCompute);
  const std::string first = graph.task_name(0), second = graph.task_name(1);
  EXPECT_THAT(first, ::testing::HasSubstr("chunk 7"));
  ASSERT_EQ(events.size(), 6);
  EXPECT_EQ(events[0], (Event{1, gather, first, 0, 1000}));
  EXPECT_EQ(events[1], (Event{1, gather, first, 4000, 500}));
  EXPECT_EQ(events[2], (Event{1, compute, second, 4500, 1.5}));
  EXPECT_EQ(events[3], (Event{1, host, "compute", 4600, 100}));
  EXPECT_EQ(events[4], (Event{2, gather, first, 4000, 250'000}));  // with the last step's beginning
  EXPECT_EQ(events[5], (Event{2, compute, second, 254'000, 500'000}));
  EXPECT_THAT(names, ::testing::IsSupersetOf({"rank 3, measured", "predicted", "gather_comm", "compute", "host_compute"}));
}

TEST(TraceFile, NeedsNoMeasurementAndNoPrediction) {
  const schedule::StepGraph graph = two_tasks();
  std::ostringstream out;
  write_trace(out, "trace.json", graph, nullptr, {}, 0);
  EXPECT_TRUE(nlohmann::json::accept(out.str()));
  out.setstate(std::ios::failbit);
  EXPECT_THROW(write_trace(out, "trace.json", graph, nullptr, {}, 0), IoError);
}

}  // namespace
}  // namespace sluice::profile
