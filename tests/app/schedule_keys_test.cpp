// Schedules as written, held against the formulas of DeepSpeed's own schedulers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app/configuration.hpp"
#include "base/text.hpp"
#include "optim/schedule.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using spec::ScheduleKind;
using spec::ScheduleSpec;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

Examination examined(const std::string& blocks, const std::map<std::string, std::string>& trainer = {}) {
  const TempDir directory;
  const std::string text = R"({"train_batch_size": 1, )" + blocks + "}";
  return examine({.file = directory.write("demo.json", text), .settings = {}, .trainer = trainer}, 1);
}

std::string scheduler(const std::string& type, const std::string& params) {
  return R"("optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}";
}

/// DeepSpeed sets the rate of step 0 in the scheduler's constructor and that of step k > 0 by its k-th step(), where its own counter is k
/// - 1.
double deepspeed_warmup_rate(std::int64_t step, double min_lr, double max_lr, std::int64_t warmup, std::int64_t total) {
  if (step == 0) return min_lr;
  const auto t = static_cast<double>(step - 1), w = static_cast<double>(warmup), n = static_cast<double>(total);
  double gamma = 1;
  if (t < w) {
    gamma = t / w;
  } else if (total > 0) {
    gamma = std::max(0.0, (n - t) / std::max(1.0, n - w));
  }
  return min_lr + (max_lr - min_lr) * gamma;
}

TEST(ScheduleKeys, WarmupLrIsDeepSpeedsStepByStep) {
  const Examination e =
      examined(scheduler("WarmupLR", R"("warmup_min_lr": 0.1, "warmup_max_lr": 0.7, "warmup_num_steps": 5, "warmup_type": "linear")"));
  ASSERT_THAT(e.problems, IsEmpty());
  for (std::int64_t step = 0; step < 12; ++step) {
    EXPECT_DOUBLE_EQ(optim::learning_rate(e.configuration.training.schedule, step), deepspeed_warmup_rate(step, 0.1, 0.7, 5, 0)) << step;
  }
  EXPECT_THAT(e.configuration.notes, Contains("scheduler.params.warmup_max_lr 0.7 rules, not optimizer.params.lr 0.5"));
}

TEST(ScheduleKeys, WarmupDecayLrIsDeepSpeedsStepByStep) {
  const Examination e = examined(
      scheduler("WarmupDecayLR",
                R"("warmup_min_lr": 0.1, "warmup_max_lr": 0.7, "warmup_num_steps": 4, "total_num_steps": 11, "warmup_type": "linear")"));
  ASSERT_THAT(e.problems, IsEmpty());
  for (std::int64_t step = 0; step < 15; ++step) {
    EXPECT_NEAR(optim::learning_rate(e.configuration.training.schedule, step), deepspeed_warmup_rate(step, 0.1, 0.7, 4, 11), 1e-15) << step;
  }
}

TEST(ScheduleKeys, DeepSpeedsDefaultsAreTaken) {
  Examination e = examined(scheduler("WarmupLR", R"("warmup_type": "linear")"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kConstant, 0.5, 0, 1000, 0, 0, 1}));
  EXPECT_THAT(e.configuration.notes, Contains(HasSubstr("scheduler.params.warmup_num_steps is not given: 1000")));
  e = examined(scheduler("WarmupLR", R"("warmup_type": "linear", "warmup_num_steps": 1)"));
  EXPECT_EQ(e.configuration.training.schedule.warmup_steps, 2);  // max(2, ...) in WarmupLR.__init__
  e = examined(scheduler("WarmupDecayLR", R"("warmup_type": "linear", "warmup_num_steps": 2, "total_num_steps": 9)"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kLinear, 0.001, 0, 2, 9, 0, 1}));
  EXPECT_THAT(e.configuration.notes, Contains(HasSubstr("warmup_max_lr is not given: 0.001")));
}

TEST(ScheduleKeys, WhatCannotBeExpressedExactlyIsRefused) {
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_num_steps": 5)")).problems,
              ElementsAre(HasSubstr("is not given, which means \"log\" to DeepSpeed")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_type": "log")")).problems,
              ElementsAre(HasSubstr("warmup_type: \"log\" is not supported")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_min_lr": 0.5)")).problems, IsEmpty());  // flat: there is nothing to warm up
  EXPECT_THAT(examined(scheduler("WarmupCosineLR", R"("total_num_steps": 9, "cos_min_ratio": 0.1)")).problems,
              ElementsAre(HasSubstr("WarmupCosineLR is not supported")));
  EXPECT_THAT(examined(scheduler("OneCycle", R"("cycle_min_lr": 0, "cycle_max_lr": 1)")).problems,
              ElementsAre(HasSubstr("\"OneCycle\" is not supported")));
  EXPECT_THAT(examined(R"("scheduler": {"params": {}})").problems, ElementsAre(HasSubstr("scheduler: has no type")));
  EXPECT_THAT(examined(scheduler("WarmupDecayLR", R"("warmup_type": "linear")")).problems, ElementsAre(HasSubstr("needs total_num_steps")));
  EXPECT_THAT(examined(scheduler("WarmupDecayLR", R"("warmup_type": "linear", "warmup_num_steps": 9, "total_num_steps": 9)")).problems,
              ElementsAre(HasSubstr("expected more than warmup_num_steps 9")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_type": "linear", "total_num_steps": 9)")).problems,
              ElementsAre(HasSubstr("total_num_steps: is no parameter of WarmupLR")));
}

TEST(ScheduleKeys, AnIgnoredSchedulerLeavesAConstantRate) {
  const TempDir directory;
  ConfigurationRequest request{.file = directory.write("d.json", "{" + scheduler("WarmupCosineLR", "") + "}")};
  request.settings = {{"sluice.ignore", "scheduler", "--ignore", Setting::Kind::kAppend}};
  const Examination e = examine(request, 1);
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{.kind = ScheduleKind::kConstant, .peak = 0.5}));
}

TEST(ScheduleKeys, SluicesOwnSchedule) {
  const std::string optimizer = R"("optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, )";
  Examination e = examined(
      optimizer + R"("sluice": {"steps": 40, "schedule": {"kind": "cosine", "warmup_steps": 4, "warmup_start": 0.1, "final_ratio": 0.2}})");
  ASSERT_THAT(e.problems, IsEmpty());
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kCosine, 0.5, 0.1, 4, 40, 0.2, 0}));
  e = examined(optimizer + R"("sluice": {"steps": 40, "schedule": {"kind": "linear", "warmup_ratio": 0.06, "total_steps": 50}})");
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kLinear, 0.5, 0, 3, 50, 0, 0}));  // ceil(2.4)
  EXPECT_THAT(examined(optimizer + R"("sluice": {"schedule": {"kind": "cosin"}})").problems,
              ElementsAre(HasSubstr("nearest is \"cosine\"")));
  EXPECT_THAT(examined(optimizer + R"("sluice": {"schedule": {"warmup_steps": 1}})").problems, ElementsAre(HasSubstr("has no kind")));
  EXPECT_THAT(examined(optimizer + R"("sluice": {"schedule": {"kind": "linear", "final_ratio": 2}})").problems,
              ElementsAre(HasSubstr("expected a number from 0 to 1")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_type": "linear")") + R"(, "sluice": {"schedule": {"kind": "linear"}})").problems,
              ElementsAre(HasSubstr("stands beside scheduler")));
}

TEST(ScheduleKeys, TheTotalFollowsARunOfEpochsOnceItIsKnown) {
  Examination e = examined(R"("sluice": {"epochs": 2, "schedule": {"kind": "linear", "warmup_ratio": 0.1}})", {{"learning_rate", "1"}});
  EXPECT_EQ(e.configuration.training.schedule.total_steps, 0);
  settle_steps(e.configuration, 101);
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kLinear, 1, 0, 11, 101, 0, 0}));
}

TEST(ScheduleKeys, TheTrainersFlags) {
  const std::map<std::string, std::string> base = {{"learning_rate", "1"}, {"warmup_steps", "3"}};
  const auto with = [&](const std::string& type) {
    std::map<std::string, std::string> all = base;
    all["lr_scheduler_type"] = type;
    return all;
  };
  Examination e = examined(R"("sluice": {"steps": 10})", with("cosine"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kCosine, 1, 0, 3, 10, 0, 0}));
  e = examined(R"("sluice": {"steps": 10})", with("linear"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kLinear, 1, 0, 3, 10, 0, 0}));
  e = examined(R"("sluice": {"steps": 10})", with("constant_with_warmup"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kConstant, 1, 0, 3, 0, 0, 0}));
  EXPECT_THAT(examined(R"("sluice": {"steps": 10})", with("constant")).problems, ElementsAre(HasSubstr("give constant_with_warmup")));
  EXPECT_THAT(examined(R"("sluice": {"steps": 10})", with("polynomial")).problems,
              ElementsAre(HasSubstr("\"polynomial\" is not supported")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_type": "linear", "warmup_num_steps": 3)"),
                       {{"lr_scheduler_type", "cosine"}, {"warmup_steps", "4"}})
                  .problems,
              ElementsAre(HasSubstr(
                  "warmup_num_steps is 3 and --warmup_steps says 4; scheduler.type is \"WarmupLR\" and --lr_scheduler_type says cosine")));
}

}  // namespace
}  // namespace sluice::app
