#include "app/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "checkpoint/catalog.hpp"
#include "spec/json_text.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kGlobalBatchKey = "train_batch_size";
constexpr std::int64_t kHashedBytes = 64 << 10;  // at either end of a data file: cheap on any file system, and edits show there

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json parsed(const std::string& text, const std::string& source) {
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(source, problem);
  return Json::parse(text);
}

/// Runs `read`; a missing or mistyped key becomes a FormatError.
template <typename Read>
auto reading(const std::string& source, Read&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    const std::string what = error.what();
    const std::size_t bracket = what.find("] ");
    throw FormatError(source, bracket == std::string::npos ? what : what.substr(bracket + 2));
  }
}

RunState run_state_from(const std::string& name, const std::string& source) {
  for (const RunState state : {RunState::kRunning, RunState::kFinished, RunState::kStopped, RunState::kFailed}) {
    if (name_of(state) == name) return state;
  }
  throw FormatError(source, cat("state is \"", name, "\", expected running, finished, stopped or failed"));
}

template <typename T>
std::string text_of(const T& value) {
  return Json(value).dump();
}

}  // namespace

std::string name_of(RunState state) {
  constexpr std::array<const char*, 4> kNames{"running", "finished", "stopped", "failed"};
  return kNames.at(static_cast<std::size_t>(state));
}

std::string to_json(const Status& status) {
  Json json;
  json["state"] = name_of(status.state);
  json["step"] = status.step;
  json["last_checkpoint"] = status.last_checkpoint.empty() ? Json(nullptr) : Json(status.last_checkpoint);
  json["best_checkpoint"] = status.best_checkpoint.empty() ? Json(nullptr) : Json(status.best_checkpoint);
  json["exit_code"] = status.exit_code ? Json(*status.exit_code) : Json(nullptr);
  json["reason"] = status.reason;
  json["retriable"] = status.retriable;
  json["attempt"] = status.attempt;
  json["owner"] = {{"host", status.owner.host}, {"pid", status.owner.pid}, {"start_ticks", status.owner.started}};
  return dumped(json);
}

Status status_from_json(const std::string& text, const std::string& source) {
  const Json json = parsed(text, source);
  return reading(source, [&] {
    Status status;
    status.state = run_state_from(json.at("state").get<std::string>(), source);
    status.step = json.at("step").get<std::int64_t>();
    if (!json.at("last_checkpoint").is_null()) status.last_checkpoint = json.at("last_checkpoint").get<std::string>();
    if (json.contains("best_checkpoint") && !json["best_checkpoint"].is_null())
      status.best_checkpoint = json["best_checkpoint"].get<std::string>();
    if (!json.at("exit_code").is_null()) status.exit_code = json.at("exit_code").get<int>();
    status.reason = json.at("reason").get<std::string>();
    status.retriable = json.at("retriable").get<bool>();
    status.attempt = json.at("attempt").get<std::int64_t>();
    const Json& owner = json.at("owner");
    status.owner.host = owner.at("host").get<std::string>();
    status.owner.pid = owner.at("pid").get<std::int64_t>();
    status.owner.started = owner.at("start_ticks").get<std::int64_t>();
    return status;
  });
}

DataFile describe_data_file(const std::string& path) {
  const InputFile file(path);
  DataFile data;
  data.path = path;
  data.bytes = file.size();
  Hash hash;
  for (const std::int64_t begin : {std::int64_t{0}, std::max<std::int64_t>(0, data.bytes - kHashedBytes)}) {
    std::string part(static_cast<std::size_t>(std::min(kHashedBytes, data.bytes - begin)), '\0');
    file.read(begin, part.data(), static_cast<std::int64_t>(part.size()));
    hash.add(part);
  }
  data.hash = hash.hex();
  return data;
}

namespace {

/// The files of a folder that say how text becomes tokens, chat templates included.
std::string tokenizer_files(const std::filesystem::path& folder) {
  std::string text;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tokenizer_config.json",
                           "special_tokens_map.json", "chat_template.jinja"}) {
    const std::string path = (folder / name).string();
    if (!std::filesystem::is_regular_file(path)) continue;
    const DataFile file = describe_data_file(path);
    text += cat(text.empty() ? "" : ", ", name, " of ", file.bytes, " bytes, hash ", file.hash);
  }
  return text;
}

/// What the tokenizer is: the content of its files, not where they are. Corpora has said which one is used.
std::string tokenizer_identity(const std::string& tokenizer) {
  if (tokenizer.empty()) return "none";
  return tokenizer == "bytes" ? tokenizer : tokenizer_files(tokenizer);
}

}  // namespace

Fingerprint fingerprint_of(const Configuration& configuration, const spec::ModelSpec& model, const std::vector<DataFile>& train,
                           const std::vector<DataFile>& valid) {
  Fingerprint print;
  const Json model_json = Json::parse(spec::to_json(model));
  for (const auto& [key, value] : model_json.items()) print.push_back({cat("model.", key), value.dump(), true});
  print.push_back({"init", configuration.init == Init::kWeights ? "weights" : "scratch", true});
  const auto add_files = [&](const char* key, const std::vector<DataFile>& files, bool fixed) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      print.push_back({cat(key, "[", i, "]"), cat(files[i].bytes, " bytes, hash ", files[i].hash), fixed});
    }
  };
  add_files("data.train", train, true);
  print.push_back({"data.order", configuration.order == DataOrder::kSequential ? "sequential" : "shuffled", true});
  const spec::TrainingSpec& training = configuration.training;
  const Json asked = Json::parse(to_json(configuration)).at("data");
  print.push_back({"data.tokenizer", tokenizer_identity(configuration.tokenizer), true});
  if (!configuration.chat_template.empty()) add_files("data.chat_template", {describe_data_file(configuration.chat_template)}, true);
  for (const char* key : {"packing", "document_attention", "overlong", "invalid_utf8", "text_key", "valid_fraction"}) {
    print.push_back({cat("data.", key), asked.at(key).dump(), true});
  }
  print.push_back({"sequence_length", text_of(training.batch.sequence_length), true});
  print.push_back({kGlobalBatchKey, text_of(training.batch.global_batch), true});
  print.push_back({"seed", text_of(training.seed), true});
  const Json training_json = Json::parse(spec::to_json(training));
  print.push_back({"precision", training_json.at("precision").dump(), true});
  if (training.precision == spec::Precision::kFp16) print.push_back({"fp16", training_json.at("loss_scale").dump(), true});
  print.push_back({"trainable", training_json.at("trainable").dump(), true});
  for (const auto& [key, value] : training_json.at("optimizer").items()) print.push_back({cat("optimizer.", key), value.dump(), true});
  for (const auto& [key, value] : training_json.at("schedule").items()) print.push_back({cat("schedule.", key), value.dump(), false});
  if (configuration.steps) print.push_back({"steps", text_of(*configuration.steps), false});
  if (configuration.epochs) print.push_back({"epochs", text_of(*configuration.epochs), false});
  add_files("data.valid", valid, false);
  return print;
}

std::vector<std::string> differences(const Fingerprint& there, const Fingerprint& asked, bool fixed) {
  const auto value_in = [](const Fingerprint& print, const std::string& key) -> const FingerprintEntry* {
    const auto found = std::find_if(print.begin(), print.end(), [&](const FingerprintEntry& entry) { return entry.key == key; });
    return found == print.end() ? nullptr : &*found;
  };
  std::vector<std::string> lines;
  for (const FingerprintEntry& entry : asked) {
    if (entry.is_fixed != fixed) continue;
    const FingerprintEntry* old = value_in(there, entry.key);
    if (old == nullptr) {
      lines.push_back(cat(entry.key, ": nothing there, ", entry.value, " asked"));
    } else if (old->value != entry.value) {
      lines.push_back(cat(entry.key, ": ", old->value, " there, ", entry.value, " asked"));
    }
  }
  for (const FingerprintEntry& entry : there) {
    if (entry.is_fixed == fixed && value_in(asked, entry.key) == nullptr) {
      lines.push_back(cat(entry.key, ": ", entry.value, " there, nothing asked"));
    }
  }
  return lines;
}

std::string identity_of(const Fingerprint& fingerprint) {
  Hash hash;
  for (const FingerprintEntry& entry : fingerprint) {
    if (entry.is_fixed) hash.add(entry.key).add(entry.value);
  }
  return hash.hex();
}

std::string identity_document(const Fingerprint& fingerprint) {
  return Json{{"fingerprint", identity_of(fingerprint)}}.dump();
}

std::string identity_in(const std::string& document, const std::string& source) {
  if (document.empty()) return {};
  const Json json = parsed(document, source);
  if (!json.is_object() || !json.contains("fingerprint")) return {};
  return reading(source, [&] { return json.at("fingerprint").get<std::string>(); });
}

std::string to_json(const RunRecord& record) {
  Json json;
  json["configuration"] = Json::parse(record.configuration);
  json["model"] = Json::parse(record.model);
  json["fingerprint"] = Json::array();
  for (const FingerprintEntry& entry : record.fingerprint) {
    json["fingerprint"].push_back({{"key", entry.key}, {"value", entry.value}, {"fixed", entry.is_fixed}});
  }
  json["versions"] = record.versions;
  json["hosts"] = record.hosts;
  json["started"] = record.started;
  return dumped(json);
}

RunRecord run_record_from_json(const std::string& text, const std::string& source) {
  const Json json = parsed(text, source);
  return reading(source, [&] {
    RunRecord record;
    record.configuration = json.at("configuration").dump(2);
    record.model = json.at("model").dump(2);
    for (const Json& entry : json.at("fingerprint")) {
      record.fingerprint.push_back(
          {entry.at("key").get<std::string>(), entry.at("value").get<std::string>(), entry.at("fixed").get<bool>()});
    }
    record.versions = json.at("versions").get<std::map<std::string, std::string>>();
    record.hosts = json.at("hosts").get<std::vector<std::string>>();
    record.started = json.at("started").get<double>();
    return record;
  });
}

std::string RunDirectory::log_file(int rank) const {
  std::string digits = cat(rank);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return cat(path_, "/log/rank-", digits, ".log");
}

void RunDirectory::create() const {
  for (const std::string& folder : {path_ + "/log", checkpoints()}) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      throw EnvironmentError(cat(folder, ": can't be made: ", error.message(), "; give a folder that can be written as --output"));
    }
  }
}

void RunDirectory::check_writable() const {
  std::filesystem::path there = std::filesystem::absolute(path_);
  while (!exists(there.string()) && there.has_relative_path()) there = there.parent_path();
  std::string probe = (there / ".sluice-probe-XXXXXX").string();
  if (::mkdtemp(probe.data()) == nullptr) {
    throw EnvironmentError(cat(path_, ": nothing can be made in ", there.string(), ": ", std::generic_category().message(errno),
                               "; give a folder that can be written as --output"));
  }
  ::rmdir(probe.c_str());
}

bool RunDirectory::has_run() const {
  return std::filesystem::exists(run_file()) || std::filesystem::exists(status_file());
}

std::optional<Status> RunDirectory::read_status() const {
  if (!exists(status_file())) return std::nullopt;
  return status_from_json(read_text(status_file()), status_file());
}

std::optional<LastAttempt> RunDirectory::last_attempt() const {
  std::vector<std::int64_t> steps = checkpoint::committed_steps(checkpoints());
  LastAttempt last;
  try {
    if (const std::optional<Status> status = read_status()) return LastAttempt{*status, {}};
    if (steps.empty()) return std::nullopt;
    last.damage = cat(status_file(), ": is missing");
  } catch (const FormatError& error) {
    last.damage = error.what();
  }
  for (; !steps.empty(); steps.pop_back()) {
    const std::string name = checkpoint::step_name(steps.back());
    try {
      const checkpoint::Progress progress = checkpoint::read_manifest(cat(checkpoints(), "/", name)).progress;
      last.status.attempt = std::max<std::int64_t>(1, progress.attempt);
      last.status.step = progress.step;
      last.status.last_checkpoint = name;
      if (progress.best) last.status.best_checkpoint = checkpoint::step_name(progress.best->step);
      break;
    } catch (const FormatError&) {
      // An older one may be readable; that this one isn't is told when the state is loaded.
    }
  }
  return last;
}

void RunDirectory::write_status(const Status& status) const {
  write_durably(status_file(), to_json(status));
}

std::string RunDirectory::describe_finished(std::int64_t steps) const {
  return cat(path_, ": this run is finished (", steps,
             " steps); nothing to do. Give more --steps to go on, or another --output to start anew");
}

std::optional<RunRecord> RunDirectory::read_run() const {
  if (!exists(run_file())) return std::nullopt;
  try {
    return run_record_from_json(read_text(run_file()), run_file());
  } catch (const FormatError& error) {
    throw Error(error.code(), cat(error.what(),
                                  "; it says which run stands here. Put a copy of it back, or remove it: the run's own command "
                                  "writes it anew"));
  }
}

void RunDirectory::write_run(const RunRecord& record) const {
  write_durably(run_file(), to_json(record));
}

std::optional<RunDirectory::FailureRight> RunDirectory::claim_failure() const {
  // Not status.json, which is another file after each writing; network file systems lock only what is open for writing.
  FailureRight right;
  if (!exists(run_file())) return right;
  right.lock.emplace(run_file(), O_RDWR);
  if (::flock(right.lock->fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return right;
}

std::optional<std::int64_t> RunDirectory::global_batch() const {
  if (!has_checkpoint()) return std::nullopt;
  const std::optional<RunRecord> record = read_run();
  if (!record) return std::nullopt;
  for (const FingerprintEntry& entry : record->fingerprint) {
    if (entry.key == kGlobalBatchKey) return std::stoll(entry.value);
  }
  return std::nullopt;
}

bool RunDirectory::has_checkpoint() const {
  return !checkpoint::committed_steps(checkpoints()).empty();
}

std::vector<std::string> RunDirectory::check_same_run(const Fingerprint& asked) const {
  const std::optional<RunRecord> record = read_run();
  if (!record) return {};
  Fingerprint there = record->fingerprint;
  if (!has_checkpoint()) {  // an attempt of another rank count may have failed; nothing that it did is there to go on from
    const auto is_batch = [](const FingerprintEntry& entry) { return entry.key == kGlobalBatchKey; };
    std::erase_if(there, is_batch);
    std::copy_if(asked.begin(), asked.end(), std::back_inserter(there), is_batch);
  }
  const std::vector<std::string> fixed = differences(there, asked, true);
  if (!fixed.empty()) {
    std::string text;
    for (const std::string& line : fixed) text += (text.empty() ? "" : "; ") + line;
    throw RequestError(cat(path_, " holds another run: ", text,
                           "; give the same values or another --output. What may change: steps, epochs, schedule, data.valid, checkpoint, "
                           "evaluate, steps_per_print, export, memory, threads, ranks, micro-batch, zero_optimization and other hints"));
  }
  return differences(there, asked, false);
}

}  // namespace sluice::app
