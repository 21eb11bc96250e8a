#include "data/preview.hpp"

#include <gmock/gmock.h>

#include "data/doubling_tokenizer.hpp"
#include "support/temp_dir.hpp"

namespace sluice::data {
namespace {

using sluice::testing::TempDir;
using testing::DoublingTokenizer;
using ::testing::HasSubstr;

EncodedDocument tokens_of(const std::string& text, const std::string& mask) {
  EncodedDocument result;
  for (const char c : text) result.ids.push_back(static_cast<unsigned char>(c));
  for (const char c : mask) result.learned.push_back(c == '1' ? 1 : 0);
  return result;
}

TEST(Preview, ShowsWhatIsLearned) {
  const DoublingTokenizer tokenizer;
  const Preview preview = preview_of(tokens_of("ask:answer.", "00001111110"), &tokenizer);
  EXPECT_EQ(preview.tokens, 11);
  EXPECT_EQ(preview.predicted, 6);
  EXPECT_EQ(describe(preview, false), "⟦ask:⟧answer⟦.⟧");
  EXPECT_EQ(describe(preview, true), "\033[2mask:\033[22manswer\033[2m.\033[22m");
  EXPECT_EQ(preview_of(tokens_of("ab", "11"), &tokenizer).predicted, 1) << "the first token has none before it";
  EXPECT_EQ(describe(preview_of(tokens_of("ab", "01"), nullptr), false), "⟦97⟧98");
}

TEST(Preview, OfDocumentsApartShowsWhatBeginsOne) {
  const TempDir dir;
  const Corpus corpus({dir.write("a.txt", "ab"), dir.write("b.txt", "cd")}, 257);  // a b . c d .
  const std::unique_ptr<formats::Tokenizer> bytes = formats::make_byte_tokenizer();
  const Preview preview = preview_of(corpus, {1, 4}, bytes.get(), true);
  EXPECT_EQ(preview.predicted, 3);
  ASSERT_EQ(preview.parts.size(), 3U);
  EXPECT_EQ(preview.parts[1].text, "c");
  EXPECT_FALSE(preview.parts[1].is_learned);
  EXPECT_EQ(preview_of(corpus, {1, 4}, bytes.get(), false).predicted, 4);
}

TEST(Preview, MovesNoCursor) {
  const DoublingTokenizer tokenizer;
  const std::string text("a\n\r\t\x1b[2J\x7f\0\xC2\x9B\xFF", 13);
  EXPECT_EQ(describe(preview_of(tokens_of(text, std::string(13, '1')), &tokenizer), false),
            "a\\n\\r\\t\\x1b[2J\\x7f\\x00\\x9b\xEF\xBF\xBD");
}

TEST(Preview, OfALongTextShowsBothEnds) {
  const DoublingTokenizer tokenizer;
  std::string text = "begin";
  while (text.size() < 3000) text += "\xC3\xA9\xE2\x82\xAC";
  text += "end";
  const std::string shown =
      describe(preview_of(tokens_of(text, std::string(1500, '0') + std::string(text.size() - 1500, '1')), &tokenizer), false, 100);
  EXPECT_LT(shown.size(), 130U);
  EXPECT_TRUE(shown.starts_with("⟦begin")) << shown;
  EXPECT_TRUE(shown.ends_with("end")) << shown;
  EXPECT_THAT(shown, HasSubstr(" ... "));
  EXPECT_EQ(shown.find("\xEF\xBF\xBD"), std::string::npos) << "no character is cut: " << shown;
}

}  // namespace
}  // namespace sluice::data
