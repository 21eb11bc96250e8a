// Where a run's results go and how often: run directory, checkpoints, evaluation, printing, export.

#include <filesystem>

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

/// The Trainer's way of saying how often something happens: a strategy and a number of steps.
struct TrainerInterval {
  std::string key;                   // of ours
  std::string strategy;              // "save_strategy"; empty: it has none that counts
  std::string steps;                 // "save_steps"
  std::int64_t trainer_steps = 500;  // with strategy "steps" and no number
};

/// Sets `interval` (steps) or `part` (of the run) from the Trainer's names, if they say anything. The command line wins over the file.
void read_trainer_interval(Reading& reading, const TrainerInterval& names, std::int64_t& interval, double& part) {
  KeyTree& keys = reading.keys;
  std::optional<std::string> strategy;
  if (!names.strategy.empty()) strategy = keys.trainer_one_of(names.strategy, {"no", "steps", "epoch"});
  const std::optional<double> steps = keys.trainer_number(names.steps);
  if (!strategy && !steps) return;
  part = 0;
  if (strategy == "no") {
    interval = 0;
  } else if (strategy == "epoch") {
    if (reading.config.epochs) {
      part = 1 / *reading.config.epochs;
    } else {
      keys.trainer_problem(names.strategy, cat("found epoch, but the run's length is no number of epochs; give --", names.steps, " N"));
    }
  } else if (steps && *steps < 1 && *steps > 0) {
    part = *steps;
  } else if (steps) {
    if (const auto whole = keys.trainer_whole(names.steps, 0)) interval = *whole;
  } else {
    interval = names.trainer_steps;
    keys.moved_default(names.key, cat(interval), "the Trainer's default");
  }
}

void read_export(Reading& reading) {
  KeyTree& keys = reading.keys;
  Configuration& config = reading.config;
  const std::string path = "sluice.export";
  if (keys.is_one_of(path, "\"best\"")) {
    config.export_best = true;
  } else if (keys.has(path) && !keys.has_type(path, ValueType::kFlag)) {
    keys.problem(path, cat("found ", keys.shown(path), ", expected true, false or \"best\""));
  } else {
    config.export_model = keys.flag(path).value_or(true);
  }
  if (const auto best = keys.trainer_flag("load_best_model_at_end"); best.value_or(false)) config.export_best = true;
  if (!config.export_best) return;
  config.export_model = true;
  if (!config.checkpoint_best || !config.evaluates()) {
    const std::string text = "the best model is known by evaluation only; write sluice.data.valid and leave checkpoint.best true";
    if (keys.is_one_of(path, "\"best\"")) {
      keys.problem(path, text);
    } else {
      keys.trainer_problem("load_best_model_at_end", text);
    }
  }
}

std::string default_output(const Configuration& config) {
  const bool is_file = !config.source.empty() && std::filesystem::exists(config.source);
  const std::string model =
      config.preset.empty() ? std::filesystem::path(config.model_path).lexically_normal().filename().string() : config.preset;
  const std::string stem = is_file ? std::filesystem::path(config.source).stem().string() : model;
  return stem.empty() ? std::string() : cat("runs/", stem);
}

}  // namespace

void read_output(Reading& reading) {
  KeyTree& keys = reading.keys;
  Configuration& config = reading.config;
  config.output = keys.text("sluice.output").value_or(default_output(config));
  if (const auto resume = keys.text("sluice.resume")) {
    config.resume = *resume == "never" ? ResumeMode::kNever : ResumeMode::kPath;
    if (config.resume == ResumeMode::kPath) config.resume_path = *resume;
  }
  if (const auto interval = keys.whole("sluice.checkpoint.interval", 0)) config.checkpoint_interval = *interval;
  if (const auto keep = keys.whole("sluice.checkpoint.keep", 1)) config.checkpoint_keep = *keep;
  if (const auto best = keys.flag("sluice.checkpoint.best")) config.checkpoint_best = *best;
  if (const auto interval = keys.whole("sluice.evaluate.interval", 0)) config.evaluate_interval = *interval;
  if (const auto interval = keys.whole("steps_per_print", 1)) config.print_interval = *interval;
  read_trainer_interval(reading, {"sluice.checkpoint.interval", "save_strategy", "save_steps"}, config.checkpoint_interval,
                        config.checkpoint_part);
  const std::string strategy = keys.trainer_has("eval_strategy") ? "eval_strategy" : "evaluation_strategy";
  // Without a number of its own, evaluation goes by the one of printing.
  const std::string steps = keys.trainer_has("eval_steps") || !keys.trainer_has(strategy) ? "eval_steps" : "logging_steps";
  read_trainer_interval(reading, {"sluice.evaluate.interval", strategy, steps}, config.evaluate_interval, config.evaluate_part);
  read_trainer_interval(reading, {"steps_per_print", "", "logging_steps"}, config.print_interval, config.print_part);
  if ((config.evaluate_interval > 0 || config.evaluate_part > 0) && !config.evaluates()) {
    const std::string text = "there is nothing to evaluate on; ";
    if (keys.has("sluice.evaluate.interval")) {
      keys.problem("sluice.evaluate.interval", text + "write sluice.data.valid or sluice.data.valid_fraction");
    } else {
      keys.trainer_problem(keys.trainer_has(strategy) ? strategy : steps, text + "give --validation_file or --validation_split_percentage");
    }
  }
  read_export(reading);
  config.dry_run = keys.flag("sluice.dry_run").value_or(false);
  config.reprofile = keys.flag("sluice.reprofile").value_or(false);
  config.dump_graph = keys.flag("sluice.dump_graph").value_or(false);
}

}  // namespace sluice::app
