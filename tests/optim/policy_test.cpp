#include "optim/policy.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace sluice::optim {
namespace {

using ::testing::ElementsAre;

std::vector<model::ParamSpec> two_matrices_and_a_vector() {
  return {{.name = "a", .shape = {2, 3}, .matrix = true}, {.name = "b", .shape = {3}}, {.name = "c", .shape = {3, 2}, .matrix = true}};
}

TEST(Policy, MatricesDecayAndTheRestDoesNot) {
  const Grouping grouping = group_parameters(two_matrices_and_a_vector(), {.weight_decay = 0.1, .decay_on = spec::DecayOn::kMatrices});
  ASSERT_EQ(grouping.groups.size(), 2u);
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.1);
  EXPECT_EQ(grouping.groups[1].weight_decay, 0.0);
  EXPECT_THAT(grouping.group_of, ElementsAre(0, 1, 0));
}

TEST(Policy, AllDecayInOneGroup) {
  const Grouping grouping = group_parameters(two_matrices_and_a_vector(), {.weight_decay = 0.1, .decay_on = spec::DecayOn::kAll});
  ASSERT_EQ(grouping.groups.size(), 1u);
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.1);
  EXPECT_THAT(grouping.group_of, ElementsAre(0, 0, 0));
}

TEST(Policy, WithoutDecayThereIsOneGroupWhateverDecayIsOn) {
  for (const spec::DecayOn on : {spec::DecayOn::kAll, spec::DecayOn::kMatrices}) {
    const Grouping grouping = group_parameters(two_matrices_and_a_vector(), {.weight_decay = 0.0, .decay_on = on});
    ASSERT_EQ(grouping.groups.size(), 1u);
    EXPECT_EQ(grouping.groups[0].weight_decay, 0.0);
    EXPECT_THAT(grouping.group_of, ElementsAre(0, 0, 0));
  }
}

TEST(Policy, AbsentGroupsAreLeftOut) {
  const std::vector<model::ParamSpec> vectors = {{.name = "b", .shape = {3}}};
  const Grouping grouping = group_parameters(vectors, {.weight_decay = 0.1, .decay_on = spec::DecayOn::kMatrices});
  ASSERT_EQ(grouping.groups.size(), 1u);
  EXPECT_EQ(grouping.groups[0].weight_decay, 0.0);
  EXPECT_THAT(grouping.group_of, ElementsAre(0));
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
