#pragma once
// metrics.jsonl: one JSON object a line, appended as the run goes (design section 7).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::app {

struct TrainMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // token-weighted mean over the global batch
  double lr = 0;
  double grad_norm = 0;     // before clipping
  std::int64_t tokens = 0;  // total of the run so far
  double step_seconds = 0;
  double tokens_per_second = 0;
  bool skipped = false;
  std::int64_t attempt = 1;
  double time = 0;  // wall-clock seconds since 1970
  friend bool operator==(const TrainMetrics&, const TrainMetrics&) = default;
};

struct EvaluateMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double perplexity = 0;
  std::int64_t tokens = 0;  // evaluated
  friend bool operator==(const EvaluateMetrics&, const EvaluateMetrics&) = default;
};

struct Metrics {
  std::vector<TrainMetrics> train;
  std::vector<EvaluateMetrics> evaluate;
};

/// The writer, of rank 0. Each line goes out whole in one write, so that a reader sees at most the last one torn.
class MetricsFile {
 public:
  /// Opens `path` for a run that goes on after step `resumed_step` (0: from the start). Lines of later steps, which this attempt
  /// will write again, and a last line torn by a kill are dropped by rewriting the file in one step. Throws IoError, and FormatError
  /// for a damaged line that is not the last.
  MetricsFile(const std::string& path, std::int64_t resumed_step);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  /// The loss of the evaluation of `resumed_step` that the file had already; none: it had none.
  std::optional<double> resumed_loss() const { return resumed_loss_; }

  void append(const TrainMetrics& metrics);
  void append(const EvaluateMetrics& metrics);
  /// Waits until what was appended is on the disk.
  void sync();

 private:
  void append_line(const std::string& line);
  std::string path_;
  int fd_ = -1;
  std::optional<double> resumed_loss_;
};

/// Reads a whole file; a torn last line is left out. Numbers that were not finite (null) read as NaN. Throws IoError, FormatError.
Metrics read_metrics(const std::string& path);

}  // namespace sluice::app
