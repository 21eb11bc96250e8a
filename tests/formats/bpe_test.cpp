#include "formats/bpe.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;

BpeSettings small() {
  return {.source = "t.json",
          .vocabulary = {{"a", 0},
                         {"b", 1},
                         {"c", 2},
                         {"ab", 3},
                         {"bc", 4},
                         {"abc", 5},
                         {"aa", 6},
                         {"aaaa", 7},
                         {"<0xC3>", 20},
                         {"<0xA9>", 21},
                         {"?", 30}},
          .merges = {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}, {"aa", "aa"}}};
}

std::vector<std::int32_t> encoded(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe.encode(word, scratch, ids);
  return ids;
}

TEST(Bpe, MergesTheLowestRankFirstAndLeftmost) {
  const Bpe bpe(small());
  EXPECT_THAT(encoded(bpe, "abc"), ElementsAre(5)) << "b c has the lowest rank, then a bc";
  EXPECT_THAT(encoded(bpe, "ab"), ElementsAre(3));
  EXPECT_THAT(encoded(bpe, "aab"), ElementsAre(0, 3)) << "a b before a a";
  EXPECT_THAT(encoded(bpe, "aaa"), ElementsAre(6, 0));
  EXPECT_THAT(encoded(bpe, "aaaaa"), ElementsAre(7, 0));
  EXPECT_THAT(encoded(bpe, ""), ElementsAre());
  EXPECT_EQ(bpe.end_id(), 31);
  EXPECT_EQ(bpe.size(), 11u);
  EXPECT_EQ(*bpe.token_of(5), "abc");
  EXPECT_EQ(bpe.token_of(10), nullptr);
}

TEST(Bpe, KeepsTheLastOfEqualMerges) {
  BpeSettings settings = small();
  settings.merges.emplace_back("b", "c");
  EXPECT_THAT(encoded(Bpe(settings), "abc"), ElementsAre(3, 2)) << "now a b comes before b c";
}

TEST(Bpe, AnswersForUnknownCharacters) {
  BpeSettings settings = small();
  EXPECT_THAT(encoded(Bpe(settings), "axxb"), ElementsAre(3)) << "left out, and what stood around them is merged";
  settings.unknown = "?";
  EXPECT_THAT(encoded(Bpe(settings), "axxb"), ElementsAre(0, 30, 30, 1));
  settings.fuses_unknown = true;
  EXPECT_THAT(encoded(Bpe(settings), "axxbx"), ElementsAre(0, 30, 1, 30));
  settings.byte_fallback = true;
  EXPECT_THAT(encoded(Bpe(settings), "a\xC3\xA9"), ElementsAre(0, 20, 21));
  EXPECT_THAT(encoded(Bpe(settings), "\xC3\xA8"), ElementsAre(30)) << "<0xA8> is no token";
  EXPECT_THAT(encoded(Bpe(settings),
                      "x\xC3\xA9"
                      "b"),
              ElementsAre(20, 21, 30, 1))
      << "the unknown token comes behind the bytes, as in the library";
  settings.unknown = "nothing";
  const Bpe bpe(settings);
  EXPECT_THAT(encoded(bpe, "ab"), ElementsAre(3));
  expect_error<RequestError>([&] { encoded(bpe, "ax"); }, {"t.json", "unk_token \"nothing\"", "\"x\""});
}

TEST(Bpe, TakesWholeWordsWhereMergesAreIgnored) {
  BpeSettings settings = small();
  settings.vocabulary.emplace_back("cab", 40);
  EXPECT_THAT(encoded(Bpe(settings), "cab"), ElementsAre(2, 3));
  settings.ignores_merges = true;
  EXPECT_THAT(encoded(Bpe(settings), "cab"), ElementsAre(40));
  EXPECT_THAT(encoded(Bpe(settings), "cabc"), ElementsAre(2, 5));
}

TEST(Bpe, WritesBytesAsCharacters) {
  EXPECT_EQ(byte_level_character('a'), "a");
  EXPECT_EQ(byte_level_character(' '), "\xC4\xA0");   // U+0120
  EXPECT_EQ(byte_level_character('\n'), "\xC4\x8A");  // U+010A
  EXPECT_EQ(byte_level_character(0xAD), "\xC5\x83");  // U+0143
  EXPECT_EQ(byte_level_character(0xFF), "\xC3\xBF");
  std::string all, written;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
    written += byte_level_character(static_cast<unsigned char>(byte));
  }
  EXPECT_EQ(byte_level_bytes(written), all);
  EXPECT_EQ(byte_level_bytes("a b"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("\xE2\x96\x81"), std::nullopt);

  const Bpe bpe({.source = "t.json",
                 .vocabulary = {{"\xC4\xA0", 0},
                                {"a", 1},
                                {"\xC4\xA0"
                                 "a",
                                 2},
                                {"aa", 3}},
                 .merges = {{"\xC4\xA0", "a"}},
                 .ignores_merges = true});
  Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe.encode_bytes(" aa", scratch, ids);
  bpe.encode_bytes("aa", scratch, ids);
  EXPECT_THAT(ids, ElementsAre(2, 1, 3));
}

TEST(Bpe, RefusesMergesOfUnknownTokens) {
  BpeSettings settings = small();
  settings.merges.emplace_back("a", "z");
  expect_error<FormatError>([&] { Bpe bpe(settings); }, {"t.json", "model.merges[5]", "\"z\""});
  settings.merges.back() = {"c", "a"};
  expect_error<FormatError>([&] { Bpe bpe(settings); }, {"t.json", "model.merges[5]", "\"ca\""});
}

TEST(Bpe, WorksInProportionToTheWord) {
  BpeSettings settings{.source = "t.json", .vocabulary = {{"b", 0}}, .merges = {}};
  std::string token = "a";
  for (int i = 0; i < 12; ++i) {
    settings.vocabulary.emplace_back(token, i + 1);
    if (i > 0) settings.merges.emplace_back(token.substr(token.size() / 2), token.substr(token.size() / 2));
    token += token;
  }
  const Bpe bpe(settings);
  constexpr std::size_t kLong = 1u << 20;
  Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe.encode(std::string(kLong, 'a'), scratch, ids);
  EXPECT_EQ(ids, std::vector<std::int32_t>(kLong >> 11, 12));
  EXPECT_LT(scratch.candidates, static_cast<std::int64_t>(4 * kLong)) << "each merge queues at most two";
}

}  // namespace
}  // namespace sluice::formats
