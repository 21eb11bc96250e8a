#pragma once
// What a run shows while it goes: a line that rewrites itself on a terminal, plain lines in a log, and metrics.jsonl.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/memory_watch.hpp"
#include "app/metrics_file.hpp"
#include "base/log.hpp"
#include "spec/plan.hpp"
#include "train/loop.hpp"

namespace sluice::app {

struct LinePart {
  int priority = 0;  // the highest number is the first to go
  std::string text;
  std::string brief;  // where that is too long; empty: the same
};
/// The parts in a line of at most `columns`: with as few of the least important left out, whole, as suffices, and for that with less space
/// and in brief where needed. The first part is always there.
std::string fitted_line(std::vector<LinePart> parts, std::size_t columns);

/// Rank 0's observer. Other ranks have one that only watches their memory and keeps the state for their own status.
class Progress final : public train::Observer {
 public:
  struct Options {
    int rank = 0;
    std::int64_t first_step = 0;  // resumed from
    std::int64_t steps = 0;       // the run's last
    std::int64_t attempt = 1;
    std::int64_t print_interval = 0;  // steps between plain lines; 0: at most one a second
    /// The width of the terminal that shows the line, asked each time, since windows change; empty: plain lines. With a terminal the line
    /// is rewritten at most ten times a second, and the log's file gets the plain ones.
    std::function<std::optional<int>()> columns;
    std::array<std::int64_t, spec::kTierCount> tier_bytes{};  // planned, per rank
    MemoryMargin margin;
  };
  /// `metrics` may be null (other ranks); all outlive this. `stop` is asked when a line can't be written. `on_state(step, saved)` is
  /// called after each step (null) and each checkpoint that was committed.
  Progress(const Options& options, Log& log, MetricsFile* metrics, train::StopSource& stop,
           std::function<void(std::int64_t step, const checkpoint::CommitResult* saved)> on_state);

  void on_step(const train::StepMetrics& metrics) override;
  void on_evaluation(const train::EvaluationMetrics& metrics) override;
  void on_checkpoint(const checkpoint::CommitResult& result, double seconds) override;
  void on_stop(std::int64_t step, bool step_was_dropped, bool saves) override;
  /// Ends a line that was being rewritten.
  void end_line();

 private:
  void say(const std::string& line);
  bool is_due(std::int64_t step);
  void rewrite(std::vector<LinePart> parts, std::int64_t step);
  template <typename Metrics>
  void append(const Metrics& metrics);
  Options options_;
  Log& log_;
  MetricsFile* metrics_;
  train::StopSource& stop_;
  std::function<void(std::int64_t, const checkpoint::CommitResult*)> on_state_;
  MemoryWatch watch_;
  std::int64_t last_shown_ns_ = 0;    // a plain line
  std::int64_t last_rewrite_ns_ = 0;  // a terminal's
  double mean_seconds_ = 0;           // of a step, exponentially weighted, for the time left
  bool line_open_ = false;
};

}  // namespace sluice::app
