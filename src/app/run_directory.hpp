#pragma once
// The folder of one run (design section 7): what is in it, whose it is, and whether a request may continue it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/configuration.hpp"
#include "base/file.hpp"
#include "base/owner.hpp"

namespace sluice::app {

// ---- status.json

enum class RunState : std::uint8_t { kRunning, kFinished, kStopped, kFailed };
std::string name_of(RunState state);  // "running", "finished", "stopped", "failed"

struct Status {
  RunState state = RunState::kRunning;
  std::int64_t step = 0;         // last one completed
  std::string last_checkpoint;   // "step-00000050"; empty: none
  std::string best_checkpoint;   // likewise: the one with the lowest validation loss, where that is known
  std::optional<int> exit_code;  // not while running
  std::string reason;            // one line, for people
  bool retriable = false;        // the same command may continue it
  std::int64_t attempt = 1;      // starts of this run, from 1
  Owner owner;                   // rank 0; its host, pid and start are kept
  friend bool operator==(const Status&, const Status&) = default;
};
std::string to_json(const Status& status);
/// Throws FormatError naming `source`.
Status status_from_json(const std::string& text, const std::string& source);

/// What is known of the attempt before this one.
struct LastAttempt {
  Status status;
  std::string damage;  // of status.json, in one line: it is damaged or gone; then `status` is what the checkpoints say, as of an attempt
                       // that was killed
};

// ---- run.json

/// A data file as it was when the run began.
struct DataFile {
  std::string path;
  std::int64_t bytes = 0;
  std::string hash;  // of its first and last 64 KiB
};
/// Throws as InputFile where the file can't be read.
DataFile describe_data_file(const std::string& path);

/// One value that says which run this is.
struct FingerprintEntry {
  std::string key;       // "model.hidden", "data.train[0]", as people know it
  std::string value;     // for comparison and for people
  bool is_fixed = true;  // may not change under one run directory; others are only announced
  friend bool operator==(const FingerprintEntry&, const FingerprintEntry&) = default;
};
using Fingerprint = std::vector<FingerprintEntry>;

/// Fixed: the model, the training files' contents and order, the tokenizer and how samples are made of documents, sequence length,
/// global batch, seed, optimizer, precision, which parameters train, and where the weights began. Free to change: length and
/// schedule, validation data. configuration.tokenizer must name what is used (Corpora::tokenizer_used). Not in it: micro-batch, ranks,
/// budgets, device, intervals. Paths don't count, contents do. Throws IoError for a chat template that can't be read.
Fingerprint fingerprint_of(const Configuration& configuration, const spec::ModelSpec& model, const std::vector<DataFile>& train,
                           const std::vector<DataFile>& valid);

/// Lines "model.hidden: 768 there, 384 asked" of the entries that differ and are fixed (or not).
std::vector<std::string> differences(const Fingerprint& there, const Fingerprint& asked, bool fixed);

/// Which run this is, in 16 hexadecimal digits: of the fixed entries.
std::string identity_of(const Fingerprint& fingerprint);
/// As checkpoints keep it: a JSON document.
std::string identity_document(const Fingerprint& fingerprint);
/// Empty where the document says nothing. Throws FormatError naming `source`.
std::string identity_in(const std::string& document, const std::string& source);

struct RunRecord {
  std::string configuration;  // JSON, as to_json(Configuration)
  std::string model;          // JSON, as spec::to_json(ModelSpec)
  Fingerprint fingerprint;
  std::map<std::string, std::string> versions;  // "sluice" -> "0.1.0", libraries
  std::vector<std::string> hosts;               // per rank
  double started = 0;                           // wall-clock seconds of the first attempt
};
std::string to_json(const RunRecord& record);
RunRecord run_record_from_json(const std::string& text, const std::string& source);

// ---- the folder

class RunDirectory {
 public:
  /// Names only; touches nothing.
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string run_file() const { return path_ + "/run.json"; }
  std::string status_file() const { return path_ + "/status.json"; }
  std::string plan_file() const { return path_ + "/plan.json"; }
  std::string profile_file() const { return path_ + "/profile.json"; }
  std::string trace_file() const { return path_ + "/trace.json"; }
  std::string metrics_file() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string log_file(int rank) const;  // log/rank-00003.log

  /// Makes the folder with log/ and checkpoints/. Throws EnvironmentError.
  void create() const;
  /// Throws EnvironmentError as create() and writing there would; leaves nothing.
  void check_writable() const;
  /// Whether a run was ever begun here (run.json or status.json).
  bool has_run() const;
  /// Throws FormatError where it is damaged.
  std::optional<Status> read_status() const;
  /// As read_status(), but where that is damaged, or gone though checkpoints stand here, what can be known without it: nothing in it is
  /// worth ending a run for.
  std::optional<LastAttempt> last_attempt() const;
  void write_status(const Status& status) const;
  /// For people, of a run that has all the steps it is asked for.
  std::string describe_finished(std::int64_t steps) const;
  /// Throws an error of kFormat where it is damaged, with what to do: without it nobody knows whose run this is.
  std::optional<RunRecord> read_run() const;
  void write_run(const RunRecord& record) const;

  /// The right to say why the run failed, for as long as it is held: where several ranks fail at once, the first to ask has it. None:
  /// another rank does. Without locks on the file system, or before run.json is there, all have it.
  struct FailureRight {
    std::optional<File> lock;
  };
  std::optional<FailureRight> claim_failure() const;

  /// Whether anything of the run was ever saved here.
  bool has_checkpoint() const;
  /// Sequences a step of the run that stands here, if any was saved: a run keeps them whatever the rank count.
  std::optional<std::int64_t> global_batch() const;
  /// Throws RequestError, key by key, if another run stands here; before its first checkpoint the global batch may still change. Returns
  /// lines about free keys that changed.
  std::vector<std::string> check_same_run(const Fingerprint& asked) const;

 private:
  std::string path_;
};

}  // namespace sluice::app
