// The learning rate and how it goes: DeepSpeed's schedulers, the Trainer's, or a schedule in sluice.

#include <algorithm>
#include <array>
#include <map>

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

using spec::ScheduleKind;
using spec::ScheduleSpec;

constexpr double kLoadedLearningRate = 5e-5;  // transformers' TrainingArguments.learning_rate
constexpr double kMostSteps = 9e15;           // whole numbers of a double

const std::string kParams = "scheduler.params.";

// ---- DeepSpeed's schedulers

struct SchedulerType {
  std::string_view name;
  ScheduleKind kind;
  std::array<std::string_view, 13> params;  // empty ones at the end
};
constexpr auto kSchedulers = std::to_array<SchedulerType>({
    {"WarmupLR", ScheduleKind::kConstant, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {"WarmupDecayLR", ScheduleKind::kLinear, {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {"WarmupCosineLR",
     ScheduleKind::kDeepSpeedCosine,
     {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"}},
    {"OneCycle",
     ScheduleKind::kOneCycle,
     {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size", "cycle_first_stair_count",
      "cycle_second_stair_count", "decay_step_size", "cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}},
    {"LRRangeTest",
     ScheduleKind::kRangeTest,
     {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"}},
});

std::vector<std::string> names_of_schedulers() {
  std::vector<std::string> names;
  for (const SchedulerType& type : kSchedulers) names.emplace_back(type.name);
  return names;
}

/// Known keys that another type has; DeepSpeed fails on them as well.
void refuse_other_params(KeyTree& keys, const SchedulerType& type) {
  std::vector<std::string> known;
  for (const std::string_view name : type.params) {
    if (!name.empty()) known.emplace_back(name);
  }
  for (const std::string& name : keys.names_in("scheduler.params")) {
    const bool fits = std::find(known.begin(), known.end(), name) != known.end() || name == "last_batch_iteration";
    if (fits || find_key(kParams + name) == nullptr) continue;
    keys.problem(kParams + name, cat("is no parameter of ", type.name, "; known: ", joined(known)));
  }
}

void read_warmup(Reading& reading, ScheduleSpec& schedule) {
  KeyTree& keys = reading.keys;
  const std::string path = kParams + "warmup_num_steps";
  const std::optional<double> ratio = keys.trainer_number("warmup_ratio", 0, 1);
  const std::optional<double> given = keys.trainer_number("warmup_steps", 0, kMostSteps);
  const bool is_open = !keys.has(path) || keys.is_auto(path);
  // Below 1 the Trainer's number of steps is a part of the run.
  if (is_open && given && *given > 0 && *given < 1) {
    reading.config.warmup_ratio = *given;
  } else if (is_open && ratio && *ratio > 0 && given.value_or(0) == 0) {
    reading.config.warmup_ratio = *ratio;
  } else {
    const bool is_absent = !keys.has(path) && !given;
    if (is_absent) keys.moved_default(path, "1000", "DeepSpeed's default");
    const std::optional<std::int64_t> steps = keys.whole_or_trainer(path, "warmup_steps", is_open ? 0 : 1);
    schedule.warmup_steps = std::max<std::int64_t>(2, steps.value_or(is_absent ? 1000 : 2));  // DeepSpeed's floor
  }
  const std::string shape = kParams + "warmup_type";
  if (!keys.has(shape)) {
    schedule.warmup_shape = spec::WarmupShape::kLog;
    keys.moved_default(shape, "\"log\"", "DeepSpeed's default");
  } else if (const auto word = keys.one_of(shape, {"linear", "log"})) {
    schedule.warmup_shape = *word == "log" ? spec::WarmupShape::kLog : spec::WarmupShape::kLinear;
  }
}

void read_total(Reading& reading, const SchedulerType& type, ScheduleSpec& schedule) {
  KeyTree& keys = reading.keys;
  const std::string path = kParams + "total_num_steps";
  if (!keys.has(path)) {
    keys.problem("scheduler.params", cat(type.name, " needs total_num_steps; write the number of steps or \"auto\""));
  } else if (!keys.is_auto(path)) {
    if (const auto steps = keys.whole(path, 1)) {
      schedule.total_steps = *steps;
      reading.config.total_steps_follow = false;
      if (*steps < schedule.warmup_steps) {
        keys.note(cat(path, " ", *steps, " is less than warmup_num_steps ", schedule.warmup_steps,
                      ": the rate is at its least once the warm-up is over, as in DeepSpeed"));
      }
    }
  }
}

/// warmup_max_lr, which is the optimizer's rate where it is absent (WarmupLR), or 0.001 (WarmupDecayLR).
void read_warmup_rates(Reading& reading, ScheduleSpec& schedule) {
  KeyTree& keys = reading.keys;
  const std::string least = kParams + "warmup_min_lr", most = kParams + "warmup_max_lr";
  if (!keys.is_auto(least)) schedule.warmup_start = keys.number(least).value_or(0);
  if (keys.has(most)) {
    // "auto" is the Trainer's learning rate, or what the optimizer block says.
    const bool is_filled = keys.is_auto(most) && reading.learning_rate && !keys.trainer_has("learning_rate");
    if (is_filled) return;
    const std::optional<double> rate = keys.number_or_trainer(most, "learning_rate");
    if (rate && reading.learning_rate && *rate != *reading.learning_rate) {
      keys.note(cat(most, " ", *rate, " rules, not optimizer.params.lr ", *reading.learning_rate));
    }
    if (rate) reading.learning_rate = rate;
    reading.rate_is_settled = !rate;
  } else if (schedule.kind == ScheduleKind::kLinear) {
    reading.learning_rate = 0.001;
    keys.moved_default(most, "0.001", "DeepSpeed's default for WarmupDecayLR, whatever optimizer.params.lr says");
  }
}

void read_one_cycle(Reading& reading, ScheduleSpec& schedule) {
  KeyTree& keys = reading.keys;
  spec::OneCycleSpec& cycle = schedule.one_cycle;
  reading.rate_is_settled = true;
  for (const char* name : {"cycle_min_lr", "cycle_max_lr"}) {
    if (!keys.has(kParams + name)) keys.problem("scheduler.params", cat("OneCycle needs ", name, "; write the rate"));
  }
  cycle.min_rate = keys.number(kParams + "cycle_min_lr").value_or(0);
  reading.learning_rate = keys.number(kParams + "cycle_max_lr");
  cycle.first_steps = keys.whole(kParams + "cycle_first_step_size", 1).value_or(cycle.first_steps);
  cycle.second_steps = keys.whole(kParams + "cycle_second_step_size", 0).value_or(cycle.first_steps);
  cycle.first_stairs = keys.whole(kParams + "cycle_first_stair_count", 0).value_or(0);
  cycle.second_stairs = keys.whole(kParams + "cycle_second_stair_count", 0).value_or(cycle.first_stairs);
  cycle.decay_rate = keys.number(kParams + "decay_lr_rate").value_or(0);
  cycle.decay_steps = keys.whole(kParams + "decay_step_size", 0).value_or(0);
  // DeepSpeed cycles the betas of whatever has them; SGD has none.
  const std::string momentum = kParams + "cycle_momentum";
  const bool has_betas = reading.config.training.optimizer.kind != spec::OptimizerKind::kSgd;
  const std::optional<bool> cycles = keys.flag(momentum);
  const bool by_default = !keys.has(momentum) && !keys.was_ignored(momentum);
  if (has_betas && cycles.value_or(by_default)) {
    keys.problem(momentum, cat("is ", keys.has(momentum) ? "true" : "not given, which means true",
                               ": the optimizer's betas would change from step to step, which is not supported; write false (or --ignore ",
                               momentum, ")"));
  }
}

void read_range_test(Reading& reading, spec::RangeTestSpec& test) {
  KeyTree& keys = reading.keys;
  reading.rate_is_settled = true;
  test.min_rate = keys.number(kParams + "lr_range_test_min_lr").value_or(test.min_rate);
  test.step_size = keys.whole(kParams + "lr_range_test_step_size", 1).value_or(test.step_size);
  test.step_rate = keys.number(kParams + "lr_range_test_step_rate").value_or(test.step_rate);
  test.staircase = keys.flag(kParams + "lr_range_test_staircase").value_or(false);
  reading.learning_rate = test.min_rate;
}

void read_scheduler(Reading& reading) {
  KeyTree& keys = reading.keys;
  const std::vector<std::string> known = names_of_schedulers();
  if (!keys.is_block("scheduler")) return;  // already refused
  if (!keys.has("scheduler.type")) {
    keys.problem("scheduler", cat("has no type; write one of ", joined(known)));
    return;
  }
  const std::optional<std::string> name = keys.one_of("scheduler.type", known);
  if (!name) return;
  const SchedulerType& type = *std::find_if(kSchedulers.begin(), kSchedulers.end(), [&](const auto& each) { return each.name == *name; });
  refuse_other_params(keys, type);
  ScheduleSpec& schedule = reading.config.training.schedule;
  schedule.kind = type.kind;
  switch (type.kind) {
    case ScheduleKind::kOneCycle:
      read_one_cycle(reading, schedule);
      return;
    case ScheduleKind::kRangeTest:
      read_range_test(reading, schedule.range_test);
      return;
    case ScheduleKind::kDeepSpeedCosine:
      schedule.final_ratio = keys.number(kParams + "cos_min_ratio", 0, 1).value_or(1e-4);
      break;
    default:
      schedule.delay_steps = 1;  // DeepSpeed steps its schedulers after the optimizer, from -1: the first two steps have the same rate
      read_warmup_rates(reading, schedule);
      break;
  }
  read_warmup(reading, schedule);
  if (type.kind != ScheduleKind::kConstant) read_total(reading, type, schedule);
}

/// What is known of a scheduler's least rate only once the learning rate is.
void settle_least_rate(Reading& reading, bool scheduler) {
  KeyTree& keys = reading.keys;
  ScheduleSpec& schedule = reading.config.training.schedule;
  if (!scheduler || schedule.peak <= 0) return;
  if (schedule.kind == ScheduleKind::kDeepSpeedCosine) {
    schedule.warmup_start = keys.number(kParams + "warmup_min_ratio", 0, 1).value_or(0) * schedule.peak;
  } else if (schedule.kind == ScheduleKind::kLinear) {
    schedule.final_ratio = schedule.warmup_start / schedule.peak;
    if (schedule.final_ratio > 1) {
      keys.problem(kParams + "warmup_min_lr", cat("found ", schedule.warmup_start, ", expected at most warmup_max_lr ", schedule.peak));
    }
  }
}

// ---- the Trainer's lr_scheduler_type

struct TrainerSchedule {
  std::string_view name;
  ScheduleKind kind;
  bool warms_up = true;
};
constexpr auto kTrainerSchedules = std::to_array<TrainerSchedule>({
    {"linear", ScheduleKind::kLinear},
    {"cosine", ScheduleKind::kCosine},
    {"cosine_with_min_lr", ScheduleKind::kCosine},
    {"constant", ScheduleKind::kConstant, false},
    {"constant_with_warmup", ScheduleKind::kConstant},
    {"polynomial", ScheduleKind::kPolynomial},
});

const TrainerSchedule* read_trainer_schedule(KeyTree& keys) {
  const std::optional<std::string> name = keys.trainer_text("lr_scheduler_type");
  if (!name) return nullptr;
  const auto* found =
      std::find_if(kTrainerSchedules.begin(), kTrainerSchedules.end(), [&](const TrainerSchedule& each) { return each.name == *name; });
  if (found != kTrainerSchedules.end()) return found;
  std::vector<std::string> known;
  for (const TrainerSchedule& each : kTrainerSchedules) known.emplace_back(each.name);
  keys.trainer_problem("lr_scheduler_type", cat("\"", *name, "\" is not supported; give one of ", joined(known)));
  return nullptr;
}

/// lr_scheduler_kwargs of cosine_with_min_lr and polynomial; needs the learning rate.
void read_trainer_arguments(Reading& reading) {
  KeyTree& keys = reading.keys;
  ScheduleSpec& schedule = reading.config.training.schedule;
  const std::string name = keys.trainer_text("lr_scheduler_type").value_or("linear");
  std::map<std::string, double> arguments = keys.trainer_numbers("lr_scheduler_kwargs");
  const auto take = [&](const char* key) -> std::optional<double> {
    const auto found = arguments.find(key);
    if (found == arguments.end()) return std::nullopt;
    const double value = found->second;
    arguments.erase(found);
    return value;
  };
  std::optional<double> least;
  if (name == "cosine_with_min_lr") {
    least = take("min_lr");
    const std::optional<double> ratio = take("min_lr_rate");
    if (least.has_value() == ratio.has_value()) {
      keys.trainer_problem("lr_scheduler_kwargs", "cosine_with_min_lr needs one of min_lr and min_lr_rate, as '{\"min_lr\": 1e-5}'");
    }
    if (ratio) schedule.final_ratio = *ratio;
    if (take("num_cycles").value_or(0.5) != 0.5) keys.trainer_problem("lr_scheduler_kwargs", "num_cycles other than 0.5 is not supported");
  } else if (name == "polynomial") {
    least = take("lr_end").value_or(1e-7);  // transformers' default
    schedule.power = take("power").value_or(1.0);
    if (schedule.power <= 0) keys.trainer_problem("lr_scheduler_kwargs", "power must be above 0");
  }
  if (least && schedule.peak > 0) schedule.final_ratio = *least / schedule.peak;
  if (schedule.final_ratio < 0 || schedule.final_ratio > 1) {
    keys.trainer_problem("lr_scheduler_kwargs", cat("the least rate must be from 0 to the learning rate ", schedule.peak));
    schedule.final_ratio = 0;
  }
  for (const auto& [key, value] : arguments) keys.trainer_problem("lr_scheduler_kwargs", cat("\"", key, "\" is no argument of ", name));
}

/// A written schedule and the flag must mean the same.
void check_trainer_schedule(Reading& reading, bool scheduler) {
  KeyTree& keys = reading.keys;
  const TrainerSchedule* given = read_trainer_schedule(keys);
  if (given == nullptr) return;
  const ScheduleKind kind = reading.config.training.schedule.kind;
  const bool same = given->kind == kind || (given->kind == ScheduleKind::kCosine && kind == ScheduleKind::kDeepSpeedCosine);
  const std::string path = scheduler ? "scheduler.type" : "sluice.schedule.kind";
  if (!same && keys.has(path)) keys.mismatch(path, "lr_scheduler_type");
}

// ---- our own, and the Trainer's without a scheduler block

void read_own_kind(Reading& reading, bool written) {
  KeyTree& keys = reading.keys;
  ScheduleSpec& schedule = reading.config.training.schedule;
  if (written) {
    const std::map<std::string, ScheduleKind> kinds = {{"constant", ScheduleKind::kConstant},
                                                       {"linear", ScheduleKind::kLinear},
                                                       {"cosine", ScheduleKind::kCosine},
                                                       {"polynomial", ScheduleKind::kPolynomial}};
    if (const auto kind = keys.one_of("sluice.schedule.kind", {"constant", "linear", "cosine", "polynomial"})) {
      schedule.kind = kinds.at(*kind);
    } else if (!keys.has("sluice.schedule.kind")) {
      keys.problem("sluice.schedule", "has no kind; write one of constant, linear, cosine, polynomial");
    }
    return;
  }
  if (keys.trainer_has("lr_scheduler_type")) {
    const TrainerSchedule* given = read_trainer_schedule(keys);
    if (given == nullptr) return;
    schedule.kind = given->kind;
    const bool warms_up =
        keys.trainer_number("warmup_steps", 0, kMostSteps).value_or(0) > 0 || keys.trainer_number("warmup_ratio", 0, 1).value_or(0) > 0;
    if (!given->warms_up && warms_up) {
      keys.trainer_problem("lr_scheduler_type", cat(given->name, " has no warm-up; give constant_with_warmup"));
    }
  } else if (reading.config.init == Init::kWeights && !reading.has_optimizer_block()) {
    schedule.kind = ScheduleKind::kLinear;
    keys.moved_default("sluice.schedule.kind", "\"linear\"", "as the Trainer does for loaded weights");
  } else {
    schedule.kind = ScheduleKind::kConstant;
    keys.moved_default("sluice.schedule.kind", "\"constant\"", "as DeepSpeed does without a scheduler");
  }
}

void read_own_schedule(Reading& reading, bool written) {
  KeyTree& keys = reading.keys;
  ScheduleSpec& schedule = reading.config.training.schedule;
  read_own_kind(reading, written);
  double steps = keys.number_or_trainer("sluice.schedule.warmup_steps", "warmup_steps", 0, kMostSteps).value_or(0);
  double ratio = keys.number_or_trainer("sluice.schedule.warmup_ratio", "warmup_ratio", 0, 1).value_or(0);
  if (keys.has("sluice.schedule.warmup_steps")) {
    steps = static_cast<double>(keys.whole("sluice.schedule.warmup_steps", 0).value_or(0));
  } else if (steps < 1 && steps > 0) {
    ratio = steps;  // the Trainer's way of giving a part of the run
    steps = 0;
  }
  schedule.warmup_steps = static_cast<std::int64_t>(steps);
  if (schedule.warmup_steps == 0) reading.config.warmup_ratio = ratio;  // a number of steps beats a ratio, as in the Trainer
  if (const auto start = keys.number("sluice.schedule.warmup_start")) schedule.warmup_start = *start;
  if (const auto least = keys.number("sluice.schedule.final_ratio", 0, 1)) schedule.final_ratio = *least;
  if (const auto power = keys.number("sluice.schedule.power")) schedule.power = *power;
  if (const auto total = keys.whole("sluice.schedule.total_steps", 1)) {
    schedule.total_steps = *total;
    reading.config.total_steps_follow = false;
  }
}

void settle_learning_rate(Reading& reading) {
  KeyTree& keys = reading.keys;
  const bool asked = keys.has("optimizer.params.lr") || keys.trainer_has("learning_rate") || reading.rate_is_settled;
  if (!reading.learning_rate && !asked) {
    if (reading.config.init == Init::kWeights) {
      reading.learning_rate = kLoadedLearningRate;
      keys.moved_default("optimizer.params.lr", "5e-05", "as the Trainer does for loaded weights");
    } else {
      reading.result.missing_for_training.emplace_back(
          "the learning rate is not given, and training from scratch has none by default; give --learning-rate X or write "
          "optimizer.params.lr");
    }
  }
  reading.config.training.schedule.peak = reading.learning_rate.value_or(0);
}

}  // namespace

void read_schedule(Reading& reading) {
  KeyTree& keys = reading.keys;
  const bool scheduler = keys.has("scheduler"), ours = keys.has("sluice.schedule");
  if (scheduler && ours) {
    keys.problem("sluice.schedule", "stands beside scheduler; keep one of them");
    return;
  }
  // OneCycle and LRRangeTest have rates of their own; the optimizer's is then of no use, so it may be missing or "auto".
  const bool has_own_rates = keys.is_one_of("scheduler.type", "\"OneCycle\"|\"LRRangeTest\"");
  const bool is_loaded = reading.config.init == Init::kWeights;
  if (!has_own_rates && is_loaded && keys.is_auto("optimizer.params.lr") && !keys.trainer_has("learning_rate")) {
    reading.learning_rate = kLoadedLearningRate;
    keys.moved_default("optimizer.params.lr", "5e-05", "as the Trainer does for loaded weights", "\"auto\"");
  } else if (!has_own_rates) {
    reading.learning_rate = keys.number_or_trainer("optimizer.params.lr", "learning_rate");
  }
  if (scheduler) {
    read_scheduler(reading);
  } else {
    read_own_schedule(reading, ours);
  }
  settle_learning_rate(reading);
  settle_least_rate(reading, scheduler);
  if (scheduler || ours) {
    check_trainer_schedule(reading, scheduler);
    if (keys.trainer_has("lr_scheduler_kwargs")) {
      keys.trainer_problem("lr_scheduler_kwargs", "stands beside a written schedule; write its numbers there");
    }
  } else {
    read_trainer_arguments(reading);
  }
}

}  // namespace sluice::app
