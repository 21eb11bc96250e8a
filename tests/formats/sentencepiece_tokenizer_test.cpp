#include "formats/sentencepiece_tokenizer.hpp"

#include <random>

#include "base/error.hpp"
#include "formats/tokenizer_fixtures.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using testing::expect_error;
using testing::TempDir;

std::string model_bytes() {
  return file_bytes(golden_tokenizer("spm/tokenizer.model"));
}

std::unique_ptr<Tokenizer> open(const SpecialTokens& special) {
  return tokenizer_from_sentencepiece(model_bytes(), "t.model", special);
}

TEST(SentencePieceTokenizer, KnowsItsTokens) {
  const auto tokenizer = open_tokenizer(golden_tokenizer("spm"));
  EXPECT_EQ(tokenizer->kind(), "sentencepiece");
  EXPECT_EQ(tokenizer->vocabulary(), 502);
  EXPECT_EQ(tokenizer->begin_of_document(), 1);
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  EXPECT_EQ(tokenizer->id_of("<unk>"), 0);
  EXPECT_EQ(tokenizer->id_of("<|im_end|>"), 501);
  EXPECT_EQ(tokenizer->id_of("<0x0A>"), 13);
  EXPECT_EQ(tokenizer->id_of("no such piece"), std::nullopt);
  EXPECT_EQ(open({})->begin_of_document(), std::nullopt) << "only where add_bos_token says so";
  EXPECT_EQ(open({})->end_of_document(), 2) << "the model's own";
  EXPECT_EQ(open({})->vocabulary(), 500);
  EXPECT_EQ(open({.end = "<0x0A>"})->end_of_document(), 13);
  EXPECT_EQ(open({.end_id = 7})->end_of_document(), 7);
}

TEST(SentencePieceTokenizer, PutsPrefixesAsTheConfigurationSays) {
  const auto ids = [](std::optional<bool> legacy, const char* tokenizer_class, const char* text) {
    return encoded(*open({.tokenizer_class = tokenizer_class, .legacy = legacy}), text);
  };
  EXPECT_NE(ids(true, "", "a<s>a"), ids(false, "", "a<s>a")) << "only the first part has a prefix";
  EXPECT_NE(ids(true, "", " a"), ids(false, "", " a")) << "none before a space";
  EXPECT_EQ(ids(true, "", "the word"), ids(false, "", "the word"));
  EXPECT_EQ(ids({}, "", "a<s>a"), ids(true, "", "a<s>a"));
  EXPECT_EQ(ids({}, "LlamaTokenizer", "a<s>a"), ids(false, "", "a<s>a"));
  EXPECT_NE(open({.legacy = true})->fingerprint(), open({.legacy = false})->fingerprint());
}

TEST(SentencePieceTokenizer, DecodesWhatItEncodes) {
  const auto tokenizer = open_tokenizer(golden_tokenizer("spm_legacy"));
  for (const std::string& text : golden_texts()) {
    if (text.find("<") != std::string::npos || text.find("\xE2\x96\x81") != std::string::npos) continue;  // other parts, other spaces
    ASSERT_EQ(tokenizer->decode(encoded(*tokenizer, text), false), text);
  }
  EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, "a<|im_start|>b<|im_end|>"), true), "a b<|im_end|>") << "only one of them is special";
  const std::vector<std::int32_t> beyond{502};
  expect_error<RequestError>([&] { tokenizer->decode(beyond, false); }, {"token 0", "found 502"});
  EXPECT_EQ(tokenizer->decode({}, false), "");
}

TEST(SentencePieceTokenizer, RefusesWhatContradictsTheModel) {
  expect_error<FormatError>([] { open({.source = "c.json", .added = {{.id = 7, .content = "<s>"}}}); },
                            {"c.json", "\"<s>\"", "id 7", "piece 1"});
  expect_error<FormatError>(
      [] {
        open({.source = "c.json", .added = {{.id = 600, .content = "<x>"}, {.id = 600, .content = "<y>"}}});
      },
      {"c.json", "600"});
  expect_error<FormatError>([] { open({.source = "c.json", .end = "<x>"}); }, {"c.json", "eos_token", "\"<x>\""});
  expect_error<FormatError>([] { open({.end_id = 500, .end_id_source = "config.json"}); }, {"config.json", "eos_token_id"});
  // normalizer_spec { remove_extra_whitespaces: true } behind the model counts.
  const std::string model = model_bytes() + std::string("\x1A\x02\x20\x01", 4);
  expect_error<RequestError>([&] { tokenizer_from_sentencepiece(model, "t.model", {.legacy = false}); },
                             {"t.model", "legacy", "extra spaces"});
  EXPECT_TRUE(tokenizer_from_sentencepiece(model, "t.model", {.legacy = true}));
  expect_error<RequestError>([] { encoded(*open({}), "a\xFF"); }, {"not UTF-8", "byte 1"});
}

TEST(SentencePieceTokenizer, RefusesDamagedModels) {
  const std::string model = model_bytes();
  expect_error<FormatError>([] { tokenizer_from_sentencepiece("", "t.model", {}); }, {"t.model", "no pieces"});
  expect_error<FormatError>([] { tokenizer_from_sentencepiece("IQ== 0\nIg== 1\n", "t.model", {}); }, {"t.model", "SentencePiece"});
  expect_error<FormatError>([&] { tokenizer_from_sentencepiece(model.substr(0, model.size() / 2), "t.model", {}); },
                            {"t.model", "SentencePiece"});
}

TEST(SentencePieceTokenizer, SurvivesMutations) {
  std::mt19937 random(99);
  const std::string original = model_bytes();
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string model = original;
    for (std::size_t change = 0; change <= random() % 3; ++change) model[random() % model.size()] = static_cast<char>(random() % 256);
    if (i % 5 == 0) model.resize(random() % model.size());
    try {
      const auto tokenizer = tokenizer_from_sentencepiece(model, "t.model", {});
      tokenizer->decode(encoded(*tokenizer, "The quick \xC3\xA9 123\n"), true);
    } catch (const FormatError&) {
      ++refused;
    } catch (const RequestError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 60);
  EXPECT_LT(refused, 300);
}

}  // namespace
}  // namespace sluice::formats
