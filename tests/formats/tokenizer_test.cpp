#include "formats/tokenizer.hpp"

#include "base/error.hpp"
#include "formats/byte_tokenizer.hpp"
#include "formats/tokenizer_fixtures.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TempDir;

constexpr const char* kSmall =
    R"({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<e>": 2, "<s>": 3}, "merges": []}})";

TEST(ByteTokenizerInterface, EveryByteIsItsToken) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->kind(), "bytes");
  EXPECT_EQ(tokenizer->vocabulary(), kByteVocabulary);
  EXPECT_THAT(encoded(*tokenizer, std::string("A\0\xFF", 3)), ElementsAre(65, 0, 255));
  const std::vector<std::int32_t> ids{'a', kEndOfDocument, 'b'};
  EXPECT_EQ(tokenizer->decode(ids, false), "ab");
  EXPECT_EQ(tokenizer->end_of_document(), kEndOfDocument);
  EXPECT_EQ(tokenizer->begin_of_document(), std::nullopt);
  EXPECT_EQ(tokenizer->id_of("\xFF"), 255);
  EXPECT_EQ(tokenizer->id_of("ab"), std::nullopt);
  EXPECT_EQ(tokenizer->fingerprint(), make_byte_tokenizer()->fingerprint());
  const std::vector<std::int32_t> bad{0, 257};
  expect_error<RequestError>([&] { tokenizer->decode(bad, true); }, {"token 1", "found 257"});
}

TEST(DecodeForShow, WhatTheTokenizerDoesNotHaveIsReplaced) {
  const auto tokenizer = make_byte_tokenizer();
  const auto shown = [&](const std::vector<std::int32_t>& ids) { return decode_for_show(*tokenizer, ids, true); };
  EXPECT_EQ(shown({'h', 'i'}), "hi");
  EXPECT_EQ(shown({530, 'h', 'i', 9999, 600}), "\xEF\xBF\xBDhi\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(shown({}), "");
}

TEST(OpenTokenizer, FindsTheFile) {
  const TempDir directory;
  EXPECT_EQ(open_tokenizer(directory.path()), nullptr);
  directory.write("vocab.json", "{}");
  EXPECT_EQ(open_tokenizer(directory.path()), nullptr);
  directory.write("tokenizer.model", file_bytes(golden_tokenizer("spm/tokenizer.model")));
  EXPECT_EQ(open_tokenizer(directory.path())->kind(), "sentencepiece");
  directory.write("tokenizer.json", kSmall);
  EXPECT_EQ(open_tokenizer(directory.path())->kind(), "bpe");
  directory.write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_EQ(open_tokenizer(directory.path())->kind(), "sentencepiece") << "what the library can do better than we";
  directory.write("tokenizer.json", R"({"model": {"type": "WordPiece"}})");
  expect_error<RequestError>([&] { open_tokenizer(directory.path()); }, {directory.path(), "tokenizer.json", "WordPiece"});
}

TEST(OpenTokenizer, ReadsSpecialTokens) {
  const TempDir directory;
  directory.write("tokenizer.json", kSmall);
  const auto end = [&] { return open_tokenizer(directory.path())->end_of_document(); };
  const auto begin = [&] { return open_tokenizer(directory.path())->begin_of_document(); };
  EXPECT_EQ(end(), std::nullopt);
  directory.write("config.json", R"({"eos_token_id": 1})");
  EXPECT_EQ(end(), 1);
  directory.write("generation_config.json", R"({"eos_token_id": [2, 1]})");
  EXPECT_EQ(end(), 2);
  directory.write("special_tokens_map.json", R"({"eos_token": {"content": "<s>"}, "bos_token": "a"})");
  EXPECT_EQ(end(), 3);
  directory.write("tokenizer_config.json", R"({"eos_token": "<e>", "bos_token": null, "add_bos_token": true})");
  EXPECT_EQ(end(), 2);
  EXPECT_EQ(begin(), 0) << "named by special_tokens_map.json, added by tokenizer_config.json";
  directory.write("tokenizer_config.json",
                  R"({"eos_token": {"__type": "AddedToken", "content": "b", "lstrip": false}, "bos_token": "<s>"})");
  EXPECT_EQ(end(), 1);
  EXPECT_EQ(begin(), std::nullopt);
  directory.write("tokenizer_config.json", R"({"added_tokens_decoder": {"0": {"content": "a", "lstrip": true, "special": true}}})");
  const auto tokenizer = open_tokenizer(directory.path());
  EXPECT_THAT(encoded(*tokenizer, "b a"), ElementsAre(1, 0));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{1, 0}, true), "b");
}

TEST(OpenTokenizer, ReadsAddedTokensOfOldDirectories) {
  const TempDir directory;
  directory.write("tokenizer.model", file_bytes(golden_tokenizer("spm/tokenizer.model")));
  directory.write("added_tokens.json", R"({"<pad>": 500, "<more>": 501})");
  directory.write("special_tokens_map.json", R"({"pad_token": "<pad>"})");
  const auto tokenizer = open_tokenizer(directory.path());
  EXPECT_EQ(tokenizer->vocabulary(), 502);
  EXPECT_EQ(tokenizer->id_of("<more>"), 501);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{501, 500}, true), "<more>");
  directory.write("added_tokens.json", R"({"<pad>": -1})");
  expect_error<FormatError>([&] { open_tokenizer(directory.path()); }, {"added_tokens.json", "<pad>"});
}

TEST(OpenTokenizer, NamesTheFileThatIsDamaged) {
  const TempDir directory;
  directory.write("tokenizer.json", kSmall);
  const auto refuse = [&](const std::string& name, const std::string& text, const std::vector<std::string>& pieces) {
    directory.write(name, text);
    std::vector<std::string> all = pieces;
    all.push_back(name);
    expect_error<FormatError>([&] { open_tokenizer(directory.path()); }, all);
    std::filesystem::remove(directory / name);
  };
  refuse("tokenizer_config.json", "{", {"not valid JSON"});
  refuse("tokenizer_config.json", "[]", {"an object"});
  refuse("tokenizer_config.json", R"({"eos_token": 3})", {"eos_token", "3"});
  refuse("tokenizer_config.json", R"({"eos_token": "none"})", {"eos_token", "\"none\""});
  refuse("tokenizer_config.json", R"({"add_bos_token": "yes"})", {"add_bos_token", "true or false"});
  refuse("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})", {"added_tokens_decoder.x"});
  refuse("tokenizer_config.json", R"({"added_tokens_decoder": {"0": {}}})", {"added_tokens_decoder.0", "content"});
  refuse("special_tokens_map.json", R"({"bos_token": []})", {"bos_token"});
  refuse("config.json", R"({"eos_token_id": 17})", {"eos_token_id", "17"});
  refuse("config.json", R"({"eos_token_id": "x"})", {"eos_token_id", "\"x\""});
  refuse("generation_config.json", R"({"eos_token_id": [-1]})", {"eos_token_id", "-1"});
  EXPECT_TRUE(open_tokenizer(directory.path()));
}

TEST(OpenTokenizer, RefusesGiantFiles) {
  const TempDir directory;
  const std::string path = directory.write("tokenizer.json", kSmall);
  std::filesystem::resize_file(path, (std::uintmax_t{256} << 20) + 1);
  expect_error<FormatError>([&] { open_tokenizer(directory.path()); }, {"tokenizer.json"});
}

}  // namespace
}  // namespace sluice::formats
