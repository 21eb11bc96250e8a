#include "app/key_rules.hpp"

#include <gtest/gtest.h>

#include <set>

namespace sluice::app {
namespace {

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
    const bool refuses =
        key.rule == KeyRule::kOnly || key.rule == KeyRule::kSwitch || key.rule == KeyRule::kPresence || key.rule == KeyRule::kAbsent;
    EXPECT_EQ(refuses, !key.advice.empty()) << key.path;
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
