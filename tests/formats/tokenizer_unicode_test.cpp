#include "formats/tokenizer_unicode.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sluice::formats {
namespace {

std::string utf8(std::initializer_list<char32_t> codes) {
  std::string text;
  for (const char32_t code : codes) append_utf8(code, text);
  return text;
}

/// GoogleTest can't print a char32_t.
std::uint32_t number(char32_t code) {
  return code;
}

TEST(TokenizerUnicode, FindsInvalidUtf8) {
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8(utf8({0, 'a', 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF})), std::string_view::npos);
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xF0\x9F\x98"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("ab") + bad), 2u) << bad;
  }
}

TEST(TokenizerUnicode, ReadsWhatItWrites) {
  for (const char32_t code : {U'a', U'\u00E9', U'\u20AC', U'\U0001F600', U'\U0010FFFF'}) {
    const std::string text = "x" + utf8({code});
    EXPECT_EQ(number(utf8_at(text, 1).code), number(code));
    EXPECT_EQ(utf8_at(text, 1).bytes, text.size() - 1);
    EXPECT_EQ(utf8_bytes(text[1]), text.size() - 1);
  }
}

TEST(TokenizerUnicode, StandsInForNewerCharacters) {
  EXPECT_EQ(number(stand_in('a')), number(U'a'));
  EXPECT_EQ(number(stand_in(0x4E00)), number(U'\u4E00'));
  EXPECT_NE(number(stand_in(0x31350)), number(U'\U00031350')) << "CJK extension H, of Unicode 15";
  EXPECT_NE(number(stand_in(0x180E)), number(U'\u180E')) << "white space to PCRE2 alone";
  char32_t last = 0;
  for (const StandIn* row = stand_ins_begin(); row != stand_ins_end(); ++row) {
    EXPECT_GT(number(row->first), number(last));
    EXPECT_GE(number(row->last), number(row->first));
    EXPECT_EQ(number(stand_in(row->instead)), number(row->instead)) << "a stand-in needs none itself";
    EXPECT_EQ(utf8({row->first}).size(), utf8({row->instead}).size());
    EXPECT_EQ(utf8({row->last}).size(), utf8({row->instead}).size());
    last = row->last;
  }
}

TEST(TokenizerUnicode, ClassifiesAsTheTokenizersDo) {
  for (const char32_t code : {U' ', U'\t', U'\u0085', U'\u00A0', U'\u2003', U'\u3000'}) EXPECT_TRUE(is_white_space(code)) << utf8({code});
  for (const char32_t code : {U'a', U'\u180E', U'\u200B', U'\u001C'}) EXPECT_FALSE(is_white_space(code)) << utf8({code});
  for (const char32_t code : {U'7', U'\u00BD', U'\u2163', U'\uFF11', U'\u0663', U'\U00011DE0'})
    EXPECT_TRUE(is_numeric(code)) << utf8({code});
  for (const char32_t code : {U'a', U'\u4E00'}) EXPECT_FALSE(is_numeric(code)) << utf8({code});
  for (const char32_t code : {U'a', U'_', U'0', U'\u00E9', U'\u0301', U'\u24B6', U'\u200D', U'\u2163'})
    EXPECT_TRUE(is_word(code)) << utf8({code});
  for (const char32_t code : {U'-', U' ', U'\u00B2', U'\u20AC'}) EXPECT_FALSE(is_word(code)) << utf8({code});
  for (const char32_t code : {U'!', U'$', U'+', U'_', U'~', U'\u3002', U'\u166D'}) EXPECT_TRUE(is_punctuation(code)) << utf8({code});
  for (const char32_t code : {U'a', U' ', U'\u007F', U'\u20AC', U'\u2E52', U'\u061D'}) EXPECT_FALSE(is_punctuation(code)) << utf8({code});
}

TEST(TokenizerUnicode, LowersCase) {
  EXPECT_EQ(lower_cased("AbZ\xC3\x89"), "abz\xC3\xA9");
  EXPECT_EQ(lower_cased(utf8({0x130, 0x3A3, 0x1E9E, 0x10D50, 0xA7DC})), utf8({'i', 0x307, 0x3C3, 0xDF, 0x10D70, 0x19B}));
}

TEST(TokenizerUnicode, Normalizes) {
  EXPECT_EQ(normalized("plain", NormalForm::kNfc), "plain");
  EXPECT_EQ(normalized(utf8({'e', 0x301}), NormalForm::kNfc), utf8({0xE9}));
  EXPECT_EQ(normalized(utf8({0xE9}), NormalForm::kNfd), utf8({'e', 0x301}));
  EXPECT_EQ(normalized(utf8({0x1100, 0x1161, 0x11A8}), NormalForm::kNfc), utf8({0xAC01}));
  EXPECT_EQ(normalized(utf8({0xAC01}), NormalForm::kNfd), utf8({0x1100, 0x1161, 0x11A8}));
  EXPECT_EQ(normalized(utf8({0xFB01, 0xBD, 0xA0}), NormalForm::kNfkc), utf8({'f', 'i', '1', 0x2044, '2', ' '}));
  EXPECT_EQ(normalized(utf8({0xFB01}), NormalForm::kNfc), utf8({0xFB01}));
  EXPECT_EQ(normalized(utf8({0x958}), NormalForm::kNfc), utf8({0x915, 0x93C})) << "excluded from composition";
  EXPECT_EQ(normalized(utf8({'q', 0x307, 0x323}), NormalForm::kNfc), utf8({'q', 0x323, 0x307}));
  // A mark of Unicode 14 has no class for the tokenizers: nothing moves past it.
  EXPECT_EQ(normalized(utf8({'e', 0x1AC1, 0x301}), NormalForm::kNfc), utf8({'e', 0x1AC1, 0x301}));
  EXPECT_EQ(normalized(utf8({'e', 0x1AB0, 0x301}), NormalForm::kNfc), utf8({'e', 0x1AB0, 0x301}))
      << "same class: blocked by the standard too";
  EXPECT_EQ(normalized(utf8({'e', 0x323, 0x301}), NormalForm::kNfc), utf8({0x1EB9, 0x301}));
  EXPECT_EQ(normalized(utf8({0x11935, 0x11930}), NormalForm::kNfc), utf8({0x11935, 0x11930}));
}

TEST(TokenizerUnicode, OrdersLongRunsOfMarks) {
  std::string text = "a";
  std::string below, above;
  for (int i = 0; i < 200'000; ++i) {
    text += utf8({0x301, 0x327});
    above += utf8({0x301});
    below += utf8({0x327});
  }
  // The first acute is composed with the a, past the cedillas.
  EXPECT_EQ(normalized(text, NormalForm::kNfd), "a" + below + above);
  EXPECT_EQ(normalized(text, NormalForm::kNfc), utf8({0xE1}) + below + above.substr(2));
}

}  // namespace
}  // namespace sluice::formats
