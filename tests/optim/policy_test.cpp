#include "optim/policy.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::optim {
namespace {

using ::testing::ElementsAre;

model::Model model_of(std::vector<model::ParamSpec> params) {
  model::Model model;
  model.spec.name = "small";
  model.params = std::move(params);
  return model;
}

model::Model two_matrices_and_a_vector() {
  return model_of(
      {{.name = "a", .shape = {2, 3}, .matrix = true}, {.name = "b", .shape = {3}}, {.name = "c", .shape = {3, 2}, .matrix = true}});
}

TEST(Policy, MatricesDecayAndTheRestDoesNot) {
  const Grouping grouping =
      group_parameters(two_matrices_and_a_vector(), {.optimizer = {.weight_decay = 0.1, .decay_on = spec::DecayOn::kMatrices}});
  ASSERT_EQ(grouping.groups.size(), 2u);
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.1);
  EXPECT_EQ(grouping.groups[1].weight_decay, 0.0);
  EXPECT_THAT(grouping.group_of, ElementsAre(0, 1, 0));
}

TEST(Policy, AllDecayInOneGroup) {
  const Grouping grouping =
      group_parameters(two_matrices_and_a_vector(), {.optimizer = {.weight_decay = 0.1, .decay_on = spec::DecayOn::kAll}});
  ASSERT_EQ(grouping.groups.size(), 1u);
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.1);
  EXPECT_THAT(grouping.group_of, ElementsAre(0, 0, 0));
}

TEST(Policy, WithoutDecayThereIsOneGroupWhateverDecayIsOn) {
  for (const spec::DecayOn on : {spec::DecayOn::kAll, spec::DecayOn::kMatrices}) {
    const Grouping grouping = group_parameters(two_matrices_and_a_vector(), {.optimizer = {.weight_decay = 0.0, .decay_on = on}});
    ASSERT_EQ(grouping.groups.size(), 1u);
    EXPECT_EQ(grouping.groups[0].weight_decay, 0.0);
    EXPECT_THAT(grouping.group_of, ElementsAre(0, 0, 0));
  }
}

TEST(Policy, AbsentGroupsAreLeftOut) {
  const Grouping grouping =
      group_parameters(model_of({{.name = "b", .shape = {3}}}), {.optimizer = {.weight_decay = 0.1, .decay_on = spec::DecayOn::kMatrices}});
  ASSERT_EQ(grouping.groups.size(), 1u);
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.0);
  EXPECT_THAT(grouping.group_of, ElementsAre(0));
}

model::Model layered() {
  std::vector<model::ParamSpec> params{{.name = "wte.weight", .shape = {9, 2}, .matrix = true}};
  for (const char* layer : {"h.0.", "h.1.", "h.10."}) {
    params.push_back({.name = std::string(layer) + "attn.c_attn.weight", .shape = {2, 6}, .matrix = true});
    params.push_back({.name = std::string(layer) + "attn.c_attn.bias", .shape = {6}});
  }
  return model_of(std::move(params));
}

std::vector<bool> trained(const std::vector<std::string>& expressions) {
  const model::Model model = layered();
  const Grouping grouping = group_parameters(model, {.optimizer = {.weight_decay = 0.1}, .trainable = expressions});
  std::vector<bool> list;
  for (int p = 0; p < static_cast<int>(model.params.size()); ++p) list.push_back(grouping.trains(p));
  return list;
}

TEST(Trainable, IsWhatAnExpressionFindsAnywhereInAName) {
  EXPECT_THAT(trained({}), ElementsAre(true, true, true, true, true, true, true));
  EXPECT_THAT(trained({"bias$"}), ElementsAre(false, false, true, false, true, false, true));
  EXPECT_THAT(trained({"^h\\.1\\."}), ElementsAre(false, false, false, true, true, false, false));
  EXPECT_THAT(trained({"h\\.1"}), ElementsAre(false, false, false, true, true, true, true));
  EXPECT_THAT(trained({"wte", "h\\.10\\..*weight"}), ElementsAre(true, false, false, false, false, true, false));
  // transformers' own name, with its prefix.
  EXPECT_THAT(trained({"^transformer\\.h\\.0\\."}), ElementsAre(false, true, true, false, false, false, false));
}

TEST(Trainable, FrozenParametersFormAGroupOfTheirOwnThatNeverDecays) {
  const Grouping grouping =
      group_parameters(layered(), {.optimizer = {.weight_decay = 0.1, .decay_on = spec::DecayOn::kMatrices}, .trainable = {"h\\.1\\."}});
  ASSERT_EQ(grouping.groups.size(), 3U);
  EXPECT_THAT(grouping.group_of, ElementsAre(2, 2, 2, 0, 1, 2, 2));
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.1);
  EXPECT_FALSE(grouping.groups[2].is_trained);
  EXPECT_EQ(grouping.groups[2].weight_decay, 0.0);
}

TEST(Trainable, WhatFindsNothingIsRefusedWithNames) {
  testing::expect_error<RequestError>(
      [] {
        trained({"bias$", "layers\\.0"});
      },
      {"sluice.trainable", "\"layers\\.0\" finds none of the 7 parameters of small", "wte.weight", "h.10.attn.c_attn.bias",
       "transformer."});
  testing::expect_error<RequestError>([] { trained({"(h"}); }, {"sluice.trainable", "\"(h\" is no regular expression"});
}

TEST(Policy, StateIsWhatTheOptimizerKeeps) {
  EXPECT_EQ(moments_of({}), 2);
  EXPECT_EQ(moments_of({.kind = spec::OptimizerKind::kAdam}), 2);
  EXPECT_EQ(moments_of({.kind = spec::OptimizerKind::kLion}), 1);
  EXPECT_EQ(moments_of({.kind = spec::OptimizerKind::kSgd}), 0);
  EXPECT_EQ(moments_of({.kind = spec::OptimizerKind::kSgd, .momentum = 0.5}), 1);
  EXPECT_EQ(group_parameters(layered(), {.optimizer = {.kind = spec::OptimizerKind::kLion}}).moments, 1);
}

TEST(Policy, OfAModelThatIsOnlyAskedNothingTrains) {
  const Grouping grouping = freeze_parameters(two_matrices_and_a_vector(), spec::Precision::kBf16);
  ASSERT_EQ(grouping.groups.size(), 1u);
  EXPECT_THAT(grouping.group_of, ElementsAre(0, 0, 0));
  for (const int param : {0, 1, 2}) EXPECT_FALSE(grouping.trains(param));
  EXPECT_EQ(grouping.moments, 0);
  EXPECT_EQ(grouping.storage, DType::kBF16);
}

TEST(Policy, ANormIsNeededToClipAndToFindOverflows) {
  spec::TrainingSpec training;
  training.optimizer.gradient_clipping = 0;
  EXPECT_FALSE(needs_norm(training));
  training.precision = spec::Precision::kBf16;
  EXPECT_FALSE(needs_norm(training));
  EXPECT_FALSE(skips_overflow(training));
  training.skips_overflow = true;
  EXPECT_TRUE(needs_norm(training));
  EXPECT_TRUE(skips_overflow(training));
  training.precision = spec::Precision::kFp32;  // of bf16 alone
  EXPECT_FALSE(needs_norm(training));
  training.skips_overflow = false;
  training.precision = spec::Precision::kFp16;
  EXPECT_TRUE(needs_norm(training));
  training.precision = spec::Precision::kFp32;
  training.optimizer.gradient_clipping = 0.5;
  EXPECT_TRUE(needs_norm(training));
}

TEST(Policy, ClipFactorIsTorchs) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0f);
  EXPECT_EQ(clip_factor(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(clip_factor(1.0, 1.0), static_cast<float>(1.0 / (1.0 + 1e-6)));  // at the limit torch scales too
  EXPECT_EQ(clip_factor(1e9, 0.0), 1.0f);
}

TEST(Policy, ANormThatIsNoNumberNeverLooksUnclipped) {
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1.0)));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0f);
  EXPECT_THROW(clip_factor(1.0, -1.0), LogicError);
}

}  // namespace
}  // namespace sluice::optim
