#include "data/corpus.hpp"

#include <unistd.h>

#include <thread>

#include "base/error.hpp"
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
      {"b.bin", "token file among texts", "a.txt"});
  expect_error<RequestError>([&] { Corpus({dir / "b.bin", text}, 257); }, {"a.txt", "text among token files"});
  expect_error<FormatError>([&] { Corpus({dir.write("c.bin", "no tokens")}, 257); }, {"c.bin", "found 9 bytes"});
  expect_error<RequestError>([] { Corpus({}, 257); }, {"no data files"});
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

}  // namespace
}  // namespace sluice::data
