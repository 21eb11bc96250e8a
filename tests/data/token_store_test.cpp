#include "data/token_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.hpp"
#include "data/corpus.hpp"
#include "data/doubling_tokenizer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using sluice::testing::expect_error;
using sluice::testing::TempDir;
using testing::DoublingTokenizer;
using ::testing::ElementsAre;

/// Documents of random lengths and masks.
std::vector<EncodedDocument> sample_documents(int count, std::int32_t vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<EncodedDocument> documents(static_cast<std::size_t>(count));
  for (EncodedDocument& document : documents) {
    const std::size_t length = 1 + random() % 40;
    for (std::size_t i = 0; i < length; ++i) {
      document.ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary)));
      document.learned.push_back(random() % 3 == 0 ? 0 : 1);
    }
  }
  return documents;
}

void write_store(const std::string& path, const std::vector<EncodedDocument>& documents, std::int64_t vocabulary) {
  TokenStoreWriter writer(path, vocabulary);
  for (const EncodedDocument& document : documents) writer.add(document);
  writer.finish({1, 2, 3});
}

TEST(TokenStore, GivesBackWhatWasAdded) {
  for (const std::int32_t vocabulary : {65536, 65537, 2'000'000'000}) {
    const TempDir dir;
    const std::vector<EncodedDocument> documents = sample_documents(500, vocabulary, 3);
    write_store(dir / "deep/store", documents, vocabulary);
    EXPECT_FALSE(fs::exists(dir / ("deep/store.tmp." + std::to_string(getpid()))));
    const TokenStore store(dir / "deep/store", true);
    EncodedDocument all;
    std::vector<std::int64_t> begins{0};
    std::size_t longest = 0;
    for (const EncodedDocument& document : documents) {
      all.ids.insert(all.ids.end(), document.ids.begin(), document.ids.end());
      all.learned.insert(all.learned.end(), document.learned.begin(), document.learned.end());
      begins.push_back(static_cast<std::int64_t>(all.ids.size()));
      longest = std::max(longest, document.ids.size());
    }
    const auto tokens = static_cast<std::int64_t>(all.ids.size());
    EXPECT_EQ(
        store.counts(),
        (StoreCounts{tokens, std::count(all.learned.begin(), all.learned.end(), 1), 500, static_cast<std::int64_t>(longest), {1, 2, 3}}));
    EXPECT_EQ(fs::file_size(dir / "deep/store/ids"), static_cast<std::uintmax_t>(tokens * (vocabulary <= 65536 ? 2 : 4)));
    ASSERT_TRUE(store.has_mask());
    for (std::int64_t begin = 0; begin < tokens; begin += 331) {
      for (std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{8}, std::int64_t{9}, std::int64_t{1000}}) {
        count = std::min(count, tokens - begin);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
        std::vector<std::uint8_t> learned(ids.size(), 9);
        store.read(begin, count, ids.data());
        store.read_mask(begin, count, learned.data());
        ASSERT_TRUE(std::equal(ids.begin(), ids.end(), all.ids.begin() + begin)) << begin << " " << count;
        ASSERT_TRUE(std::equal(learned.begin(), learned.end(), all.learned.begin() + begin)) << begin << " " << count;
      }
    }
    std::vector<std::int64_t> found(501);
    store.read_begins(0, 501, found.data());
    EXPECT_EQ(found, begins);
    EXPECT_THROW(store.read(tokens, 1, nullptr), LogicError);
    EXPECT_THROW(store.read_begins(500, 2, nullptr), LogicError);
  }
}

TEST(TokenStore, LongMasksAreReadInPieces) {
  const TempDir dir;
  EncodedDocument document;
  for (int i = 0; i < 300'000; ++i) {
    document.ids.push_back(i % 1000);
    document.learned.push_back(i % 7 == 3 ? 0 : 1);
  }
  write_store(dir / "s", {document}, 1000);
  const TokenStore store(dir / "s", true);
  std::vector<std::uint8_t> learned(299'990);
  store.read_mask(10, 299'990, learned.data());
  for (std::size_t i = 0; i < learned.size(); ++i) ASSERT_EQ(learned[i], (i + 10) % 7 == 3 ? 0 : 1) << i;
}

TEST(TokenStore, WithoutAMaskNoneIsStored) {
  const TempDir dir;
  write_store(dir / "s", {{{1, 2, 3}, {1, 1, 1}}}, 10);
  EXPECT_FALSE(fs::exists(dir / "s/mask"));
  const TokenStore store(dir / "s", true);
  EXPECT_FALSE(store.has_mask());
  std::vector<std::uint8_t> learned(2);
  store.read_mask(1, 2, learned.data());
  EXPECT_THAT(learned, ElementsAre(1, 1));
}

TEST(TokenStore, AnUnfinishedOneLeavesNothing) {
  const TempDir dir;
  {
    TokenStoreWriter writer(dir / "tokens/s", 10);
    writer.add({{1}, {1}});
    EXPECT_TRUE(fs::exists(dir / ("tokens/s.tmp." + std::to_string(getpid()))));
  }
  EXPECT_TRUE(fs::is_empty(dir / "tokens"));
}

TEST(TokenStore, ReplacesAnEarlierOne) {
  const TempDir dir;
  dir.write("s.tmp." + std::to_string(getpid()) + "/ids", "of a process that was killed");
  write_store(dir / "s", {{{1, 2}, {1, 0}}}, 10);
  write_store(dir / "s", {{{3}, {1}}}, 10);
  const TokenStore store(dir / "s", true);
  EXPECT_EQ(store.counts().tokens, 1);
  EXPECT_FALSE(fs::exists(dir / "s/mask")) << "the earlier one's mask is gone with it";
}

TEST(TokenStore, EveryDamagedByteIsFound) {
  const TempDir dir;
  write_store(dir / "whole", sample_documents(20, 1000, 1), 1000);
  int damages = 0;
  for (const char* name : {"ids", "mask", "documents", "header"}) {
    const auto bytes = static_cast<std::int64_t>(fs::file_size(dir / ("whole/" + std::string(name))));
    for (std::int64_t at = 0; at < bytes; at += std::max<std::int64_t>(1, bytes / 25)) {
      fs::remove_all(dir / "s");
      fs::copy(dir / "whole", dir / "s");
      std::fstream file(dir / ("s/" + std::string(name)), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const auto before = static_cast<char>(file.get());
      file.seekp(at);
      file.put(static_cast<char>(before ^ 0x10));
      file.close();
      EXPECT_THROW(TokenStore(dir / "s", true), FormatError) << name << " byte " << at;
      ++damages;
    }
    fs::remove_all(dir / "s");
    fs::copy(dir / "whole", dir / "s");
    fs::resize_file(dir / ("s/" + std::string(name)), static_cast<std::uintmax_t>(bytes) - 1);
    EXPECT_THROW(TokenStore(dir / "s", false), FormatError) << name << " cut short, seen without reading it";
    fs::remove(dir / ("s/" + std::string(name)));
    EXPECT_THROW(TokenStore(dir / "s", false), IoError) << name << " is missing";
  }
  EXPECT_GT(damages, 90);
}

TEST(TokenStore, TokenisesDocumentsOnceAndTellsHowFar) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += "{\"prompt\": \"q" + std::to_string(i) + "\", \"completion\": \"aa\"}\n";
  const SourceFiles files = find_files({dir.write("a.jsonl", lines)});
  const CorpusOptions options;
  const DoublingTokenizer tokenizer;
  std::vector<TokeniseProgress> told;
  const auto make = [&](const std::function<bool(const TokeniseProgress&)>& watch) {
    DocumentReader reader(files, options, Shape::kCompletion, nullptr);
    return make_store(dir / "tokens/s", reader, files.bytes(), tokenizer, watch);
  };
  EXPECT_FALSE(make([&](const TokeniseProgress& now) { return now.documents < 10; })) << "asked to stop";
  EXPECT_TRUE(fs::is_empty(dir / "tokens"));
  ASSERT_TRUE(make([&](const TokeniseProgress& now) {
    told.push_back(now);
    return true;
  }));
  ASSERT_EQ(told.size(), 50U);
  EXPECT_EQ(told.back().documents, 50);
  EXPECT_EQ(told.back().bytes, files.bytes());
  EXPECT_EQ(told.back().bytes_total, files.bytes());

  const Corpus corpus(files, std::make_shared<TokenStore>(dir / "tokens/s", true), tokenizer.kind());
  EXPECT_EQ(corpus.tokens(), told.back().tokens);
  EXPECT_EQ(corpus.documents(), 50);
  EXPECT_EQ(corpus.learned(), 100);  // "aa" and the end, of each
  std::vector<std::int32_t> ids(8);
  std::vector<std::uint8_t> learned(8);
  corpus.read(0, 8, ids.data());
  corpus.read_mask(0, 8, learned.data());
  EXPECT_THAT(ids, ElementsAre('q', '0', 256 + 'a', 512, 'q', '1', 256 + 'a', 512));
  EXPECT_THAT(learned, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_EQ(corpus.place(6), "document 1, token 2");
  EXPECT_EQ(corpus.tokenizer(), "bpe");

  // Parts of it keep their masks.
  const auto [train, valid] = corpus.split(0.2, 3);
  EXPECT_EQ(valid.documents(), 10);
  EXPECT_EQ(train.learned() + valid.learned(), 100);
  EXPECT_EQ(valid.learned(), 20);
  std::vector<std::int64_t> begins(11);
  valid.read_begins(0, 11, begins.data());
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    std::vector<std::int32_t> document(static_cast<std::size_t>(begins[i + 1] - begins[i]));
    valid.read(begins[i], begins[i + 1] - begins[i], document.data());
    EXPECT_EQ(document.front(), 'q');
    EXPECT_EQ(document.back(), 512);
  }
}

TEST(TokenStore, IdentityTellsFilesTokenizerAndOptions) {
  const TempDir dir;
  const DoublingTokenizer tokenizer;
  const std::string path = dir.write("a.jsonl", "{\"text\": \"a\"}");
  SourceFiles files = find_files({path});
  CorpusOptions options;
  const auto identity = [&](Shape shape = Shape::kText, std::uint64_t chat = 0) {
    return store_identity(files, options, shape, tokenizer, chat);
  };
  const std::uint64_t base = identity();
  EXPECT_EQ(identity(), base);
  EXPECT_NE(identity(Shape::kChat, 0), base);
  EXPECT_NE(identity(Shape::kText, 1), base);
  options.invalid_utf8 = InvalidUtf8::kSkip;
  EXPECT_NE(identity(), base);
  options = {};
  options.packing = Packing::kPad;
  EXPECT_EQ(identity(), base) << "packing changes no token";
  files.files[0].modified_ns += 1;
  EXPECT_NE(identity(), base);
  files.files[0].modified_ns -= 1;
  files.files[0].path = "/elsewhere/a.jsonl";
  EXPECT_EQ(identity(), base) << "folders don't count";
}

TEST(TokenStore, OthersAreRemoved) {
  const TempDir dir;
  for (const char* name : {"tokens/a", "tokens/b", "tokens/c.tmp.17"}) write_store(dir / name, {{{1}, {1}}}, 10);
  remove_other_stores(dir / "tokens", {dir / "tokens/b"});
  EXPECT_FALSE(fs::exists(dir / "tokens/a"));
  EXPECT_FALSE(fs::exists(dir / "tokens/c.tmp.17"));
  EXPECT_EQ(TokenStore(dir / "tokens/b", true).counts().tokens, 1);
}

}  // namespace
}  // namespace sluice::data
