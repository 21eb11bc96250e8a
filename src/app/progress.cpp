#include "app/progress.hpp"

#include <algorithm>
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

std::string joined(const std::vector<LinePart>& parts, const char* between, bool in_brief = false) {
  std::string line;
  for (const LinePart& part : parts) line += cat(line.empty() ? "" : between, in_brief && !part.brief.empty() ? part.brief : part.text);
  return line;
}

/// "1.20 GiB" as "1.20G".
std::string brief_bytes(std::int64_t bytes) {
  std::string text = format_bytes(bytes);
  text.erase(text.find(' '), 1);
  if (text.ends_with("iB")) text.resize(text.size() - 2);
  return text;
}

/// "device 1.20 GiB, host 3.00 MiB", and in brief "dev 1.20G host 3.00M".
LinePart memory_part(const std::array<std::int64_t, spec::kTierCount>& bytes, int priority) {
  LinePart part{priority, cat("device ", format_bytes(bytes[0])), cat("dev ", brief_bytes(bytes[0]))};
  for (std::size_t t = 1; t < bytes.size(); ++t) {
    if (bytes[t] == 0) continue;
    const std::string_view tier = spec::name_of(static_cast<spec::Tier>(t));
    part.text += cat(", ", tier, " ", format_bytes(bytes[t]));
    part.brief += cat(" ", tier, " ", brief_bytes(bytes[t]));
  }
  return part;
}

}  // namespace

std::string fitted_line(std::vector<LinePart> parts, std::size_t columns) {
  for (;;) {
    for (std::string line : {joined(parts, "  "), joined(parts, " "), joined(parts, " ", true)}) {
      if (line.size() <= columns) return line;
    }
    if (parts.size() == 1) return joined(parts, " ", true);
    parts.erase(
        std::max_element(parts.begin() + 1, parts.end(), [](const LinePart& a, const LinePart& b) { return a.priority < b.priority; }));
  }
}

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
  std::vector<LinePart> parts = {
      {0, cat("step ", m.step, "/", options_.steps), cat(m.step, "/", options_.steps)},
      {1, cat("loss ", fixed(m.loss, 4))},
      {6, cat("|g| ", fixed(m.grad_norm, 3))},
      {7, cat("lr ", m.learning_rate)},
      {4, cat(format_seconds(m.step_seconds), "/step"), format_seconds(m.step_seconds)},
      {3, cat(fixed(m.tokens_per_second, m.tokens_per_second < 100 ? 1 : 0), " tokens/s")},
      memory_part(options_.tier_bytes, 5),
  };
  if (m.step < options_.steps)
    parts.push_back({2, cat("left ", format_seconds(mean_seconds_ * static_cast<double>(options_.steps - m.step)))});
  if (is_due(m.step)) options_.columns ? log_.record(joined(parts, "  ")) : log_.note(joined(parts, "  "));
  if (options_.columns) rewrite(std::move(parts), m.step);
}

/// Without a wish of the user's a log gets at most a line a second.
bool Progress::is_due(std::int64_t step) {
  const std::int64_t now = now_ns();
  const bool due = options_.print_interval > 0 ? step % options_.print_interval == 0 : now - last_shown_ns_ >= kLineEveryNs;
  if (!due && step != options_.first_step + 1 && step != options_.steps) return false;
  last_shown_ns_ = now;
  return true;
}

void Progress::rewrite(std::vector<LinePart> parts, std::int64_t step) {
  const std::int64_t now = now_ns();
  if (now - last_rewrite_ns_ < kRewriteEveryNs && step != options_.steps) return;
  const std::optional<int> columns = options_.columns();
  if (!columns) return;  // who watched has gone
  last_rewrite_ns_ = now;
  // A wrapped line could not be rewritten, and some terminals wrap once the last column is full.
  std::printf("\r\033[K%s", fitted_line(std::move(parts), static_cast<std::size_t>(*columns - 1)).c_str());
  std::fflush(stdout);
  line_open_ = true;
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
