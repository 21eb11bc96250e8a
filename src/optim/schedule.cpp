#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.hpp"

namespace sluice::optim {

double learning_rate(const spec::ScheduleSpec& schedule, std::int64_t step) {
  SLUICE_CHECK(step >= 0, "step ", step);
  const std::int64_t t = std::max<std::int64_t>(0, step - schedule.delay_steps);
  const double peak = schedule.peak, r = schedule.final_ratio;
  const std::int64_t warmup = schedule.warmup_steps;
  if (t < warmup) {
    return schedule.warmup_start + (peak - schedule.warmup_start) * static_cast<double>(t) / static_cast<double>(warmup);
  }
  const double span = static_cast<double>(std::max<std::int64_t>(1, schedule.total_steps - warmup));
  const double progress = static_cast<double>(t - warmup) / span;
  switch (schedule.kind) {
    case spec::ScheduleKind::kConstant:
      return peak;
    case spec::ScheduleKind::kLinear:
      return peak * std::max(r, 1 - (1 - r) * progress);
    case spec::ScheduleKind::kCosine:
      return peak * (r + (1 - r) * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, progress))));
  }
  SLUICE_CHECK(false, "schedule kind ", static_cast<int>(schedule.kind));
}

}  // namespace sluice::optim
