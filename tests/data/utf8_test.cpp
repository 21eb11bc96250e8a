#include "data/utf8.hpp"

#include <gtest/gtest.h>

namespace sluice::data {
namespace {

constexpr auto kNone = std::string_view::npos;

TEST(Utf8, FindsTheFirstByteThatBeginsNoCharacter) {
  EXPECT_EQ(find_invalid_utf8(""), kNone);
  EXPECT_EQ(find_invalid_utf8("plain text of more than eight bytes"), kNone);
  EXPECT_EQ(find_invalid_utf8("h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xEF\xBF\xBF \xF4\x8F\xBF\xBF"), kNone);
  EXPECT_EQ(find_invalid_utf8(std::string("a\0b", 3)), kNone) << "NUL is a character";
  EXPECT_EQ(find_invalid_utf8("12345678\x80"), 8U);
  EXPECT_EQ(find_invalid_utf8("a\xC0\xAF"), 1U) << "overlong";
  EXPECT_EQ(find_invalid_utf8("a\xE0\x9F\xBF"), 1U) << "overlong";
  EXPECT_EQ(find_invalid_utf8("a\xF0\x8F\xBF\xBF"), 1U) << "overlong";
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1U) << "a surrogate";
  EXPECT_EQ(find_invalid_utf8("a\xF4\x90\x80\x80"), 1U) << "beyond U+10FFFF";
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2U) << "cut off";
  EXPECT_EQ(find_invalid_utf8("\xFF good \xFE"), 0U);
  EXPECT_EQ(find_invalid_utf8("\xFF good \xFE", 1), 7U);
}

TEST(Utf8, ReplacesMaximalParts) {
  // Unicode 15, section 3.9, table 3-8 and its neighbours.
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("whole"), "whole");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82"), "a" + r);
}

}  // namespace
}  // namespace sluice::data
