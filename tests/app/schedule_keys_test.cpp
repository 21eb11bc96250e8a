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

TEST(ScheduleKeys, DeepSpeedsDefaultsAreTaken) {
  Examination e = examined(scheduler("WarmupLR", ""));
  EXPECT_EQ(e.configuration.training.schedule.warmup_shape, spec::WarmupShape::kLog);
  EXPECT_THAT(e.configuration.notes, Contains("scheduler.params.warmup_type is not given: \"log\", DeepSpeed's default"));
  e = examined(scheduler("WarmupLR", R"("warmup_type": "linear")"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kConstant, 0.5, 0, 1000, 0, 0, 1}));
  EXPECT_THAT(e.configuration.notes, Contains(HasSubstr("scheduler.params.warmup_num_steps is not given: 1000")));
  e = examined(scheduler("WarmupLR", R"("warmup_type": "linear", "warmup_num_steps": 1)"));
  EXPECT_EQ(e.configuration.training.schedule.warmup_steps, 2);  // max(2, ...) in WarmupLR.__init__
  e = examined(scheduler("WarmupDecayLR", R"("warmup_type": "linear", "warmup_num_steps": 2, "total_num_steps": 9)"));
  EXPECT_EQ(e.configuration.training.schedule, (ScheduleSpec{ScheduleKind::kLinear, 0.001, 0, 2, 9, 0, 1}));
  EXPECT_THAT(e.configuration.notes, Contains(HasSubstr("warmup_max_lr is not given: 0.001")));
}

TEST(ScheduleKeys, WhatIsWrongIsRefused) {
  EXPECT_THAT(examined(scheduler("StepLR", "")).problems,
              ElementsAre(HasSubstr("found \"StepLR\", expected one of WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest")));
  EXPECT_THAT(examined(R"("scheduler": {"params": {}})").problems, ElementsAre(HasSubstr("scheduler: has no type")));
  EXPECT_THAT(examined(scheduler("WarmupDecayLR", "")).problems, ElementsAre(HasSubstr("needs total_num_steps")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("total_num_steps": 9)")).problems,
              ElementsAre(HasSubstr("total_num_steps: is no parameter of WarmupLR")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_type": "cubic")")).problems, ElementsAre(HasSubstr("expected one of linear, log")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_num_steps": 0)")).problems, ElementsAre(HasSubstr("of at least 1")));
  EXPECT_THAT(examined(scheduler("OneCycle", R"("cycle_min_lr": 0.1, "cycle_momentum": false)")).problems,
              ElementsAre(HasSubstr("OneCycle needs cycle_max_lr")));
  EXPECT_THAT(examined(scheduler("LRRangeTest", R"("lr_range_test_step_size": 0)")).problems, ElementsAre(HasSubstr("of at least 1")));
}

TEST(ScheduleKeys, OneCycleMustLeaveTheBetasAlone) {
  const std::string params = R"("cycle_min_lr": 0.1, "cycle_max_lr": 1)";
  EXPECT_THAT(examined(scheduler("OneCycle", params)).problems,
              ElementsAre(HasSubstr("cycle_momentum: is not given, which means true: the optimizer's betas would change")));
  const TempDir directory;
  ConfigurationRequest request{.file =
                                   directory.write("d.json", "{" + scheduler("OneCycle", params + R"(, "cycle_momentum": true)") + "}")};
  EXPECT_THAT(examine(request, 1).problems, ElementsAre(HasSubstr("cycle_momentum: is true")));
  request.settings = {{"sluice.ignore", "scheduler.params.cycle_momentum", "--ignore", Setting::Kind::kAppend}};
  EXPECT_THAT(examine(request, 1).problems, IsEmpty());
}

TEST(ScheduleKeys, ATotalShorterThanTheWarmupIsTold) {
  const Examination e = examined(scheduler("WarmupDecayLR", R"("warmup_type": "linear", "warmup_num_steps": 9, "total_num_steps": 5)"));
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_THAT(e.configuration.notes, Contains(HasSubstr("total_num_steps 5 is less than warmup_num_steps 9")));
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
  EXPECT_THAT(examined(R"("sluice": {"steps": 10})", with("inverse_sqrt")).problems,
              ElementsAre(HasSubstr("\"inverse_sqrt\" is not supported")));
  EXPECT_THAT(examined(R"("sluice": {"steps": 10})", with("cosine_with_min_lr")).problems,
              ElementsAre(HasSubstr("needs one of min_lr and min_lr_rate")));
  EXPECT_THAT(examined(scheduler("WarmupLR", R"("warmup_type": "linear", "warmup_num_steps": 3)"),
                       {{"lr_scheduler_type", "cosine"}, {"warmup_steps", "4"}})
                  .problems,
              ElementsAre(HasSubstr(
                  "warmup_num_steps is 3 and --warmup_steps says 4; scheduler.type is \"WarmupLR\" and --lr_scheduler_type says cosine")));
}

}  // namespace
}  // namespace sluice::app
