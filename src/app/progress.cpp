#include "app/progress.hpp"

#include <cstdio>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace sluice::app {
namespace {

constexpr std::int64_t kRewriteEveryNs = 100'000'000;
constexpr std::int64_t kLineEveryNs = 1'000'000'000;

std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

}  // namespace

Progress::Progress(const Options& options, Log& log, MetricsFile* metrics, train::StopSource& stop,
                   std::function<void(std::int64_t, const checkpoint::CommitResult*)> on_state)
    : options_(options), log_(log), metrics_(metrics), stop_(stop), on_state_(std::move(on_state)), watch_(options.margin) {}

void Progress::end_line() {
  if (line_open_) std::fputc('\n', stdout);
  std::fflush(stdout);
  line_open_ = false;
}

void Progress::say(const std::string& line) {
  end_line();
  log_.note(line);
}

/// A run whose numbers can't be written down stops in order, with its state saved where there is room for that.
template <typename Metrics>
void Progress::append(const Metrics& metrics) {
  try {
    metrics_->append(metrics);
  } catch (const Error& error) {
    end_line();
    log_.warn(error.what());
    stop_.request("metrics.jsonl that can't be written");
  }
}

void Progress::on_step(const train::StepMetrics& m) {
  if (const std::optional<std::string> warning = watch_.look()) {
    end_line();
    log_.warn(*warning);
  }
  if (options_.rank == 0) {
    append(TrainMetrics{m.step, m.loss, m.learning_rate, m.grad_norm, m.tokens, m.step_seconds, m.tokens_per_second, m.skipped,
                        options_.attempt, wall_seconds()});
  }
  on_state_(m.step, nullptr);
  if (options_.rank != 0) return;
  if (m.skipped) {
    end_line();
    log_.warn(cat("step ", m.step, " changes nothing: ", m.why_skipped));
  }
  mean_seconds_ = mean_seconds_ == 0 ? m.step_seconds : 0.9 * mean_seconds_ + 0.1 * m.step_seconds;
  const std::string line =
      cat("step ", m.step, "/", options_.steps, "  loss ", fixed(m.loss, 4), "  |g| ", fixed(m.grad_norm, 3), "  lr ", m.learning_rate,
          "  ", format_seconds(m.step_seconds), "/step  ", fixed(m.tokens_per_second, m.tokens_per_second < 100 ? 1 : 0), " tokens/s  ",
          options_.memory,
          m.step < options_.steps ? cat("  left ", format_seconds(mean_seconds_ * static_cast<double>(options_.steps - m.step))) : "");
  if (options_.terminal) {
    const std::int64_t now = now_ns();
    if (now - last_shown_ns_ < kRewriteEveryNs && m.step != options_.steps) return;
    last_shown_ns_ = now;
    std::printf("\r\033[K%s", line.c_str());
    std::fflush(stdout);
    line_open_ = true;
    return;
  }
  // Without a wish of the user's a log gets at most a line a second.
  const std::int64_t now = now_ns();
  const bool due = options_.print_interval > 0 ? m.step % options_.print_interval == 0 : now - last_shown_ns_ >= kLineEveryNs;
  if (!due && m.step != options_.first_step + 1 && m.step != options_.steps) return;
  last_shown_ns_ = now;
  log_.note(line);
}

void Progress::on_evaluation(const train::EvaluationMetrics& m) {
  if (options_.rank != 0) return;
  append(EvaluateMetrics{m.step, m.loss, m.perplexity, m.tokens});
  say(cat("evaluation after step ", m.step, ": loss ", fixed(m.loss, 4), ", perplexity ", fixed(m.perplexity, 2), " over ", m.tokens,
          " tokens"));
}

void Progress::on_checkpoint(const checkpoint::CommitResult& result, double seconds) {
  if (!result.ok) {
    if (options_.rank != 0) return;
    end_line();
    log_.warn(cat("the checkpoint of step ", result.step, " was not saved: ", result.reason));
    return;
  }
  if (options_.rank == 0) metrics_->sync();
  on_state_(result.step, &result);
  if (options_.rank != 0) return;
  say(cat("checkpoint ", result.path, " (", format_bytes(result.bytes), " in ", format_seconds(seconds), ")",
          result.best_step == result.step ? ", the best so far" : ""));
  for (const std::string& warning : result.warnings) log_.warn(warning);
}

void Progress::on_stop(std::int64_t step, bool step_was_dropped, bool saves) {
  if (options_.rank != 0) return;
  say(cat("asked to stop: ", step_was_dropped ? cat("step ", step + 1, " was dropped, ") : std::string(), "the state of step ", step,
          saves ? " is saved now" : " is not saved, since a second signal came"));
}

}  // namespace sluice::app
