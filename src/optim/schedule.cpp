#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.hpp"

namespace sluice::optim {
namespace {

/// From 0 at t = 0 to 1 at t = steps.
double warmup_part(const spec::ScheduleSpec& schedule, std::int64_t t) {
  const auto steps = static_cast<double>(schedule.warmup_steps);
  if (schedule.warmup_shape == spec::WarmupShape::kLinear) return static_cast<double>(t) / steps;
  // A logarithmic one reaches 1 a step earlier; of a single step there is nothing to divide.
  return schedule.warmup_steps > 1 ? std::log(static_cast<double>(t) + 1) / std::log(steps) : 0;
}

double warmup_rate(const spec::ScheduleSpec& schedule, std::int64_t t) {
  return schedule.warmup_start + (schedule.peak - schedule.warmup_start) * warmup_part(schedule, t);
}

/// peak where `part` is 1, final_ratio * peak where it is 0.
double between(const spec::ScheduleSpec& schedule, double part) {
  return schedule.peak * (schedule.final_ratio + (1 - schedule.final_ratio) * part);
}

double half_cosine(double progress) {
  return 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, progress)));
}

/// `steps` over what follows the warm-up.
double of_decay(const spec::ScheduleSpec& schedule, std::int64_t steps) {
  return static_cast<double>(steps) / static_cast<double>(std::max<std::int64_t>(1, schedule.total_steps - schedule.warmup_steps));
}

double one_cycle_rate(const spec::ScheduleSpec& schedule, std::int64_t step) {
  const spec::OneCycleSpec& cycle = schedule.one_cycle;
  const std::int64_t total = cycle.first_steps + cycle.second_steps;
  if (step >= total) {
    if (cycle.decay_steps == 0) return cycle.min_rate;
    return cycle.min_rate / (1 + cycle.decay_rate * static_cast<double>(step - total) / static_cast<double>(cycle.decay_steps));
  }
  const bool rising = step <= cycle.first_steps;
  const std::int64_t steps = rising ? step : total - step, of = rising ? cycle.first_steps : cycle.second_steps;
  const std::int64_t stairs = rising ? cycle.first_stairs : cycle.second_stairs;
  double part = static_cast<double>(steps) / static_cast<double>(of);
  if (stairs > 0) {
    // As DeepSpeed's floats: steps * stairs / of, rounded down.
    part = std::floor(static_cast<double>(steps) * static_cast<double>(stairs) / static_cast<double>(of)) / static_cast<double>(stairs);
  }
  return cycle.min_rate + (schedule.peak - cycle.min_rate) * part;
}

double range_test_rate(const spec::RangeTestSpec& test, std::int64_t step) {
  double interval = static_cast<double>(step) / static_cast<double>(test.step_size);
  if (test.staircase) interval = std::floor(interval);
  return test.min_rate * (1 + test.step_rate * interval);
}

}  // namespace

double learning_rate(const spec::ScheduleSpec& schedule, std::int64_t step) {
  SLUICE_CHECK(step >= 0, "step ", step);
  const std::int64_t t = std::max<std::int64_t>(0, step - schedule.delay_steps), warmup = schedule.warmup_steps;
  switch (schedule.kind) {
    case spec::ScheduleKind::kConstant:
      return t < warmup ? warmup_rate(schedule, t) : schedule.peak;
    case spec::ScheduleKind::kLinear:
      return t < warmup ? warmup_rate(schedule, t) : between(schedule, std::max(0.0, of_decay(schedule, schedule.total_steps - t)));
    case spec::ScheduleKind::kCosine:
      return t < warmup ? warmup_rate(schedule, t) : between(schedule, half_cosine(of_decay(schedule, t - warmup)));
    case spec::ScheduleKind::kPolynomial:
      if (t < warmup) return warmup_rate(schedule, t);
      return between(schedule, std::pow(std::max(0.0, 1 - of_decay(schedule, t - warmup)), schedule.power));
    case spec::ScheduleKind::kDeepSpeedCosine:
      if (step == 0) return 0;
      if (step - 1 < warmup) return warmup_rate(schedule, step - 1);
      return between(schedule, half_cosine(of_decay(schedule, step - warmup)));
    case spec::ScheduleKind::kOneCycle:
      return one_cycle_rate(schedule, step);
    case spec::ScheduleKind::kRangeTest:
      return range_test_rate(schedule.range_test, step);
  }
  SLUICE_CHECK(false, "schedule kind ", static_cast<int>(schedule.kind));
}

}  // namespace sluice::optim
