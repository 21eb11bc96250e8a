#include "spec/json_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::spec {
namespace {

using ::testing::HasSubstr;

TEST(JsonProblem, AcceptsWellFormedText) {
  for (const char* text : {"{}", "[]", "1", "\"x\"", R"({"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 2}]})"})
    EXPECT_EQ(json_problem(text), "") << text;
}

TEST(JsonProblem, NamesTheKeyThatStandsTwice) {
  EXPECT_THAT(json_problem(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("key \"a\" stands there twice"));
  EXPECT_THAT(json_problem(R"({"a": {"b": [{"c": 1, "c": 1}]}})"), HasSubstr("key \"a.b.c\" stands there twice"));
  EXPECT_THAT(json_problem(R"({"a": {"x": 1}, "a": 2})"), HasSubstr("key \"a\" stands there twice"));
}

TEST(JsonProblem, SaysWhereTheTextBreaks) {
  EXPECT_THAT(json_problem("{\n  \"a\": ,\n}"), HasSubstr("not valid JSON: parse error at line 2, column 8"));
  EXPECT_THAT(json_problem("{\"a\": 1} trailing"), HasSubstr("not valid JSON"));
  EXPECT_THAT(json_problem("\"\xff\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(json_problem(std::string("1e400")), HasSubstr("1e400"));
}

TEST(JsonProblem, RefusesDeepNesting) {
  EXPECT_EQ(json_problem(std::string(100, '[') + std::string(100, ']')), "");
  EXPECT_THAT(json_problem(std::string(101, '[') + std::string(101, ']')), HasSubstr("more than 100 deep"));
  EXPECT_THAT(json_problem(std::string(1'000'000, '[')), HasSubstr("more than 100 deep"));
}

TEST(NearestWord, FindsTheMisspeltOne) {
  const std::vector<std::string> known{"hidden", "heads", "layers"};
  EXPECT_EQ(nearest_word("hiden", known), "hidden");
  EXPECT_EQ(nearest_word("haeds", known), "heads");
  EXPECT_EQ(nearest_word("learning_rate", known), "");
  EXPECT_EQ(nearest_word("x", {}), "");
}

}  // namespace
}  // namespace sluice::spec
