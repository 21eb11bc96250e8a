#pragma once
#include <cstdint>

#include "spec/training_spec.hpp"

namespace sluice::optim {

/// Learning rate of applied step s (0-based), t = max(0, s - delay_steps), W = warmup_steps, N = total_steps, r = final_ratio, as
/// transformers' schedules:
///   t < W:      warmup_start + (peak - warmup_start) * t / W
///   constant:   peak
///   linear:     peak * max(r, 1 - (1 - r) * (t - W) / max(1, N - W))
///   cosine:     peak * (r + (1 - r) * 0.5 * (1 + cos(pi * min(1, (t - W) / max(1, N - W)))))
double learning_rate(const spec::ScheduleSpec& schedule, std::int64_t step);

}  // namespace sluice::optim
