#include "app/metrics_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;

/// Calls `use(line, json)` for each whole line. The last one is left out where a kill tore it: no newline, or no JSON.
template <typename Use>
void for_each_line(const std::string& path, const std::string& text, Use&& use) {
  std::size_t begin = 0;
  std::int64_t number = 0;
  while (begin < text.size()) {
    ++number;
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;
    const std::string line = text.substr(begin, end - begin);
    const Json json = Json::parse(line, nullptr, false);
    const bool is_last = end + 1 == text.size();
    const bool is_whole =
        json.is_object() && json.contains("kind") && json["kind"].is_string() && json.contains("step") && json["step"].is_number_integer();
    if (!is_whole && is_last) return;
    if (!is_whole) {
      throw FormatError(path, cat("line ", number, " is not a metrics record (an object with kind and step); remove the line to go on"));
    }
    use(line, json);
    begin = end + 1;
  }
}

double number(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t resumed_step) : path_(path) {
  if (std::filesystem::exists(path)) {
    const std::string text = read_text(path);
    std::string kept;
    for_each_line(path, text, [&](const std::string& line, const Json& json) {
      const auto step = json["step"].get<std::int64_t>();
      if (step > resumed_step) return;
      kept += line + "\n";
      if (step == resumed_step && json["kind"] == "evaluate" && json.contains("loss") && json["loss"].is_number())
        resumed_loss_ = json["loss"].get<double>();
    });
    if (kept != text) write_durably(path, kept);
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw IoError("opening", path, errno);
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::append_line(const std::string& line) {
  while (true) {
    const ssize_t wrote = ::write(fd_, line.data(), line.size());
    if (wrote == static_cast<ssize_t>(line.size())) return;
    if (wrote < 0 && errno == EINTR) continue;
    throw IoError("writing", path_, wrote < 0 ? errno : 0);
  }
}

void MetricsFile::append(const TrainMetrics& metrics) {
  Json json;
  json["kind"] = "train";
  json["step"] = metrics.step;
  json["loss"] = metrics.loss;
  json["lr"] = metrics.lr;
  json["grad_norm"] = metrics.grad_norm;
  json["tokens"] = metrics.tokens;
  json["step_seconds"] = metrics.step_seconds;
  json["tokens_per_second"] = metrics.tokens_per_second;
  json["skipped"] = metrics.skipped;
  json["attempt"] = metrics.attempt;
  json["time"] = metrics.time;
  append_line(json.dump() + "\n");
}

void MetricsFile::append(const EvaluateMetrics& metrics) {
  Json json;
  json["kind"] = "evaluate";
  json["step"] = metrics.step;
  json["loss"] = metrics.loss;
  json["perplexity"] = metrics.perplexity;
  json["tokens"] = metrics.tokens;
  append_line(json.dump() + "\n");
}

void MetricsFile::sync() {
  if (::fsync(fd_) != 0) throw IoError("fsync", path_, errno);
}

Metrics read_metrics(const std::string& path) {
  Metrics metrics;
  const std::string text = read_text(path);
  try {
    for_each_line(path, text, [&](const std::string&, const Json& json) {
      const std::string kind = json["kind"].get<std::string>();
      if (kind == "train") {
        TrainMetrics each;
        each.step = json.at("step").get<std::int64_t>();
        each.loss = number(json, "loss");
        each.lr = number(json, "lr");
        each.grad_norm = number(json, "grad_norm");
        each.tokens = json.at("tokens").get<std::int64_t>();
        each.step_seconds = number(json, "step_seconds");
        each.tokens_per_second = number(json, "tokens_per_second");
        each.skipped = json.at("skipped").get<bool>();
        each.attempt = json.at("attempt").get<std::int64_t>();
        each.time = number(json, "time");
        metrics.train.push_back(each);
      } else if (kind == "evaluate") {
        EvaluateMetrics each;
        each.step = json.at("step").get<std::int64_t>();
        each.loss = number(json, "loss");
        each.perplexity = number(json, "perplexity");
        each.tokens = json.at("tokens").get<std::int64_t>();
        metrics.evaluate.push_back(each);
      }
    });
  } catch (const nlohmann::json::exception& error) {
    const std::string what = error.what();
    throw FormatError(path, what.substr(what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2));
  }
  return metrics;
}

}  // namespace sluice::app
