#include "formats/tokenizer_regex.hpp"

#include "base/error.hpp"
#include "formats/tokenizer_unicode.hpp"
#include "support/expect_error.hpp"

namespace sluice::formats {
namespace {

using testing::expect_error;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  const TokenizerRegex regex(pattern, "t.json", "pattern");
  RegexScratch scratch;
  std::vector<ByteRange> ranges;
  regex.find_all(text, scratch, ranges);
  std::vector<std::string> found;
  for (const ByteRange& range : ranges) found.push_back(text.substr(range.begin, range.end - range.begin));
  return found;
}

TEST(TokenizerRegex, FindsAllMatches) {
  EXPECT_THAT(matches(R"('s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "It's  12 caf\xC3\xA9!\n"),
              ::testing::ElementsAre("It", "'s", " ", " 12", " caf\xC3\xA9", "!", "\n"));
  EXPECT_THAT(matches("x*", "axxb"), ::testing::ElementsAre("", "xx", "")) << "no empty match just behind another";
  EXPECT_THAT(matches("a|b", ""), ::testing::IsEmpty());
}

TEST(TokenizerRegex, ReadsRubysSyntax) {
  EXPECT_THAT(matches("^.|.$", "ab\ncd"), ::testing::ElementsAre("a", "b", "c", "d")) << "line bounds everywhere, not at the text's alone";
  EXPECT_THAT(matches("(?m:a.b)", "a\nb"), ::testing::ElementsAre("a\nb"));
  EXPECT_THAT(matches("a{,2}b", "aaab"), ::testing::ElementsAre("aab"));
  EXPECT_THAT(matches(R"(\v)", "\v\n"), ::testing::ElementsAre("\v")) << "vertical tab alone";
  EXPECT_THAT(matches(R"(\u00e9|\x{65}|\x41)", "\xC3\xA9 e A"), ::testing::ElementsAre("\xC3\xA9", "e", "A"));
  EXPECT_THAT(matches("{a|}", "{a }"), ::testing::ElementsAre("{a", "}"));
  EXPECT_THAT(matches(R"([-a\]^]+)", "a]-^b"), ::testing::ElementsAre("a]-^"));
  EXPECT_THAT(matches(R"(\p{^L}|\p{punctuation})", "a1!"), ::testing::ElementsAre("1", "!"));
  EXPECT_THAT(matches(R"((?i:'s)|(?-i:t))", "'S T t"), ::testing::ElementsAre("'S", "t"));
  EXPECT_THAT(matches(R"(\bword\b)", "word words _word word"), ::testing::ElementsAre("word", "word"));
}

TEST(TokenizerRegex, KnowsUnicode16) {
  const std::string garay = "\xF0\x90\xB5\x8A";        // U+10D4A, a letter since Unicode 16
  const std::string garay_digit = "\xF0\x90\xB5\x80";  // U+10D40
  EXPECT_THAT(matches(R"(\p{L}+)", "a" + garay + "b" + garay_digit), ::testing::ElementsAre("a" + garay + "b"));
  EXPECT_THAT(matches(R"(\p{N}+)", "a" + garay + "b" + garay_digit), ::testing::ElementsAre(garay_digit));
  EXPECT_THAT(matches(R"(\p{Han}+)", "\xF0\xB1\x8D\x90"), ::testing::SizeIs(1)) << "U+31350 of Unicode 15";
  EXPECT_THAT(matches(R"(\p{Han})", "7"), ::testing::IsEmpty()) << "the script, not its extensions";
  EXPECT_THAT(matches(R"(\s)", "\xE1\xA0\x8E\xC2\x85"), ::testing::ElementsAre("\xC2\x85")) << "U+180E is none, U+0085 is one";
  EXPECT_THAT(matches(R"(\w+)", "a\xC2\xB2\xE2\x92\xB6-"), ::testing::ElementsAre("a\xC2\xB2\xE2\x92\xB6")) << "U+00B2, U+24B6";
  EXPECT_THAT(matches(R"([\w]+)", "a\xC2\xB2\xE2\x92\xB6-"), ::testing::ElementsAre("a", "\xE2\x92\xB6"))
      << "Oniguruma: U+00B2 isn't in the class";
}

TEST(TokenizerRegex, RefusesWhatTheEnginesReadOtherwise) {
  for (const char* pattern : {R"((a)\1)",
                              R"(\h)",
                              R"(\R)",
                              R"(\X)",
                              R"(\K)",
                              R"(\G)",
                              "[[:alpha:]]",
                              "[a&&b]",
                              "[a-z[0-9]]",
                              "[]a]",
                              R"([\W])",
                              R"([\b])",
                              R"([\d-z])",
                              R"([a-\d])",
                              "(?x:a)",
                              "(?<n>a)",
                              "(?~a)",
                              "a(?i)b",
                              "(?i:ss)",
                              "(?i:fi)",
                              "(?i:\xC3\xA9)",
                              R"((?i:\p{L}))",
                              "(?i:a{2})",
                              "a**",
                              "a{2}?",
                              "a{1,2}+",
                              "a{3,2}",
                              "(?=a)*",
                              "^*",
                              R"(\p{Arabic})",
                              R"(\p{Alphabetic})",
                              R"(\pL)",
                              R"(\xE9)",
                              "a{2000}",
                              "\xE2\x90\xA7",
                              R"([\x{2427}-\x{2428}])",
                              R"([\x{2426}])"}) {
    expect_error<RequestError>([&] { TokenizerRegex(pattern, "t.json", "pre_tokenizer.pattern"); },
                               {"t.json", "pre_tokenizer.pattern", "not supported"});
  }
}

TEST(TokenizerRegex, RefusesWhatIsNoExpression) {
  for (const char* pattern : {"(a", "a)", "[a", "a\\", "*a", "[z-a]", R"(\x{110000})", R"(\x{D800})", R"(\u12)", R"(\p{L)", "(?<=a*)"}) {
    expect_error<FormatError>([&] { TokenizerRegex(pattern, "t.json", "key"); }, {"t.json: key: not a regular expression"});
  }
  expect_error<RequestError>([&] { TokenizerRegex(std::string(100'000, 'a'), "t.json", "key"); }, {"100000 bytes"});
  expect_error<RequestError>([&] { TokenizerRegex(std::string(500, '(') + std::string(500, ')'), "t.json", "key"); }, {"nested"});
}

TEST(TokenizerRegex, FailsInsteadOfSplittingWrongly) {
  const TokenizerRegex regex("(?:a|aa)+[bc]", "t.json", "key");
  RegexScratch scratch;
  std::vector<ByteRange> ranges;
  expect_error<RequestError>([&] { regex.find_all(std::string(200, 'a'), scratch, ranges); },
                             {"t.json: key", "fails at byte 0", "200 bytes"});
  regex.find_all("aab", scratch, ranges);
  EXPECT_EQ(ranges.size(), 1u) << "the scratch can be used again";
}

TEST(TokenizerRegex, TakesLongRuns) {
  const std::string llama = R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::size_t n = 1'000'000;
  for (const char* piece : {" ", "a", "\n", "!", "\xE3\x80\x80", "\xC3\xA9"}) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += piece;
    EXPECT_THAT(matches(llama, text), ::testing::ElementsAre(text)) << '"' << piece << '"';
  }
  EXPECT_THAT(matches(llama, std::string(n, ' ') + "x"), ::testing::ElementsAre(std::string(n - 1, ' '), " x"));
  EXPECT_EQ(matches(llama, std::string(n, '7')).size(), (n + 2) / 3);
}

}  // namespace
}  // namespace sluice::formats
