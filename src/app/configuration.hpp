#pragma once
// What the user asked for, from one DeepSpeed-style file and the command line, as one value.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus_options.hpp"
#include "spec/model_spec.hpp"
#include "spec/training_spec.hpp"

namespace sluice::app {

/// A key given on the command line. Later ones win over earlier ones, all of them over the file.
struct Setting {
  enum class Kind : std::uint8_t {
    kValue,   // JSON where it parses as such (numbers, true, lists), else a text
    kText,    // a text, whatever it looks like
    kAppend,  // a text added to a list; the first one replaces the file's list
  };
  std::string path;    // "sluice.steps", "optimizer.params.lr"
  std::string value;   // as typed
  std::string origin;  // what errors call it: "--steps"
  Kind kind = Kind::kValue;
};

struct ConfigurationRequest {
  std::string file;               // CONFIG.json; empty: none
  std::vector<Setting> settings;  // in the order given
  /// Hugging Face's TrainingArguments by name ("learning_rate"): they fill "auto" and what no key says.
  std::map<std::string, std::string> trainer;
};

/// How much of the request must be there.
enum class Demand : std::uint8_t {
  kNothing,  // `config check`: what is missing is listed, not refused
  kPlan,     // `profile`, `plan`: model and batch
  kTrain,    // all of it: data, length and learning rate too
};

enum class KeyClass : std::uint8_t { kHonoured, kHint, kPerformanceOnly, kIgnored, kRefused, kMovedDefault };
std::string name_of(KeyClass key_class);  // "honoured", "hint", "performance only", "ignored", "refused", "moved default"

/// What became of one key of the request.
struct KeyReport {
  std::string path;   // "zero_optimization.stage"
  std::string value;  // JSON on one line, cut where it is long
  KeyClass key_class = KeyClass::kHonoured;
  std::string note;  // a reason where there is one
};

enum class DataOrder : std::uint8_t { kShuffled, kSequential };
enum class Init : std::uint8_t { kScratch, kWeights };
enum class ResumeMode : std::uint8_t { kAuto, kNever, kPath };

/// Where DeepSpeed would keep parameters or optimizer states. Absent: not said.
struct OffloadHint {
  std::string device;  // "", "none", "cpu", "nvme"
  std::string nvme_path;
  std::optional<bool> pin_memory;
  std::optional<std::int64_t> buffer_count;
  std::optional<std::int64_t> buffer_elements;        // of parameters
  std::optional<std::int64_t> max_host_elements;      // of parameters, beside NVMe
  std::optional<double> ratio;                        // of optimizer states
  std::optional<bool> pipeline_read, pipeline_write;  // of optimizer states
  friend bool operator==(const OffloadHint&, const OffloadHint&) = default;
};

/// How DeepSpeed's scripts would recompute activations. Absent: not said.
struct ActivationHint {
  std::optional<bool> recompute;  // the Trainer's gradient_checkpointing
  std::optional<bool> partition, on_host;
  std::optional<std::int64_t> number_checkpoints;
  friend bool operator==(const ActivationHint&, const ActivationHint&) = default;
};

/// DeepSpeed's block aio. Absent: not said.
struct AioHint {
  std::optional<std::int64_t> block_bytes, queue_depth, threads;
  std::optional<bool> single_submit, overlap_events;
  friend bool operator==(const AioHint&, const AioHint&) = default;
};

/// Placement as the request wrote it, for the planner to start from. Absent: not said.
struct Hints {
  std::optional<std::int64_t> zero_stage;
  OffloadHint offload_optimizer;
  OffloadHint offload_param;
  std::optional<std::int64_t> prefetch_elements;   // stage3_prefetch_bucket_size
  std::optional<std::int64_t> max_live_elements;   // stage3_max_live_parameters
  std::optional<std::int64_t> reduce_elements;     // reduce_bucket_size
  std::optional<std::int64_t> sub_group_elements;  // sub_group_size
  ActivationHint activations;
  AioHint aio;
  friend bool operator==(const Hints&, const Hints&) = default;
};

/// DeepSpeed's three batch numbers, as far as they are written.
struct BatchKeys {
  std::optional<std::int64_t> train;         // train_batch_size: sequences a step
  std::optional<std::int64_t> micro;         // train_micro_batch_size_per_gpu
  std::optional<std::int64_t> accumulation;  // gradient_accumulation_steps
};

struct Configuration {
  std::string source;                 // the file, or "" without one
  std::string preset;                 // of the model; exactly one of preset and model_path is set where a model is given
  std::string model_path;             // a Hugging Face directory, a run directory or a checkpoint
  std::string model_key = "--model";  // what named it, with its place
  Init init = Init::kScratch;
  std::vector<std::string> train_data;
  std::vector<std::string> valid_data;
  std::string train_key, valid_key;  // what named them, with its place
  DataOrder order = DataOrder::kShuffled;
  double valid_fraction = 0;  // of the training documents, held out for evaluation; 0: none
  std::string tokenizer;      // "bytes" or a directory; empty: the model directory's own, else bytes
  std::string chat_template;  // a file; empty: the tokenizer's own
  data::Packing packing = data::Packing::kStream;
  data::Overlong overlong = data::Overlong::kError;  // of kPad
  data::InvalidUtf8 invalid_utf8 = data::InvalidUtf8::kError;
  std::string text_key = "text";
  std::optional<std::int64_t> steps;  // one of steps and epochs
  std::optional<double> epochs;
  BatchKeys batch_keys;
  /// batch.global_batch, micro_batch and accumulation are 0 where free or where the rank count is unknown;
  /// batch.sequence_length is 0 where the model's context is meant: see settle_model.
  spec::TrainingSpec training;
  spec::MeshSpec mesh;             // data is the rank count, or 1 where that is unknown
  bool total_steps_follow = true;  // schedule.total_steps is the run's length: see settle_steps
  double warmup_ratio = 0;         // above 0: schedule.warmup_steps is this part of the total
  std::string output;              // empty only where neither file nor model is given
  std::string device = "cpu";
  std::int64_t threads = 0;                         // per rank; 0: the affinity's cores over the node's ranks
  std::optional<std::int64_t> device_memory_bytes;  // per rank
  std::optional<std::int64_t> host_memory_bytes;    // per node
  std::optional<std::int64_t> nvme_space_bytes;     // per node
  std::vector<std::string> nvme_paths;              // directories to swap to, striped; empty: nothing goes to disk
  std::vector<std::string> nvme_keys;               // of each: the key that names it, with its place
  bool nvme_network = false;                        // also on file systems that other hosts share
  std::int64_t checkpoint_interval = 100;           // steps; 0: at the end only
  double checkpoint_part = 0;                       // above 0: checkpoint_interval is this part of the run, see settle_steps
  std::int64_t checkpoint_keep = 3;
  bool checkpoint_best = true;         // keeps the best checkpoint by validation loss as well, where there is evaluation
  bool export_model = true;            // OUTPUT/model/ at the end, as a Hugging Face directory
  bool export_best = false;            // of the best checkpoint instead of the last state
  std::int64_t evaluate_interval = 0;  // steps; 0: at the end only, where valid_data is given
  double evaluate_part = 0;            // as checkpoint_part
  std::int64_t print_interval = 0;     // steps; 0: about a line a second
  double print_part = 0;               // as checkpoint_part
  ResumeMode resume = ResumeMode::kAuto;
  std::string resume_path;
  std::string plan_file;
  std::string plan_key;  // what named it, with its place
  std::vector<std::string> pins;
  bool dry_run = false;
  bool reprofile = false;
  bool dump_graph = false;
  Hints hints;
  std::vector<KeyReport> keys;     // in the file's order, defaults last
  std::vector<std::string> notes;  // what to say at start, one line each

  /// Whether there is anything to evaluate on.
  bool evaluates() const { return !valid_data.empty() || valid_fraction > 0; }
};

/// The request, what is wrong with it and what it lacks, one line each.
struct Examination {
  Configuration configuration;
  std::vector<std::string> problems;
  std::vector<std::string> missing_for_plan;
  std::vector<std::string> missing_for_training;  // further ones
};

/// Reads the file and weighs every key of the request. `ranks`: of the run, where known. Throws RequestError only for what keeps
/// the file from being read as JSON, EnvironmentError where it can't be opened.
Examination examine(const ConfigurationRequest& request, std::optional<std::int64_t> ranks);

/// The configuration; throws RequestError with the first problem (and how many more there are), or with what is missing.
Configuration load_configuration(const ConfigurationRequest& request, std::optional<std::int64_t> ranks, Demand demand);

/// DeepSpeed's rule for what is not written of T = M x G x ranks: T follows from M and G (or from M with G = 1), G from T and M, M
/// from T and G. With T alone the micro-batch and the accumulation stay 0: the planner chooses them, which changes no result but
/// rounding. sequence_length stays 0. Throws RequestError with all four numbers where they disagree.
spec::BatchSpec resolve_batch(const BatchKeys& keys, std::int64_t data_ranks);

/// After resolve_batch, where a run with another rank count made `global_batch` sequences a step and train_batch_size is not
/// written: keeps that global batch and derives the accumulation anew, with a note. Throws RequestError with the rank counts that
/// can share it.
void keep_global_batch(Configuration& configuration, std::int64_t global_batch);

/// Sets sequence_length where it was left to the model; throws RequestError where it is longer than the model's context.
void settle_model(Configuration& configuration, const spec::ModelSpec& model);

/// Sets what follows from the run's length: schedule.total_steps, and the warm-up and intervals that are parts of it (rounded up, as
/// transformers does).
void settle_steps(Configuration& configuration, std::int64_t steps);

/// The effective configuration for run.json, indented.
std::string to_json(const Configuration& configuration);

/// `config check` for people: one line a key, then what is wrong and what is missing. Colourless.
std::string describe(const Examination& examination);
/// The same as JSON: {"source", "keys": [{key, value, class, note, default}], "problems", "missing", "notes"}; values and defaults as
/// JSON texts.
std::string to_json(const Examination& examination);

}  // namespace sluice::app
