#include "optim/loss_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace sluice::optim {
namespace {

/// A step, and where the scaler stands after it.
struct Row {
  bool overflow;
  double scale;
  int hysteresis;
};

void expect_rows(LossScaler& scaler, const std::vector<Row>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    scaler.update(rows[i].overflow);
    EXPECT_EQ(scaler.scale(), rows[i].scale) << "step " << i + 1;
    EXPECT_EQ(scaler.state().hysteresis, rows[i].hysteresis) << "step " << i + 1;
  }
}

// The tables are what DynamicLossScaler.update_scale of DeepSpeed 0.19.8 gives for the same steps.

TEST(LossScaler, FollowsDeepSpeedWithHysteresis) {
  LossScaler scaler({.initial_power = 4, .window = 3, .hysteresis = 2});
  EXPECT_EQ(scaler.scale(), 16);
  expect_rows(scaler, {{true, 16, 1},  // the first overflow costs hysteresis
                       {true, 8, 1},   // the second halves the scale, and so does every one from now on
                       {true, 4, 1},
                       {false, 4, 1},
                       {false, 4, 1},
                       {false, 4, 1},
                       {false, 8, 2},  // a clean step after three: doubled, hysteresis restored
                       {false, 8, 2},
                       {false, 8, 2},
                       {false, 16, 2},  // and after three more
                       {true, 16, 1},
                       {false, 16, 1},
                       {false, 16, 1},
                       {true, 8, 1},  // clean steps between don't restore it before a window is full
                       {false, 8, 1},
                       {false, 8, 1},
                       {false, 8, 1},
                       {false, 16, 2}});
}

TEST(LossScaler, FollowsDeepSpeedWithConsecutiveHysteresis) {
  LossScaler scaler({.initial_power = 4, .window = 2, .hysteresis = 3, .consecutive_hysteresis = true});
  expect_rows(scaler, {{true, 16, 2},
                       {true, 16, 1},
                       {false, 16, 3},  // any clean step restores it
                       {true, 16, 2},
                       {true, 16, 1},
                       {true, 8, 1},
                       {true, 4, 1},
                       {false, 4, 3},
                       {false, 4, 3},
                       {false, 8, 3},
                       {false, 8, 3},
                       {false, 16, 3}});
}

TEST(LossScaler, FollowsDeepSpeedWithoutHysteresis) {
  LossScaler scaler({.initial_power = 2, .window = 1, .hysteresis = 1, .min_scale = 1.5});
  expect_rows(scaler, {{false, 4, 1},
                       {false, 8, 1},
                       {false, 16, 1},
                       {true, 8, 1},
                       {true, 4, 1},
                       {true, 2, 1},
                       {true, 1.5, 1},  // not below the minimum
                       {false, 1.5, 1},
                       {false, 3, 1}});
}

TEST(LossScaler, SaysWhatAnOverflowLedTo) {
  LossScaler scaler({.initial_power = 1, .hysteresis = 2, .min_scale = 1});
  EXPECT_EQ(scaler.update(false), OverflowOutcome::kNone);
  EXPECT_EQ(scaler.update(true), OverflowOutcome::kHysteresis);
  EXPECT_EQ(scaler.update(true), OverflowOutcome::kHalved);
  const spec::LossScaleState before = scaler.state();
  EXPECT_EQ(scaler.update(true), OverflowOutcome::kAtMinimum);
  EXPECT_EQ(scaler.state(), before);
}

TEST(LossScaler, DefaultsAreDeepSpeeds) {
  LossScaler scaler(spec::LossScaleSpec{});
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1000; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScaler, AFixedScaleStays) {
  LossScaler scaler({.fixed = 128, .window = 1});
  EXPECT_EQ(scaler.update(true), OverflowOutcome::kFixed);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(scaler.update(false), OverflowOutcome::kNone);
  EXPECT_EQ(scaler.scale(), 128);
}

TEST(LossScaler, GoesOnWhereItWas) {
  const spec::LossScaleSpec spec{.initial_power = 6, .window = 4};
  const std::vector<bool> steps{false, true, false, false, true, true, false, false, false, false, false, true, false};
  for (std::size_t cut = 0; cut <= steps.size(); ++cut) {
    LossScaler first(spec), second(spec), straight(spec);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      straight.update(steps[i]);
      if (i < cut) first.update(steps[i]);
      if (i == cut) second.restore(first.state());
      if (i >= cut) second.update(steps[i]);
    }
    EXPECT_EQ((cut < steps.size() ? second : first).state(), straight.state()) << cut;
  }
}

TEST(LossScaler, RefusesWhatNoScaleCanBe) {
  EXPECT_THROW(LossScaler({.fixed = -1}), LogicError);
  EXPECT_THROW(LossScaler({.fixed = INFINITY}), LogicError);
  EXPECT_THROW(LossScaler({.window = 0}), LogicError);
  EXPECT_THROW(LossScaler({.min_scale = 0}), LogicError);
  LossScaler scaler(spec::LossScaleSpec{});
  EXPECT_THROW(scaler.restore({.scale = 0}), LogicError);
}

}  // namespace
}  // namespace sluice::optim
