#include "app/key_rules.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace sluice::app {
namespace {

std::vector<Key> known_keys() {
  std::vector<Key> keys(deepspeed_keys().begin(), deepspeed_keys().end());
  keys.insert(keys.end(), sluice_keys().begin(), sluice_keys().end());
  return keys;
}

TEST(KeyRules, EveryPathStandsOnceBelowAKnownOne) {
  std::set<std::string> seen;
  for (const Key& key : known_keys()) {
    const std::string path(key.path);
    EXPECT_TRUE(seen.insert(path).second) << path << " twice";
    const std::size_t dot = path.rfind('.');
    EXPECT_TRUE(dot == std::string::npos || find_key(path.substr(0, dot)) != nullptr) << "nothing above " << path;
  }
}

TEST(KeyRules, RefusalsSayWhatToDo) {
  for (const Key& key : known_keys()) {
    const bool refuses = key.rule != KeyRule::kHonoured && key.rule != KeyRule::kHint && key.rule != KeyRule::kPerformance;
    EXPECT_EQ(refuses, !key.advice.empty()) << key.path;
  }
  for (const TrainerName& name : trainer_names()) {
    EXPECT_EQ(name.rule == TrainerRule::kPerformance, name.advice.empty()) << name.name;
  }
}

TEST(KeyRules, DefaultsAreOfTheirType) {
  const auto fits = [](ValueType type, const nlohmann::json& value) {
    switch (type) {
      case ValueType::kFlag:
        return value.is_boolean();
      case ValueType::kWhole:
        return value.is_number_integer();
      case ValueType::kNumber:
        return value.is_number();
      case ValueType::kText:
        return value.is_string();
      case ValueType::kTexts:
      case ValueType::kList:
        return value.is_array();
      case ValueType::kObject:
        return value.is_object();
      case ValueType::kAny:
      case ValueType::kSize:
        return true;
    }
    return false;
  };
  for (const Key& key : known_keys()) {
    if (key.fallback.empty()) continue;
    const nlohmann::json value = nlohmann::json::parse(key.fallback);
    EXPECT_TRUE(value.is_null() || fits(key.type, value)) << key.path << " " << key.fallback;
  }
  for (const TrainerName& name : trainer_names()) {
    if (name.fallback.empty()) continue;
    const nlohmann::json value = nlohmann::json::parse(name.fallback);
    EXPECT_TRUE(value.is_null() || fits(name.type, value)) << name.name << " " << name.fallback;
  }
}

TEST(KeyRules, TrainerNamesStandOnceForKeysThatAre) {
  std::set<std::string_view> seen;
  for (const TrainerName& name : trainer_names()) {
    EXPECT_TRUE(seen.insert(name.name).second) << name.name << " twice";
    const bool has_key = name.rule == TrainerRule::kSets || name.rule == TrainerRule::kFills;
    EXPECT_EQ(has_key, find_key(name.path) != nullptr) << name.name;
  }
}

TEST(KeyRules, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_key("gradient_cliping"), "gradient_clipping");
  EXPECT_EQ(nearest_key("zero_optimization.stge"), "zero_optimization.stage");
  EXPECT_EQ(nearest_key("steps"), "sluice.steps");
  EXPECT_EQ(nearest_key("sluice.gradient_clipping"), "gradient_clipping");
  EXPECT_EQ(nearest_key("zero_optimization.buffer_size"), "zero_optimization.offload_param.buffer_size");
  EXPECT_EQ(nearest_key("nonsense_of_no_kind"), "");
}

TEST(KeyRules, CommentKeysAreFree) {
  EXPECT_TRUE(is_comment_key("_comment"));
  EXPECT_TRUE(is_comment_key("//"));
  EXPECT_TRUE(is_comment_key("$schema"));
  EXPECT_FALSE(is_comment_key("comment"));
}

}  // namespace
}  // namespace sluice::app
