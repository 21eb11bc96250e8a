#include "data/corpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/error.hpp"
#include "data/token_store.hpp"
#include "formats/megatron_tokens.hpp"
#include "support/expect_error.hpp"
#include "support/llmc_bytes.hpp"
#include "support/temp_dir.hpp"

namespace sluice::data {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::llmc_bytes;
using testing::TempDir;

std::vector<std::int32_t> read(const Corpus& corpus, std::int64_t begin, std::int64_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count), -7);
  corpus.read(begin, count, out.data());
  return out;
}

TEST(Corpus, TextsAreDocumentsOfBytes) {
  const TempDir dir;
  const std::string a = dir.write("a.txt", std::string("h\r\n\0\xff", 5));
  const std::string b = dir.write("b.md", "\xEF\xBB\xBFq");
  const Corpus corpus({a, b}, 257);
  EXPECT_EQ(corpus.tokenizer(), "bytes");
  EXPECT_EQ(corpus.tokens(), 11);
  EXPECT_THAT(read(corpus, 0, 11), ElementsAre('h', 13, 10, 0, 255, 256, 0xEF, 0xBB, 0xBF, 'q', 256));
  EXPECT_THAT(read(corpus, 4, 3), ElementsAre(255, 256, 0xEF));
  EXPECT_THAT(read(corpus, 5, 1), ElementsAre(256));
  EXPECT_THAT(read(corpus, 11, 0), ElementsAre());
  EXPECT_THROW(read(corpus, 10, 2), LogicError);
  EXPECT_THROW(read(corpus, -1, 2), LogicError);
  EXPECT_EQ(corpus.place(0), a + ":1:1");
  EXPECT_EQ(corpus.place(3), a + ":2:1");
  EXPECT_EQ(corpus.place(5), a + ":2:3");
  EXPECT_EQ(corpus.place(9), b + ":1:4");
}

TEST(Corpus, EveryRangeOfALongTextAgreesWithItsBytes) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7 % 256);
  const Corpus corpus({dir.write("a.txt", text), dir.write("b.txt", text)}, 300);
  for (std::int64_t begin = 0; begin < 6002; begin += 97) {
    for (const std::int64_t count : {1, 2, 3, 5, 64, 3500}) {
      if (begin + count > 6002) continue;
      const std::vector<std::int32_t> out = read(corpus, begin, count);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t within = (begin + i) % 3001;
        ASSERT_EQ(out[static_cast<std::size_t>(i)],
                  within == 3000 ? 256 : static_cast<unsigned char>(text[static_cast<std::size_t>(within)]));
      }
    }
  }
}

TEST(Corpus, TokenFilesStandAsTheyAre) {
  const TempDir dir;
  const std::string a = dir.write("a.bin", llmc_bytes({50256, 7, 8}));
  const std::string b = dir.write("b.bin", llmc_bytes({9, 50256}));
  const Corpus corpus({a, b}, 50257);
  EXPECT_EQ(corpus.tokenizer(), "llmc");
  EXPECT_THAT(read(corpus, 0, 5), ElementsAre(50256, 7, 8, 9, 50256));
  EXPECT_THAT(read(corpus, 2, 2), ElementsAre(8, 9));
  EXPECT_EQ(corpus.place(3), b + ": token 0");
  corpus.check(0, 5);
}

TEST(Corpus, NamesTokensBeyondTheVocabulary) {
  const TempDir dir;
  const std::string a = dir.write("a.bin", llmc_bytes({1, 2, 3}));
  const std::string b = dir.write("b.bin", llmc_bytes({4, 5, 300}));
  const Corpus corpus({a, b}, 300);
  EXPECT_THAT(read(corpus, 0, 5), ElementsAre(1, 2, 3, 4, 5));
  expect_error<RequestError>([&] { read(corpus, 1, 5); }, {b + ": token 2", "found 300", "less than 300"});
  corpus.check(0, 5);
  expect_error<RequestError>([&] { corpus.check(0, 6); }, {b + ": token 2", "found 300"});
  expect_error<RequestError>([&] { Corpus({dir.write("a.txt", "x")}, 256); }, {"a.txt", "257", "vocabulary has 256"});
}

TEST(Corpus, SortsEachPatternAndKeepsTheirOrder) {
  const TempDir dir;
  for (const char* name : {"B.txt", "a.txt", "b.txt", "10.txt", "9.txt", "z.md"}) dir.write(name, "x");
  EXPECT_THAT(Corpus({dir / "z.*", dir / "*.txt"}, 257).files(),
              ElementsAre(dir / "z.md", dir / "10.txt", dir / "9.txt", dir / "B.txt", dir / "a.txt", dir / "b.txt"));
  EXPECT_THAT(Corpus({dir / "a.txt", dir / "[ab].txt"}, 257).files(), ElementsAre(dir / "a.txt", dir / "a.txt", dir / "b.txt"));
  dir.write("[ab].txt", "literal");
  EXPECT_THAT(Corpus({dir / "[ab].txt"}, 257).files(), ElementsAre(dir / "[ab].txt")) << "a path that exists is no pattern";
}

TEST(Corpus, RefusesFilesThatGiveNothing) {
  const TempDir dir;
  const std::string text = dir.write("a.txt", "x");
  expect_error<EnvironmentError>([&] { Corpus({dir / "*.none"}, 257); }, {"*.none", "no file matches"});
  expect_error<IoError>([&] { Corpus({dir / "absent.txt"}, 257); }, {"absent.txt", "No such file"});
  expect_error<RequestError>([&] { Corpus({text, dir.write("empty.txt", "")}, 257); }, {"empty.txt", "no text"});
  expect_error<RequestError>([&] { Corpus({dir.write("empty.bin", llmc_bytes({}))}, 257); }, {"empty.bin", "no tokens"});
  expect_error<RequestError>([&] { Corpus({dir.path()}, 257); }, {dir.path(), "a directory"});
  expect_error<RequestError>(
      [&] {
        Corpus({text, dir.write("b.bin", llmc_bytes({1}))}, 257);
      },
      {"b.bin", "llm.c tokens among text", "a.txt"});
  expect_error<RequestError>([&] { Corpus({dir / "b.bin", text}, 257); }, {"a.txt", "text among llm.c tokens"});
  expect_error<FormatError>([&] { Corpus({dir.write("c.bin", "no tokens")}, 257); }, {"c.bin", "found 9 bytes"});
  expect_error<RequestError>([] { Corpus(std::vector<std::string>{}, 257); }, {"no data files"});
  if (geteuid() != 0) {
    std::filesystem::permissions(text, std::filesystem::perms::none);
    expect_error<IoError>([&] { Corpus({text}, 257); }, {"a.txt", "Permission denied"});
  }
}

TEST(Corpus, NoticesAFileThatChanges) {
  const TempDir dir;
  const std::string path = dir.write("a.txt", "0123456789");
  const Corpus unopened({path}, 257);
  const Corpus opened({path}, 257);
  read(opened, 0, 1);
  dir.write("a.txt", "0123");
  expect_error<FormatError>([&] { read(unopened, 0, 10); }, {path, "found 5 tokens", "had 11"});
  expect_error<FormatError>([&] { read(opened, 0, 10); }, {path, "ends at byte 4"});
}

TEST(Corpus, FingerprintTellsNamesSizesAndOrder) {
  const TempDir dir;
  const std::string a = dir.write("a.txt", "aaa");
  const std::string b = dir.write("b.txt", "bbbb");
  const auto print = [](const std::vector<std::string>& paths) { return Corpus(paths, 257).fingerprint(); };
  const std::uint64_t base = print({a, b});
  EXPECT_EQ(print({dir / "*.txt"}), base);
  EXPECT_NE(print({b, a}), base);
  EXPECT_NE(print({a}), base);
  EXPECT_EQ(print({dir.write("moved/a.txt", "aaa"), b}), base) << "folders don't count";
  EXPECT_NE(print({dir.write("moved/a.txt", "aaaa"), b}), base);
}

TEST(Corpus, HoldsFewFilesOpenAndServesManyThreads) {
  const TempDir dir;
  for (int i = 0; i < 300; ++i) dir.write("f" + std::to_string(1000 + i), std::string(1, static_cast<char>('a' + i % 26)));
  const Corpus corpus({dir / "f*"}, 257);
  EXPECT_EQ(corpus.tokens(), 600);
  std::vector<std::jthread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&corpus, &wrong, t] {
      for (int i = 0; i < 300; ++i) {
        const int at = (i * 7 + static_cast<int>(t) * 31) % 300;
        std::int32_t pair[2];
        corpus.read(2 * at, 2, pair);
        if (pair[0] != 'a' + at % 26 || pair[1] != 256) ++wrong[t];
      }
    });
  }
  threads.clear();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
  std::size_t mine = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored).string().starts_with(dir.path())) ++mine;
  }
  EXPECT_GT(mine, 0U);
  EXPECT_LE(mine, 64U);
}

TEST(Corpus, ServesPlacesBeyondTwoToThe31) {
  const TempDir dir;
  const std::string path = dir.write("huge.txt", "begin");
  constexpr std::int64_t kBytes = (std::int64_t{3} << 30) + 7;
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(kBytes));  // sparse: it takes no space
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(kBytes - 3);
    file << "end";
  }
  const Corpus corpus({path, dir.write("z.txt", "next")}, 257);
  EXPECT_EQ(corpus.tokens(), kBytes + 1 + 5);
  EXPECT_THAT(read(corpus, kBytes - 4, 6), ElementsAre(0, 'e', 'n', 'd', 256, 'n'));
  std::int64_t begins[3];
  corpus.read_begins(0, 3, begins);
  EXPECT_THAT(begins, ElementsAre(0, kBytes + 1, kBytes + 6));
}

TEST(Corpus, FilesAreItsDocuments) {
  const TempDir dir;
  const Corpus corpus({dir.write("a.txt", "one"), dir.write("b.txt", "three"), dir.write("c.txt", "x")}, 257);
  EXPECT_TRUE(corpus.knows_documents());
  EXPECT_EQ(corpus.documents(), 3);
  std::int64_t begins[4];
  corpus.read_begins(0, 4, begins);
  EXPECT_THAT(begins, ElementsAre(0, 4, 10, 12));
  EXPECT_FALSE(corpus.has_mask());
  EXPECT_EQ(corpus.learned(), 12);
  EXPECT_FALSE(Corpus({dir.write("a.bin", llmc_bytes({1, 2}))}, 257).knows_documents());
}

/// Texts of the documents of a corpus of bytes.
std::vector<std::string> documents_of(const Corpus& corpus) {
  std::vector<std::int64_t> begins(static_cast<std::size_t>(corpus.documents()) + 1);
  corpus.read_begins(0, corpus.documents() + 1, begins.data());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    std::string text;
    for (const std::int32_t token : read(corpus, begins[i], begins[i + 1] - begins[i]))
      text += token == 256 ? '|' : static_cast<char>(token);
    texts.push_back(text);
  }
  return texts;
}

TEST(Corpus, SplitHoldsOutWholeDocumentsOnce) {
  const TempDir dir;
  std::vector<std::string> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back("document " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 5), '.') + "|");
    dir.write("d" + std::to_string(100 + i) + ".txt", all.back().substr(0, all.back().size() - 1));
  }
  const Corpus corpus({dir / "d*.txt"}, 257);
  ASSERT_EQ(documents_of(corpus), all);
  for (const double fraction : {0.001, 0.1, 0.5, 0.99, 0.9999}) {
    const auto [train, valid] = corpus.split(fraction, 7);
    EXPECT_EQ(valid.documents(), std::clamp<std::int64_t>(std::llround(fraction * 40), 1, 39)) << fraction;
    EXPECT_EQ(train.tokens() + valid.tokens(), corpus.tokens());
    const std::vector<std::string> kept = documents_of(train), held = documents_of(valid);
    std::vector<std::string> both;
    std::merge(kept.begin(), kept.end(), held.begin(), held.end(), std::back_inserter(both),
               [&](const std::string& a, const std::string& b) {
                 return std::find(all.begin(), all.end(), a) < std::find(all.begin(), all.end(), b);
               });
    EXPECT_EQ(both, all) << "each document once, in order";
    std::string stream;
    for (const std::string& text : kept) stream += text;
    const std::vector<std::int32_t> tokens = read(train, 0, train.tokens());
    for (std::size_t i = 0; i < stream.size(); ++i) ASSERT_EQ(tokens[i], stream[i] == '|' ? 256 : stream[i]);
    // Any part of the stream, not only the whole.
    for (std::int64_t begin = 0; begin + 30 <= train.tokens(); begin += 13) {
      const std::vector<std::int32_t> part = read(train, begin, 30);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), tokens.begin() + begin)) << begin;
    }
    EXPECT_EQ(documents_of(corpus.split(fraction, 7).second), held) << "the seed says it all";
  }
  EXPECT_NE(documents_of(corpus.split(0.5, 7).second), documents_of(corpus.split(0.5, 8).second));
}

TEST(Corpus, SplitNeedsTwoDocumentsThatAreKnown) {
  const TempDir dir;
  const Corpus one({dir.write("a.txt", "x")}, 257);
  expect_error<RequestError>([&] { one.split(0.25, 1); }, {"valid_fraction 0.25", "found 1 document", "at least 2"});
  const Corpus tokens({dir.write("a.bin", llmc_bytes({1, 2}))}, 257);
  expect_error<RequestError>([&] { tokens.split(0.25, 1); }, {"a.bin", "sluice.data.valid"});
}

TEST(FindFiles, KnowsKindsByTheirNames) {
  const TempDir dir;
  const auto kind = [&](const std::string& name) { return find_files({dir.write(name, "x")}).kind; };
  EXPECT_EQ(kind("a.txt"), FileKind::kText);
  EXPECT_EQ(kind("README"), FileKind::kText);
  EXPECT_EQ(kind("a.jsonl"), FileKind::kJsonLines);
  EXPECT_EQ(kind("a.ndjson"), FileKind::kJsonLines);
  EXPECT_EQ(kind("a.json"), FileKind::kJsonLines);
  EXPECT_EQ(kind("a.bin"), FileKind::kLlmc);
  dir.write("b.idx", "x");
  EXPECT_EQ(kind("b.bin"), FileKind::kMegatron);
  expect_error<RequestError>([&] { kind("b.idx"); }, {"b.idx", "name the .bin"});
  expect_error<RequestError>([&] { kind("a.parquet"); }, {"a.parquet", "no text"});
  expect_error<RequestError>([&] { kind("a.jsonl.gz"); }, {"a.jsonl.gz", "unpack"});
  expect_error<RequestError>([&] { find_files({dir / "a.jsonl", dir / "a.txt"}); }, {"a.txt", "text among JSON lines", "one kind"});
}

/// A pair of Megatron's files of these documents.
std::string write_megatron(const TempDir& dir, const std::string& name, const std::vector<std::vector<std::int32_t>>& documents,
                           std::int64_t vocabulary) {
  formats::MegatronTokensWriter writer(dir / (name + ".bin"), vocabulary);
  for (const std::vector<std::int32_t>& document : documents) writer.add(document);
  writer.finish();
  return dir / (name + ".bin");
}

/// What begins_within() finds of every range, held against all begins.
void expect_begins(const Corpus& corpus) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(corpus.documents()));
  corpus.read_begins(0, corpus.documents(), all.data());
  for (std::int64_t begin = 0; begin <= corpus.tokens(); ++begin) {
    for (std::int64_t end = begin; end <= corpus.tokens(); ++end) {
      std::vector<std::int64_t> expected;
      for (const std::int64_t place : all) {
        if (place >= begin && place < end) expected.push_back(place);
      }
      ASSERT_EQ(corpus.begins_within(begin, end), expected) << begin << " to " << end;
    }
  }
}

TEST(Corpus, FindsTheDocumentsThatBeginInAPart) {
  const TempDir dir;
  for (int i = 0; i < 12; ++i) dir.write("d" + std::to_string(100 + i) + ".txt", std::string(static_cast<std::size_t>(1 + i * 5 % 7), 'x'));
  const Corpus texts({dir / "d*.txt"}, 257);
  expect_begins(texts);
  const auto [train, valid] = texts.split(0.4, 3);
  expect_begins(train);
  expect_begins(valid);
  const std::string a = write_megatron(dir, "a", {{1, 2, 3}, {4}, {5, 6}}, 300), b = write_megatron(dir, "b", {{7}, {8, 9}}, 300);
  expect_begins(Corpus({a, b}, 300));
  // More documents than are asked for at a time.
  std::vector<std::vector<std::int32_t>> many;
  for (std::int32_t i = 0; i < 150; ++i) many.push_back(i % 3 == 0 ? std::vector<std::int32_t>{1, 2} : std::vector<std::int32_t>{3});
  expect_begins(Corpus({write_megatron(dir, "c", many, 300)}, 300));
  const TempDir stores;
  TokenStoreWriter writer(stores / "s", 300);
  for (const std::size_t length : {3U, 1U, 8U, 2U})
    writer.add({std::vector<std::int32_t>(length, 1), std::vector<std::uint8_t>(length, 1)});
  writer.finish({});
  expect_begins(Corpus(find_files({dir.write("a.jsonl", "{}")}), std::make_shared<TokenStore>(stores / "s", true), "bpe"));
  EXPECT_THROW(texts.begins_within(0, texts.tokens() + 1), LogicError);
}

TEST(Corpus, MegatronFilesKnowTheirDocuments) {
  const TempDir dir;
  const std::string a = write_megatron(dir, "a", {{1, 2, 3}, {4}}, 100'000);
  const std::string b = write_megatron(dir, "b", {{5, 6}, {7, 8, 9}, {70'000}}, 100'000);
  const Corpus corpus({a, b}, 100'000);
  EXPECT_EQ(corpus.tokenizer(), "megatron");
  EXPECT_EQ(corpus.tokens(), 10);
  EXPECT_THAT(read(corpus, 0, 10), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 70'000));
  EXPECT_THAT(read(corpus, 2, 4), ElementsAre(3, 4, 5, 6));
  ASSERT_EQ(corpus.documents(), 5);
  for (std::int64_t first = 0; first <= 5; ++first) {
    const std::int64_t all[]{0, 3, 4, 6, 9, 10};
    std::vector<std::int64_t> begins(static_cast<std::size_t>(6 - first));
    corpus.read_begins(first, 6 - first, begins.data());
    EXPECT_TRUE(std::equal(begins.begin(), begins.end(), all + first)) << first;
  }
  EXPECT_EQ(corpus.place(5), b + ": token 1");
  const auto [train, valid] = corpus.split(0.4, 1);
  EXPECT_EQ(train.documents() + valid.documents(), 5);
  EXPECT_EQ(train.tokens() + valid.tokens(), 10);

  const Corpus small({a, b}, 7);
  expect_error<RequestError>([&] { small.check(0, 10); }, {"b.bin: token 2", "found 7", "less than 7"});
  std::filesystem::resize_file(dir / "b.idx", std::filesystem::file_size(dir / "b.idx") - 3);
  expect_error<FormatError>([&] { Corpus({a, b}, 100'000); }, {"b.idx"});
}

}  // namespace
}  // namespace sluice::data
