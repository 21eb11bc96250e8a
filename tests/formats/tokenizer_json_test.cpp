#include "formats/tokenizer_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "formats/tokenizer_fixtures.hpp"
#include "support/expect_error.hpp"
#include "support/mutations.hpp"

namespace sluice::formats {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::expect_error;

std::unique_ptr<Tokenizer> open(const json& file, const SpecialTokens& special = {}) {
  return tokenizer_from_json(file.dump(), "t.json", special);
}

/// a, b, ab and a few more; no stages.
json small() {
  return json::parse(
      R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "added_tokens": [{"id": 5, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                      "special": true}],
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
              "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3, "A": 4}, "merges": [["a", "b"]]}})");
}

json with(const std::string& pointer, const json& value) {
  json file = small();
  file[json::json_pointer(pointer)] = value;
  return file;
}

class GoldenTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTokenizer, GivesTheIdsOfTheLibrary) {
  const std::vector<std::string> texts = golden_texts();
  ASSERT_EQ(texts.size(), 1000u);
  const auto tokenizer = open_tokenizer(golden_tokenizer(GetParam()));
  GoldenReader expected(golden_tokenizer(GetParam()) + "/ids.bin");
  std::int64_t largest = 0;
  for (const std::string& text : texts) {
    const std::vector<std::int32_t> ids = encoded(*tokenizer, text);
    ASSERT_EQ(ids, expected.ids()) << '"' << text << '"';
    for (const std::int32_t id : ids) largest = std::max<std::int64_t>(largest, id);
  }
  EXPECT_TRUE(expected.is_done());
  EXPECT_LT(largest, tokenizer->vocabulary());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         ::testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "deepseek", "o200k", "llama2",
                                           "llama2_metaspace", "words", "spaces", "spm", "spm_legacy"),
                         [](const auto& instance) { return instance.param; });

TEST(TokenizerJson, DecodesWhatItEncodes) {
  for (const char* name : {"gpt2", "llama3", "smollm2", "deepseek", "o200k"}) {
    const auto tokenizer = open_tokenizer(golden_tokenizer(name));
    for (const std::string& text : golden_texts()) ASSERT_EQ(tokenizer->decode(encoded(*tokenizer, text), false), text) << name;
  }
  const auto llama = open_tokenizer(golden_tokenizer("llama2"));
  EXPECT_EQ(llama->decode(encoded(*llama, "  the \xE4\xB8\xAD<s> end"), false), "  the \xE4\xB8\xAD<s>  end")
      << "the prefix of the second part stays, as in the library";
  EXPECT_EQ(llama->decode(encoded(*llama, "the<s>end"), true), "the end");
}

TEST(TokenizerJson, DecodesPartsOfCharactersToTheirBytes) {
  const auto tokenizer = open_tokenizer(golden_tokenizer("gpt2"));
  const std::vector<std::int32_t> ids = encoded(*tokenizer, "\xF0\x9F\x9A\x80");  // a rocket, in no merge
  ASSERT_GT(ids.size(), 1u);
  std::string pieces;
  for (const std::int32_t id : ids) pieces += tokenizer->decode(std::vector{id}, false);
  EXPECT_EQ(pieces, "\xF0\x9F\x9A\x80");
}

TEST(TokenizerJson, KnowsItsTokens) {
  const auto llama3 = open_tokenizer(golden_tokenizer("llama3"));
  EXPECT_EQ(llama3->kind(), "bpe");
  const std::int32_t begin = *llama3->id_of("<|begin_of_text|>");
  EXPECT_EQ(llama3->begin_of_document(), begin) << "its template puts it there";
  EXPECT_EQ(llama3->end_of_document(), llama3->id_of("<|eot_id|>"));
  EXPECT_EQ(llama3->vocabulary(), begin + 5);
  EXPECT_EQ(llama3->decode(std::vector{begin}, false), "<|begin_of_text|>");
  EXPECT_EQ(llama3->decode(std::vector{begin}, true), "");
  EXPECT_EQ(llama3->id_of("no such token"), std::nullopt);
  const std::vector<std::int32_t> beyond{begin, 100000};
  const std::vector<std::int32_t> negative{-1};
  expect_error<RequestError>([&] { llama3->decode(beyond, false); }, {"token 1", "found 100000", "tokenizer.json"});
  expect_error<RequestError>([&] { llama3->decode(negative, false); }, {"token 0", "found -1"});
  EXPECT_EQ(open_tokenizer(golden_tokenizer("llama2"))->begin_of_document(), 1);
  EXPECT_EQ(open_tokenizer(golden_tokenizer("gpt2"))->begin_of_document(), std::nullopt) << "it has one, but doesn't add it by itself";
  EXPECT_EQ(open_tokenizer(golden_tokenizer("qwen2"))->begin_of_document(), std::nullopt);
  EXPECT_EQ(open_tokenizer(golden_tokenizer("words"))->end_of_document(), std::nullopt);
}

TEST(TokenizerJson, TakesSpecialTokensFromTheirFiles) {
  EXPECT_EQ(open(small())->end_of_document(), std::nullopt);
  EXPECT_EQ(open(small(), {.end = "<e>"})->end_of_document(), 5);
  EXPECT_EQ(open(small(), {.end_id = 4, .end_id_source = "config.json"})->end_of_document(), 4);
  EXPECT_EQ(open(small(), {.begin = "A", .adds_begin = true})->begin_of_document(), 4);
  EXPECT_EQ(open(small(), {.begin = "A"})->begin_of_document(), std::nullopt);
  EXPECT_EQ(open(small(), {.begin = "none"})->begin_of_document(), std::nullopt);
  // A token of the model that is named as special is found first: "ab" can't eat into "b".
  EXPECT_THAT(encoded(*open(small()), "ab"), ElementsAre(2));
  EXPECT_THAT(encoded(*open(small(), {.end = "b"}), "ab"), ElementsAre(0, 1));
  EXPECT_THAT(encoded(*open(small(), {.added = {{.id = 1, .content = "b"}, {.id = 77, .content = "unknown here"}}}), "ab"),
              ElementsAre(0, 1));
  expect_error<FormatError>([] { open(small(), {.source = "c.json", .end = "<x>"}); }, {"c.json", "eos_token", "\"<x>\"", "t.json"});
  expect_error<FormatError>([] { open(small(), {.source = "c.json", .begin = "<x>", .adds_begin = true}); }, {"c.json", "bos_token"});
  expect_error<FormatError>([] { open(small(), {.end_id = 6, .end_id_source = "config.json"}); }, {"config.json", "eos_token_id", "6"});
}

TEST(TokenizerJson, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = open_tokenizer(golden_tokenizer("gpt2"));
  expect_error<RequestError>([&] { encoded(*tokenizer, "ab\xFF"); }, {"not UTF-8", "byte 2"});
}

TEST(TokenizerJson, SkipsWhiteSpaceBesideAddedTokens) {
  json file = small();
  const auto flags = [&](bool word, bool left, bool right) {
    file["added_tokens"][0]["single_word"] = word;
    file["added_tokens"][0]["lstrip"] = left;
    file["added_tokens"][0]["rstrip"] = right;
    return encoded(*open(file), "a <e> b <e>a");
  };
  EXPECT_THAT(flags(false, false, false), ElementsAre(0, 3, 5, 3, 1, 3, 5, 0));
  EXPECT_THAT(flags(false, true, false), ElementsAre(0, 5, 3, 1, 5, 0));
  EXPECT_THAT(flags(false, false, true), ElementsAre(0, 3, 5, 1, 3, 5, 0));
  flags(false, false, false);
  file["added_tokens"][0]["content"] = "b";
  file["added_tokens"][0]["id"] = 1;
  EXPECT_THAT(encoded(*open(file), "ab b"), ElementsAre(0, 1, 3, 1));
  file["added_tokens"][0]["single_word"] = true;
  EXPECT_THAT(encoded(*open(file), "ab b"), ElementsAre(2, 3, 1));
}

TEST(TokenizerJson, ReadsOldSpellings) {
  json file = small();
  file["model"]["merges"] = {"#version: 0.2", "a b"};
  file["model"].erase("type");
  EXPECT_THAT(encoded(*open(file), "ab"), ElementsAre(2));
  EXPECT_EQ(open(file)->fingerprint(), open(small())->fingerprint()) << "the same ids, so the same fingerprint";
}

TEST(TokenizerJson, FingerprintsWhatDecidesIds) {
  const std::uint64_t base = open(small())->fingerprint();
  EXPECT_EQ(open(json::parse(small().dump(4)))->fingerprint(), base);
  EXPECT_EQ(open(with("/decoder", nullptr))->fingerprint(), base);
  EXPECT_NE(open(with("/model/merges", json::array()))->fingerprint(), base);
  EXPECT_NE(open(with("/model/vocab/A", 9))->fingerprint(), base);
  EXPECT_NE(open(with("/normalizer", {{"type", "NFC"}}))->fingerprint(), base);
  EXPECT_NE(open(with("/pre_tokenizer", {{"type", "WhitespaceSplit"}}))->fingerprint(), base);
  EXPECT_NE(open(with("/added_tokens/0/lstrip", true))->fingerprint(), base);
  EXPECT_NE(open(with("/model/ignore_merges", true))->fingerprint(), base);
  EXPECT_NE(open(small(), {.end = "<e>"})->fingerprint(), base);
}

TEST(TokenizerJson, RefusesPartsByName) {
  const auto refuse = [](const std::string& pointer, const json& value, const std::vector<std::string>& pieces) {
    std::vector<std::string> all = pieces;
    all.emplace_back("t.json");
    expect_error<RequestError>([&] { open(with(pointer, value)); }, all);
  };
  for (const char* type : {"WordPiece", "Unigram", "WordLevel"}) refuse("/model/type", type, {type, "supported is BPE"});
  refuse("/model/dropout", 0.1, {"model", "dropout"});
  refuse("/model/continuing_subword_prefix", "##", {"continuing_subword_prefix"});
  refuse("/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"});
  refuse("/model/new_thing", true, {"model.new_thing", "unknown"});
  for (const char* type : {"BertNormalizer", "Precompiled", "Nmt", "StripAccents", "ByteLevel"})
    refuse("/normalizer", {{"type", type}}, {"normalizer", type});
  for (const char* type : {"BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "FixedLength"}) {
    refuse("/pre_tokenizer", {{"type", type}}, {"pre_tokenizer", type});
  }
  for (const char* type : {"WordPiece", "CTC", "BPEDecoder"}) refuse("/decoder", {{"type", type}}, {"decoder", type});
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) refuse("/post_processor", {{"type", type}}, {"post_processor", type});
  refuse("/pre_tokenizer", json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Odd"}]})"),
         {"pre_tokenizer.pretokenizers[1]", "Odd"});
  refuse("/pre_tokenizer", json::parse(R"({"type": "Split", "pattern": {"Regex": "(a)\\1"}, "behavior": "Isolated", "invert": false})"),
         {"pre_tokenizer.pattern.Regex", "\\1"});
  refuse("/pre_tokenizer", {{"type", "WhitespaceSplit"}, {"extra", 1}}, {"pre_tokenizer.extra"});
  refuse("/decoder", json::parse(R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""})"), {"decoder", "regular expression"});
  refuse("/version", "2.0", {"version", "2.0"});
  json file = with("/normalizer", {{"type", "NFC"}});
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  expect_error<RequestError>([&] { open(file); }, {"Metaspace", "first"});
}

TEST(TokenizerJson, NamesThePlaceOfDamage) {
  const auto damaged = [](const std::string& pointer, const json& value, const std::vector<std::string>& pieces) {
    std::vector<std::string> all = pieces;
    all.emplace_back("t.json");
    expect_error<FormatError>([&] { open(with(pointer, value)); }, all);
  };
  damaged("/model/vocab/b", -1, {"model.vocab.b", "-1"});
  damaged("/model/vocab/b", 1.5, {"model.vocab.b", "1.5"});
  damaged("/model/vocab/b", "1", {"model.vocab.b"});
  damaged("/model/vocab/b", 2147483647, {"model.vocab.b"});
  damaged("/model/vocab/b", 0, {"\"a\" and \"b\"", "same id, 0"});
  damaged("/model/vocab", json::array(), {"model.vocab", "an object"});
  damaged("/model/merges/0", "ab", {"model.merges[0]"});
  damaged("/model/merges/0", "a b c", {"model.merges[0]"});
  damaged("/model/merges/0", json({"a", "b", "c"}), {"model.merges[0]"});
  damaged("/model/merges/0", json({"a", "z"}), {"model.merges[0]", "\"z\""});
  damaged("/model/merges/0", json({"b", "a"}), {"model.merges[0]", "\"ba\""});
  damaged("/model/merges", nullptr, {"model.merges", "missing"});
  damaged("/model/fuse_unk", 1, {"model.fuse_unk", "true or false"});
  damaged("/model", json::array(), {"model", "an object"});
  damaged("/added_tokens/0/id", 9, {"added_tokens[0]", "\"<e>\" has id 9", "is 5"});
  damaged("/added_tokens/0/id", -1, {"added_tokens[0].id"});
  damaged("/added_tokens/0/content", "", {"added_tokens[0].content"});
  damaged("/added_tokens/0/content", "a", {"added_tokens[0]", "id 5", "0"});
  damaged("/added_tokens/0/lstrip", nullptr, {"added_tokens[0].lstrip"});
  damaged("/added_tokens", 3, {"added_tokens"});
  damaged("/normalizer", "NFC", {"normalizer", "an object"});
  damaged("/normalizer", json::object(), {"normalizer.type", "missing"});
  damaged("/pre_tokenizer", json::parse(R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false})"),
          {"pre_tokenizer.pattern.Regex", "not a regular expression"});
  damaged("/pre_tokenizer", json::parse(R"({"type": "Split", "pattern": {"String": "x"}, "behavior": "Odd", "invert": false})"),
          {"pre_tokenizer.behavior", "Odd"});
  damaged("/decoder", json::parse(R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})"), {"decoder.content", "one character"});
  damaged("/decoder", json::parse(R"({"type": "Strip", "content": "a", "start": -1, "stop": 0})"), {"decoder.start"});
  json twice = small();
  twice["added_tokens"].push_back(twice["added_tokens"][0]);
  expect_error<FormatError>([&] { open(twice); }, {"added_tokens[1]", "twice"});
  json holes = with("/model/vocab/A", 5);
  expect_error<FormatError>([&] { open(holes); }, {"added_tokens[0]", "id 5", "\"A\""});
  json alike = with("/normalizer", {{"type", "Lowercase"}});
  alike["added_tokens"][0]["normalized"] = true;
  alike["added_tokens"].push_back(alike["added_tokens"][0]);
  alike["added_tokens"][1]["content"] = "<E>";
  alike["added_tokens"][1]["id"] = 6;
  expect_error<FormatError>([&] { open(alike); }, {"\"<E>\"", "the same as \"<e>\""});
  expect_error<FormatError>([] { tokenizer_from_json(R"({"model": {"vocab": {"a": 0, "a": 1}}})", "t.json", {}); },
                            {"model.vocab.a", "twice"});
  expect_error<FormatError>([] { tokenizer_from_json("{\"model\": ", "t.json", {}); }, {"t.json", "not valid JSON"});
  expect_error<FormatError>([] { tokenizer_from_json(std::string(100'000, '['), "t.json", {}); }, {"nested"});
  expect_error<FormatError>([] { tokenizer_from_json("[]", "t.json", {}); }, {"an object"});
  expect_error<FormatError>([] { tokenizer_from_json("{}", "t.json", {}); }, {"model", "missing"});
}

TEST(TokenizerJson, TakesIdsWithHoles) {
  json file = with("/model/vocab", {{"a", 7}, {"b", 100}, {"ab", 2000000000}});
  file["added_tokens"] = json::array();
  const auto tokenizer = open(file);
  EXPECT_THAT(encoded(*tokenizer, "aab"), ElementsAre(7, 2000000000));
  EXPECT_EQ(tokenizer->vocabulary(), 2000000001);
}

TEST(TokenizerJson, EncodesTheSameFromManyThreads) {
  const auto tokenizer = open_tokenizer(golden_tokenizer("llama3"));
  const std::vector<std::string> texts = golden_texts();
  std::vector<std::vector<std::int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) tokenizer->encode(text, result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results.front());
  EXPECT_GT(results.front().size(), 5'000u);
}

TEST(TokenizerJson, KeepsItsAnswersWhenTheCacheIsFull) {
  const auto tokenizer = open_tokenizer(golden_tokenizer("gpt2"));
  std::vector<std::int32_t> first = encoded(*tokenizer, " the quick 0");
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += " w" + std::string(1, static_cast<char>('a' + i % 26)) + std::to_string(i);
  const std::vector<std::int32_t> once = encoded(*tokenizer, many);
  EXPECT_EQ(encoded(*tokenizer, many), once);
  EXPECT_EQ(tokenizer->decode(once, false), many);
  EXPECT_EQ(encoded(*tokenizer, " the quick 0"), first);
}

TEST(TokenizerJson, TakesHostileTexts) {
  std::string letters;
  std::mt19937 random(7);
  for (std::size_t i = 0; i < 1'000'000; ++i) letters += static_cast<char>('a' + random() % 26);
  for (const std::string name :
       {"gpt2", "llama3", "qwen2", "smollm2", "deepseek", "o200k", "llama2", "llama2_metaspace", "spaces", "words", "spm"}) {
    const auto tokenizer = open_tokenizer(golden_tokenizer(name));
    const std::size_t length = name == "gpt2" || name == "llama2" ? 1'000'000 : 100'000;
    for (const std::string& text : {std::string(length, 'a'), std::string(length, ' '), std::string(length, '\n'), std::string(length, '7'),
                                    letters.substr(0, length)}) {
      const std::vector<std::int32_t> ids = encoded(*tokenizer, text);
      EXPECT_LE(ids.size(), length + 1) << name;
      const std::string back = tokenizer->decode(ids, false);
      // Those drop spaces or letters, or don't tell a first space from their prefix.
      const bool loses = name == "words" || name == "spaces" || ((name == "llama2_metaspace" || name == "spm") && text[0] == ' ');
      if (!loses) {
        EXPECT_TRUE(back == text) << name << ": " << text.substr(0, 3);
      }
    }
  }
}

/// A mutated file is read, or refused with one of our errors; never anything else.
TEST(TokenizerJson, SurvivesMutations) {
  std::mt19937 random(2024);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int refused = 0;
  int read = 0;
  const auto attempt = [&](const std::string& text) {
    try {
      const auto tokenizer = tokenizer_from_json(text, "t.json", {});
      const std::vector<std::int32_t> ids = encoded(*tokenizer, "The  quick 123 \xC3\xA9\xE4\xB8\xAD<|im_start|><s> don't\n\n");
      tokenizer->decode(ids, true);
      ++read;
    } catch (const FormatError&) {
      ++refused;
    } catch (const RequestError&) {
      ++refused;
    }
  };
  const int rounds = sluice::testing::mutation_rounds() / 8;  // of each of four files and two kinds
  // Bytes of whole files, and values of small ones.
  for (const char* name : {"gpt2_prefix", "llama2", "words", "o200k"}) {
    const std::string original = file_bytes(golden_tokenizer(name) + "/tokenizer.json");
    for (int i = 0; i < rounds; ++i) {
      std::string text = original;
      for (std::size_t change = 0; change <= below(3); ++change) {
        const std::size_t at = i % 2 == 0 ? below(std::min<std::size_t>(text.size(), 2500)) : below(text.size());
        switch (below(4)) {
          case 0:
            text[at] = static_cast<char>(below(256));
            break;
          case 1:
            text.erase(at, 1 + below(20));
            break;
          case 2:
            text.insert(at, text.substr(below(text.size()), 1 + below(20)));
            break;
          default:
            text.resize(text.size() - below(text.size() / 4));
            break;
        }
      }
      attempt(text);
    }
    const json parsed = json::parse(original);
    const json flat = parsed.flatten();
    std::vector<std::string> places;
    for (const auto& [place, value] : flat.items()) {
      const bool is_one_of_many = place.starts_with("/model/vocab") || place.starts_with("/model/merges");
      if (!is_one_of_many || below(40) == 0) places.push_back(place);
    }
    const std::vector<json> values{nullptr,       true,           -1,         0,           1.5,    4294967296, "", "(", "x", "\xE2\x96\x81",
                                   json::array(), json::object(), "Sequence", "ByteLevel", "first"};
    for (int i = 0; i < rounds; ++i) {
      json changed = parsed;
      changed[json::json_pointer(places[below(places.size())])] = values[below(values.size())];
      attempt(changed.dump());
    }
  }
  EXPECT_EQ(refused + read, 8 * rounds);
  EXPECT_GT(refused, 2 * rounds);
  EXPECT_GT(read, rounds / 2);
}

}  // namespace
}  // namespace sluice::formats
