#include "app/tolerant_json.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::app {
namespace {

using testing::expect_error;

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

TEST(TolerantJson, PlainJsonStaysAsItIs) {
  const std::string text = "{\"a\": [1, {\"b\": \"x // y # z\"}], \"c\": \"/* no */\", \"d\": \"q\\\"uote, }\"}";
  EXPECT_EQ(read_tolerant_json(text, "f").strict, text);
}

TEST(TolerantJson, BlanksCommentsAndTrailingCommas) {
  const std::string text = "{ // one\n\"a\": 1, # two\n/* three\n , */ \"b\": [1, 2, ],\n \"c\": {\"d\": 3,\n},}\n";
  const TolerantJson json = read_tolerant_json(text, "f");
  EXPECT_EQ(without_spaces(json.strict), R"({"a":1,"b":[1,2],"c":{"d":3}})");
  EXPECT_EQ(json.strict.size(), text.size());  // places keep their numbers
  EXPECT_EQ(std::count(json.strict.begin(), json.strict.end(), '\n'), 6);
}

TEST(TolerantJson, QuotesWhatHjsonLeavesBare) {
  EXPECT_EQ(read_tolerant_json("{a: 1, b_c-d: {e : [true]}}", "f").strict, "{\"a\": 1, \"b_c-d\": {\"e\" : [true]}}");
  EXPECT_EQ(read_tolerant_json("{'a': 'it\\'s \"x\"'}", "f").strict, R"({"a": "it's \"x\""})");
  EXPECT_EQ(read_tolerant_json("{\n  path: /data/x y\n  b: 2}", "f").strict, "{\n  \"path\": \"/data/x y\",\n  \"b\": 2}");
  EXPECT_EQ(read_tolerant_json("{\nurl: http://x/y  # why\n}", "f").strict, "{\n\"url\": \"http://x/y\"       \n}");
}

TEST(TolerantJson, ALinesEndDoesForAComma) {
  EXPECT_EQ(without_spaces(read_tolerant_json("{\na: 1\nb: [\n1\n2\n]\n\"c\": {}\nd: null\n}", "f").strict),
            R"({"a":1,"b":[1,2],"c":{},"d":null})");
  const TolerantJson json = read_tolerant_json("{\na: [\n{b: 1}\n{b: 2}\n]\n}", "f");
  const std::map<std::string, int> expected = {{"a", 2}, {"a[0].b", 3}, {"a[1].b", 4}};
  EXPECT_EQ(json.lines, expected);
}

TEST(TolerantJson, WhatCouldMeanTwoThingsIsNoText) {
  // Hjson takes the rest of the line, comma and bracket included; nobody means that.
  EXPECT_EQ(read_tolerant_json("{type: AdamW, lr: 1}", "f").strict, "{\"type\": AdamW, \"lr\": 1}");
  EXPECT_EQ(read_tolerant_json("{a: tru}", "f").strict, "{\"a\": tru}");
  EXPECT_EQ(read_tolerant_json("{1 2}", "f").strict, "{1 2}");
}

TEST(TolerantJson, LeavesOtherMistakesToTheParser) {
  EXPECT_EQ(read_tolerant_json("{,}", "f").strict, "{,}");
  EXPECT_EQ(read_tolerant_json("[1,,]", "f").strict, "[1,,]");
  EXPECT_EQ(read_tolerant_json("{\"a\":,}", "f").strict, "{\"a\":,}");
  EXPECT_EQ(read_tolerant_json("\"never closed", "f").strict, "\"never closed");
  EXPECT_EQ(read_tolerant_json("]}", "f").strict, "]}");
  EXPECT_EQ(read_tolerant_json("", "f").strict, "");
}

TEST(TolerantJson, KnowsTheLineOfEachKey) {
  const TolerantJson json = read_tolerant_json("{\n\"a\": {\n\"b\": 1,\n\"c\": [\n{\"d\": 2}, {\"d\": 3}]},\n\n\"b\": \"text\"}", "f");
  const std::map<std::string, int> expected = {{"a", 2}, {"a.b", 3}, {"a.c", 4}, {"a.c[0].d", 5}, {"a.c[1].d", 5}, {"b", 7}};
  EXPECT_EQ(json.lines, expected);
}

TEST(TolerantJson, RefusesAKeyTwiceWithBothLines) {
  expect_error<RequestError>([] { read_tolerant_json("{\n\"a\": {\"b\": 1,\n \"x\": 0,\n \"b\": 2}}", "demo.json"); },
                             {"demo.json:4", "\"a.b\"", "twice", "line 2"});
  expect_error<RequestError>([] { read_tolerant_json("{a: 1\n'a': 2}", "demo.json"); }, {"demo.json:2", "\"a\"", "twice", "line 1"});
  EXPECT_NO_THROW(read_tolerant_json(R"({"a": {"b": 1}, "b": {"a": 1}, "c": [{"a": 1}, {"a": 2}]})", "f"));
}

}  // namespace
}  // namespace sluice::app
