#include "app/configuration.hpp"

#include <algorithm>
#include <cmath>

#include "app/configuration_parts.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

void fold_notes(const KeyTree& keys, Configuration& config) {
  std::vector<std::string> names;
  for (const KeyReport& key : config.keys) {
    if (key.key_class == KeyClass::kPerformanceOnly) names.push_back(key.path);
  }
  if (!names.empty()) config.notes.push_back(cat("not needed here, since they change no result: ", joined(names)));
  if (!keys.ignored().empty()) {
    config.notes.push_back(cat("ignored as asked, results may differ from what they say: ", joined(keys.ignored())));
  }
}

/// A value that two parts read may be refused twice.
void remove_repeats(std::vector<std::string>& lines) {
  std::vector<std::string> once;
  for (std::string& line : lines) {
    if (std::find(once.begin(), once.end(), line) == once.end()) once.push_back(std::move(line));
  }
  lines = std::move(once);
}

/// ceil(steps * part), as transformers counts, and at least 1.
std::int64_t part_of(std::int64_t steps, double part) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * part)));
}

}  // namespace

Examination examine(const ConfigurationRequest& request, std::optional<std::int64_t> ranks) {
  Examination result;
  KeyTree keys(request, result);
  Reading reading{.keys = keys, .result = result, .config = result.configuration, .ranks = ranks};
  read_trainer_names(reading);
  weigh_keys(reading);
  read_run(reading);
  read_precision(reading);
  read_batch(reading);
  read_optimizer(reading);
  read_schedule(reading);
  read_placement(reading);
  read_output(reading);
  if (!keys.mismatches().empty()) {
    result.problems.push_back(
        cat("file and command line disagree: ", joined(keys.mismatches(), "; "), "; remove one side, or write \"auto\" in the file"));
  }
  remove_repeats(result.problems);
  remove_repeats(result.missing_for_training);
  fold_notes(keys, result.configuration);
  if (result.configuration.steps) settle_steps(result.configuration, *result.configuration.steps);
  return result;
}

Configuration load_configuration(const ConfigurationRequest& request, std::optional<std::int64_t> ranks, Demand demand) {
  Examination examination = examine(request, ranks);
  std::vector<std::string> wrong = examination.problems;
  if (demand != Demand::kNothing) {
    wrong.insert(wrong.end(), examination.missing_for_plan.begin(), examination.missing_for_plan.end());
  }
  if (demand == Demand::kTrain) {
    wrong.insert(wrong.end(), examination.missing_for_training.begin(), examination.missing_for_training.end());
  }
  if (wrong.empty()) return std::move(examination.configuration);
  if (wrong.size() == 1) throw RequestError(wrong.front());
  throw RequestError(cat(wrong.front(), " (and ", wrong.size() - 1, " more: `sluice config check` with the same arguments lists all)"));
}

void settle_model(Configuration& configuration, const spec::ModelSpec& model) {
  std::int64_t& length = configuration.training.batch.sequence_length;
  if (length == 0) {
    length = model.context;
    configuration.notes.push_back(cat("sluice.sequence_length is not given: ", length, ", the model's context"));
  }
  if (length > model.context) {
    throw RequestError(cat("sequence_length is ", length, ", but model ", model.name, " has ", model.context,
                           " positions; give --sequence-length ", model.context, " or less"));
  }
}

void settle_steps(Configuration& configuration, std::int64_t steps) {
  spec::ScheduleSpec& schedule = configuration.training.schedule;
  const bool ends = schedule.kind == spec::ScheduleKind::kLinear || schedule.kind == spec::ScheduleKind::kCosine ||
                    schedule.kind == spec::ScheduleKind::kPolynomial || schedule.kind == spec::ScheduleKind::kDeepSpeedCosine;
  if (configuration.total_steps_follow && ends) schedule.total_steps = steps;
  if (configuration.warmup_ratio > 0) {
    schedule.warmup_steps = part_of(steps, configuration.warmup_ratio);
    const bool is_deepspeed = schedule.delay_steps > 0 || schedule.kind == spec::ScheduleKind::kDeepSpeedCosine;
    if (is_deepspeed) schedule.warmup_steps = std::max<std::int64_t>(2, schedule.warmup_steps);  // DeepSpeed's floor
  }
  if (configuration.checkpoint_part > 0) configuration.checkpoint_interval = part_of(steps, configuration.checkpoint_part);
  if (configuration.evaluate_part > 0) configuration.evaluate_interval = part_of(steps, configuration.evaluate_part);
  if (configuration.print_part > 0) configuration.print_interval = part_of(steps, configuration.print_part);
}

}  // namespace sluice::app
