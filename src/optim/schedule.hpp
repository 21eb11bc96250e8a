#pragma once
#include <cstdint>

#include "spec/training_spec.hpp"

namespace sluice::optim {

/// Learning rate of applied step s (0-based); a skipped step is no applied one. t = max(0, s - delay_steps), W = warmup_steps,
/// N = total_steps, r = final_ratio, D = max(1, N - W).
///
/// All but the last three kinds warm up while t < W: warmup_start + (peak - warmup_start) * g with g = t / W, or ln(t + 1) / ln(W)
/// for a logarithmic one; then
///   constant:    peak
///   linear:      peak * (r + (1 - r) * max(0, (N - t) / D))
///   cosine:      peak * (r + (1 - r) * 0.5 * (1 + cos(pi * min(1, (t - W) / D))))
///   polynomial:  peak * (r + (1 - r) * (1 - (t - W) / D)^power), and r * peak from N on
///
/// DeepSpeed's other schedulers have a count of their own:
///   deepspeed_cosine:  0 at s = 0; the warm-up with t = s - 1 while t < W; then
///                      peak * (r + (1 - r) * 0.5 * (1 + cos(pi * min(1, (s - W) / D)))): a step ahead of its warm-up
///   one_cycle:         min_rate + (peak - min_rate) * x while s < first_steps + second_steps, x rising from 0 to 1 and falling
///                      again, by stairs rounded down; then min_rate / (1 + decay_rate * (s - first_steps - second_steps) / decay_steps)
///   range_test:        min_rate * (1 + step_rate * s / step_size), the quotient rounded down for a staircase
///
/// Source: transformers 5.24, optimization.py; DeepSpeed 0.19.8, runtime/lr_schedules.py, whose engine sets the rate of step 0 in
/// the scheduler's constructor and that of step s > 0 by its s-th step(), where the scheduler's counter is s - 1.
double learning_rate(const spec::ScheduleSpec& schedule, std::int64_t step);

}  // namespace sluice::optim
