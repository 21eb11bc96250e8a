#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace sluice::optim {
namespace {

using spec::ScheduleKind;
using spec::ScheduleSpec;

TEST(Schedule, ConstantWithoutWarmupIsThePeakFromTheFirstStep) {
  const ScheduleSpec schedule{.kind = ScheduleKind::kConstant, .peak = 0.25};
  EXPECT_EQ(learning_rate(schedule, 0), 0.25);
  EXPECT_EQ(learning_rate(schedule, 1000), 0.25);
}

TEST(Schedule, WarmupRisesLinearlyFromItsStart) {
  const ScheduleSpec schedule{.kind = ScheduleKind::kConstant, .peak = 1.0, .warmup_start = 0.2, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 1.0);
}

TEST(Schedule, LinearReachesItsFloorAtTheEndAndStaysThere) {
  const ScheduleSpec schedule{.kind = ScheduleKind::kLinear, .peak = 2.0, .warmup_steps = 2, .total_steps = 12, .final_ratio = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 7), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 12), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 50), 0.2);
}

TEST(Schedule, CosineIsHalfWayInTheMiddleAndStaysAtItsFloor) {
  const ScheduleSpec schedule{.kind = ScheduleKind::kCosine, .peak = 4.0, .warmup_steps = 10, .total_steps = 110, .final_ratio = 0.25};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 4.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 35), 4.0 * (0.25 + 0.75 * 0.5 * (1 + std::sqrt(0.5))));
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 4.0 * 0.625);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 111), 1.0);  // never up again
}

TEST(Schedule, AWarmupAsLongAsTheRunDividesByNothing) {
  ScheduleSpec schedule{.kind = ScheduleKind::kLinear, .peak = 1.0, .warmup_steps = 5, .total_steps = 5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 0.0);  // what is left of the run, over 1
  schedule.kind = ScheduleKind::kCosine;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 1.0);
  EXPECT_NEAR(learning_rate(schedule, 6), 0.0, 1e-15);
}

TEST(Schedule, ALogarithmicWarmupReachesThePeakAStepEarlier) {
  ScheduleSpec schedule{.peak = 1.0, .warmup_start = 0.5, .warmup_steps = 9, .warmup_shape = spec::WarmupShape::kLog};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 0.75);  // ln 3 is half of ln 9
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 8), 1.0);
  schedule.warmup_steps = 1;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
}

TEST(Schedule, APolynomialEndsAtItsFloorAndStaysThere) {
  const ScheduleSpec schedule{
      .kind = ScheduleKind::kPolynomial, .peak = 2.0, .warmup_steps = 2, .total_steps = 12, .final_ratio = 0.1, .power = 2.0};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 7), 2.0 * (0.1 + 0.9 * 0.25));
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 12), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 13), 0.2);
}

TEST(Schedule, ADelayRepeatsTheFirstRate) {
  const ScheduleSpec schedule{
      .kind = ScheduleKind::kLinear, .peak = 1.0, .warmup_start = 0.25, .warmup_steps = 3, .total_steps = 5, .delay_steps = 1};
  const std::vector<double> expected = {0.25, 0.25, 0.5, 0.75, 1.0, 0.5, 0.0, 0.0};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(learning_rate(schedule, static_cast<std::int64_t>(step)), expected[step], 1e-15) << step;
  }
}

TEST(Schedule, NegativeStepIsADefect) {
  EXPECT_THROW(learning_rate({}, -1), LogicError);
}

}  // namespace
}  // namespace sluice::optim
