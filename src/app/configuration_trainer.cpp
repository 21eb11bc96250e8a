// The names of the Trainer on the command line, by the table of key_rules_trainer.cpp. What those that fill "auto" mean is read
// where the key is read that they fill.

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

Setting::Kind kind_of(ValueType type) {
  if (type == ValueType::kTexts) return Setting::Kind::kAppend;
  return type == ValueType::kText ? Setting::Kind::kText : Setting::Kind::kValue;
}

/// max_steps above 0 beats num_train_epochs.
void read_length(KeyTree& keys) {
  const std::optional<double> steps = keys.trainer_number("max_steps", -kNoLimit);
  const std::optional<std::string> epochs = keys.trainer_text("num_train_epochs");
  if (steps && *steps > 0) {
    keys.set({"sluice.steps", *keys.trainer_text("max_steps"), "--max_steps"});
    if (epochs) keys.note(cat("--max_steps beats --num_train_epochs ", *epochs, ", as in the Trainer"));
  } else if (epochs) {
    keys.set({"sluice.epochs", *epochs, "--num_train_epochs"});
  }
}

void read_others(KeyTree& keys) {
  if (const auto percent = keys.trainer_number("validation_split_percentage", 0, 100)) {
    keys.set({"sluice.data.valid_fraction", cat(*percent / 100), "--validation_split_percentage"});
  }
  if (const auto order = keys.trainer_one_of("train_sampling_strategy", {"random", "sequential"})) {
    keys.set({"sluice.data.order", *order == "random" ? "shuffled" : "sequential", "--train_sampling_strategy", Setting::Kind::kText});
  }
  // "True" means the last checkpoint, which is what happens anyway.
  if (const auto from = keys.trainer_text("resume_from_checkpoint")) {
    const bool by_itself = keys.trainer_is_one_of("resume_from_checkpoint", "true|false|null");
    if (!by_itself) keys.set({"sluice.resume", *from, "--resume_from_checkpoint", Setting::Kind::kText});
  }
}

}  // namespace

void read_trainer_names(Reading& reading) {
  KeyTree& keys = reading.keys;
  for (const auto& [name, value] : keys.trainer()) {
    const TrainerName* row = find_trainer_name(name);
    if (row == nullptr) {
      keys.report_trainer(name, KeyClass::kRefused, "unknown");
      keys.trainer_problem(name, "is no name of the Trainer's that is known");
      continue;
    }
    switch (row->rule) {
      case TrainerRule::kSets:
        keys.report_trainer(name, KeyClass::kHonoured, cat("is ", row->path));
        keys.set({std::string(row->path), value, "--" + name, kind_of(row->type)});
        break;
      case TrainerRule::kFills:
        keys.report_trainer(name, row->path == "activation_checkpointing" ? KeyClass::kHint : KeyClass::kHonoured, cat("for ", row->path));
        break;
      case TrainerRule::kPerformance:
        keys.report_trainer(name, KeyClass::kPerformanceOnly);
        break;
      case TrainerRule::kOnly:
        if (keys.trainer_is_one_of(name, row->fallback) || keys.trainer_is_one_of(name, row->allowed)) {
          keys.report_trainer(name, KeyClass::kHonoured);
        } else {
          keys.report_trainer(name, KeyClass::kRefused);
          keys.trainer_problem(name, cat("found ", value, ", which changes results: ", row->advice, " (or --ignore ", name, ")"));
        }
        break;
    }
  }
  read_length(keys);
  read_others(keys);
}

}  // namespace sluice::app
