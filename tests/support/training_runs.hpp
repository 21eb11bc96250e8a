#pragma once
// Training runs of the real program on a model so small that starting takes longer than training, and what they leave in their
// run directory, read independently of the program's own readers.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/temp_dir.hpp"

namespace sluice::testing {

struct StepRecord {
  std::int64_t step = 0;
  std::string loss;       // as it stands in the file, so that equal text is equal bits
  std::string grad_norm;  // likewise
  std::int64_t attempt = 0;
  double loss_value() const { return std::stod(loss); }
};

struct Records {
  std::vector<StepRecord> steps;                                  // in the file's order
  std::vector<std::pair<std::int64_t, std::string>> evaluations;  // step and loss text
};
/// Of metrics.jsonl; a torn last line is left out. Nothing where there is no file.
Records read_records(const std::string& run);
/// The last step in metrics.jsonl, 0 without any. Quick enough to be polled.
std::int64_t last_step(const std::string& run);

struct RunStatus {
  bool exists = false;
  std::string state, reason, last_checkpoint;
  std::int64_t step = -1, attempt = -1;
  int exit_code = -1;  // -1: null
  bool retriable = false;
};
RunStatus read_run_status(const std::string& run);

/// Names of the directories in checkpoints/ that hold a manifest, sorted.
std::vector<std::string> checkpoint_names(const std::string& run);

/// Every file below `folder` with its content, but for the lock that only says who was last.
std::map<std::string, std::string> snapshot(const std::string& folder);
/// Names of the files that differ between two snapshots.
std::vector<std::string> changed_files(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& after);

struct PlanChoice {
  int ranks = 2;
  int zero_stage = 1;
  std::int64_t micro_batch = 2;
  std::int64_t accumulation = 2;
  std::int64_t chunk_elements = 8192;
  std::int64_t rcache_elements = 0;
  std::int64_t layers = 2;
  std::string update_mode = "next_forward";
  std::string order = "depth_first";
  std::string activation = "keep";  // of every segment
  // Where every chunk stands, where `chunks` says how many there are; 0: all of it on the device.
  std::int64_t chunks = 0;
  std::string working = "device", gradient = "device", states = "device";
};

/// A place for runs: a text, a model of 30 k parameters with dropout, a configuration, and the caches of the program.
class RunArea {
 public:
  RunArea();

  const std::string& path() const { return folder_.path(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& bytes) const { return folder_.write(name, bytes); }

  std::string text() const { return folder_ / "text.txt"; }    // 15 kB: 58 steps are an epoch
  std::string valid() const { return folder_ / "valid.txt"; }  // 2 kB
  std::string model() const { return folder_ / "tiny"; }       // a directory with config.json only
  /// Global batch 8, sequences of 32, AdamW with clipping, cosine schedule of 400 steps, a checkpoint every 10 steps; no length.
  std::string config() const { return folder_ / "run.json"; }
  /// Writes a plan that this area's model and configuration can run with; its path.
  std::string plan(const PlanChoice& choice = {}) const;

  /// `sluice WORDS...`, without a launcher.
  ProgramCommand sluice(const std::vector<std::string>& words) const;
  /// The program under mpirun.
  ProgramCommand launch(int ranks, const std::vector<std::string>& words) const;
  /// `sluice train run.json --output OUTPUT MORE...` on so many ranks; 0: one, without a launcher.
  ProgramCommand train(int ranks, const std::string& output, const std::vector<std::string>& more) const;

 private:
  TempDir folder_;
};

/// English-looking text that a model can learn something from; the same for the same seed.
std::string sample_text(std::size_t bytes, unsigned seed);

/// The program ended by itself with this code and left no process.
::testing::AssertionResult ended_with(const ProgramOutcome& outcome, int code);
/// The program refused: this code, exactly one line of error, which contains every one of `parts`.
::testing::AssertionResult refused_with(const ProgramOutcome& outcome, int code, const std::vector<std::string>& parts);
/// metrics.jsonl holds steps 1 to `last`, each once and in order.
::testing::AssertionResult has_each_step_once(const std::string& run, std::int64_t last);
/// Losses, norms and evaluations of two runs are the same text, as far as step `up_to`.
::testing::AssertionResult same_bits(const std::string& run, const std::string& expected,
                                     std::int64_t up_to = std::numeric_limits<std::int64_t>::max());

}  // namespace sluice::testing
