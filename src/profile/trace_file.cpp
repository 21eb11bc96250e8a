#include "profile/trace_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace sluice::profile {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMeasured = 1, kPredicted = 2;  // process ids

class Events {
 public:
  explicit Events(std::ostream& out) : out_(out) {}
  void add(const Json& event) {
    out_ << (first_ ? "\n" : ",\n") << event.dump(-1, ' ', true, Json::error_handler_t::replace);
    first_ = false;
  }
  void name_process(int pid, const std::string& name) {
    add({{"ph", "M"}, {"pid", pid}, {"tid", 0}, {"name", "process_name"}, {"args", {{"name", name}}}});
  }
  void name_lanes(int pid, const std::array<bool, schedule::kLaneCount>& used) {
    for (int lane = 0; lane < schedule::kLaneCount; ++lane) {
      if (!used[static_cast<std::size_t>(lane)]) continue;
      const std::string name(schedule::name_of(static_cast<schedule::Lane>(lane)));
      add({{"ph", "M"}, {"pid", pid}, {"tid", lane}, {"name", "thread_name"}, {"args", {{"name", name}}}});
      add({{"ph", "M"}, {"pid", pid}, {"tid", lane}, {"name", "thread_sort_index"}, {"args", {{"sort_index", lane}}}});
    }
  }
  void span(int pid, std::uint32_t lane, const std::string& name, double begin_us, double duration_us, Json args) {
    add({{"ph", "X"}, {"pid", pid}, {"tid", lane}, {"name", name}, {"ts", begin_us}, {"dur", duration_us}, {"args", std::move(args)}});
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

}  // namespace

void write_trace(std::ostream& out, const std::string& path, const schedule::StepGraph& graph, const schedule::Simulation* predicted,
                 std::span<const StepSpan> measured, int rank) {
  out << "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"graph_hash\": \"" << Hash().add(graph.hash()).hex() << "\"}, \"traceEvents\": [";
  Events events(out);
  std::array<bool, schedule::kLaneCount> lanes{};
  std::int64_t origin = std::numeric_limits<std::int64_t>::max(), last_step = std::numeric_limits<std::int64_t>::min();
  for (const StepSpan& s : measured) {
    origin = std::min(origin, s.span.begin_ns);
    last_step = std::max(last_step, s.step);
    if (s.span.lane < schedule::kLaneCount) lanes[s.span.lane] = true;
  }
  double predicted_from = std::numeric_limits<double>::infinity();
  events.name_process(kMeasured, cat("rank ", rank, ", measured"));
  events.name_lanes(kMeasured, lanes);
  for (const StepSpan& s : measured) {
    const double begin = static_cast<double>(s.span.begin_ns - origin) * 1e-3;
    if (s.step == last_step) predicted_from = std::min(predicted_from, begin);
    const bool is_task = s.span.subject >= 0 && s.span.subject < static_cast<std::int64_t>(graph.tasks.size());
    const std::string name = is_task ? graph.task_name(static_cast<schedule::TaskId>(s.span.subject)) : std::string(s.span.name);
    events.span(kMeasured, s.span.lane, name, begin, static_cast<double>(s.span.end_ns - s.span.begin_ns) * 1e-3,
                {{"step", s.step}, {"task", s.span.subject}});
  }
  if (predicted != nullptr) {
    if (measured.empty()) predicted_from = 0;
    lanes = {};
    for (const schedule::Task& task : graph.tasks) lanes[static_cast<std::size_t>(task.lane)] = true;
    events.name_process(kPredicted, "predicted");
    events.name_lanes(kPredicted, lanes);
    for (schedule::TaskId id = 0; id < graph.tasks.size(); ++id) {
      const schedule::TaskTimes& times = predicted->tasks[id];
      events.span(kPredicted, static_cast<std::uint32_t>(graph.tasks[id].lane), graph.task_name(id), predicted_from + times.begin * 1e6,
                  (times.end - times.begin) * 1e6, {{"task", id}});
    }
  }
  out << "\n]}\n";
  out.flush();
  if (!out) throw IoError("writing", path, errno);
}

}  // namespace sluice::profile
