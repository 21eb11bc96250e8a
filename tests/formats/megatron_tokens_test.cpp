#include "formats/megatron_tokens.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/mutations.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::expect_error;
using testing::replaced;
using testing::TempDir;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// The parts of an index, each to be broken.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> boundaries;

  std::string bytes() const {
    return magic + bytes_of<std::uint64_t>({version}) + static_cast<char>(code) +
           bytes_of<std::uint64_t>({lengths.size(), boundaries.size()}) + bytes_of(lengths) + bytes_of(pointers) + bytes_of(boundaries);
  }
};

/// Three documents over four sequences of u16: [1 2 3 | 4], [], [5 65535].
Index example() {
  return {.lengths = {3, 1, 0, 2}, .pointers = {0, 6, 8, 8}, .boundaries = {0, 2, 2, 4}};
}
const std::string kData = bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 65535});

std::vector<std::int32_t> read(const MegatronTokens& file, std::int64_t begin, std::int64_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count), -7);
  file.read(begin, count, out.data());
  return out;
}

std::vector<std::int64_t> begins(const MegatronTokens& file, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count), -7);
  file.read_begins(first, count, out.data());
  return out;
}

TEST(MegatronTokens, ReadsTokensAndDocuments) {
  const TempDir dir;
  const std::string path = dir.write("a.bin", kData);
  dir.write("a.idx", example().bytes());
  for (const bool verify : {true, false}) {
    const MegatronTokens file(path, verify);
    EXPECT_EQ(file.path(), path);
    EXPECT_EQ(file.tokens(), 6);
    EXPECT_EQ(file.documents(), 3);
    EXPECT_EQ(file.bytes_per_token(), 2);
    EXPECT_THAT(read(file, 0, 6), ElementsAre(1, 2, 3, 4, 5, 65535));
    EXPECT_THAT(read(file, 4, 1), ElementsAre(5));
    EXPECT_THAT(begins(file, 0, 4), ElementsAre(0, 4, 4, 6));
    EXPECT_THAT(begins(file, 2, 1), ElementsAre(4));
    EXPECT_THROW(read(file, 5, 2), LogicError);
    EXPECT_THROW(begins(file, 3, 2), LogicError);
  }
}

TEST(MegatronTokens, ReadsEveryTypeOfIds) {
  const TempDir dir;
  const auto check = [&]<typename T>(std::uint8_t code, T largest) {
    dir.write("a.bin", bytes_of<T>({0, 100, largest}));
    Index index{.code = code, .lengths = {3}, .pointers = {0}, .boundaries = {0, 1}};
    dir.write("a.idx", index.bytes());
    const MegatronTokens file(dir / "a.bin", true);
    EXPECT_EQ(file.bytes_per_token(), sizeof(T));
    EXPECT_THAT(read(file, 0, 3), ElementsAre(0, 100, static_cast<std::int32_t>(largest))) << int{code};
  };
  check(1, std::uint8_t{255});
  check(2, std::int8_t{127});
  check(3, std::int16_t{32767});
  check(4, std::int32_t{2147483647});
  check(5, std::int64_t{2147483647});
  check(8, std::uint16_t{65535});
}

TEST(MegatronTokens, RefusesIdsThatAreNone) {
  const TempDir dir;
  const auto refuse = [&](std::uint8_t code, const std::string& data, const std::vector<std::string>& pieces) {
    dir.write("a.bin", data);
    dir.write("a.idx", Index{.code = code, .lengths = {2}, .pointers = {0}, .boundaries = {0, 1}}.bytes());
    const MegatronTokens file(dir / "a.bin", true);
    expect_error<FormatError>([&] { read(file, 0, 2); }, pieces);
    EXPECT_THAT(read(file, 0, 1), ElementsAre(3));
  };
  refuse(2, bytes_of<std::int8_t>({3, -1}), {"a.bin", "byte 1", "token 1", "found -1", "0 to 2147483647"});
  refuse(3, bytes_of<std::int16_t>({3, -300}), {"byte 2", "found -300"});
  refuse(4, bytes_of<std::int32_t>({3, -5}), {"byte 4", "found -5"});
  refuse(5, bytes_of<std::int64_t>({3, 2147483648}), {"byte 8", "found 2147483648"});
}

TEST(MegatronTokens, RefusesDamage) {
  const TempDir dir;
  dir.write("a.bin", kData);
  const auto refuse_bytes = [&](const std::string& index, const std::vector<std::string>& pieces) {
    dir.write("a.idx", index);
    expect_error<FormatError>([&] { MegatronTokens file(dir / "a.bin", true); }, pieces);
  };
  const auto refuse = [&](const auto& change, const std::vector<std::string>& pieces) {
    Index index = example();
    change(index);
    refuse_bytes(index.bytes(), pieces);
  };
  const std::string good = example().bytes();
  ASSERT_EQ(good.size(), 34U + 4 * 12 + 4 * 8);
  refuse_bytes("", {"a.idx", "found 0 bytes", "at least the 34"});
  refuse_bytes(good.substr(0, 33), {"found 33 bytes"});
  refuse([](Index& i) { i.magic[7] = '\1'; }, {"a.idx", "byte 0", "magic", "MMIDIDX"});
  refuse([](Index& i) { i.version = 2; }, {"byte 9", "version: found 2", "expected 1"});
  refuse([](Index& i) { i.code = 0; }, {"byte 17", "type: found 0", "1, 2, 3, 4, 5 or 8"});
  refuse([](Index& i) { i.code = 255; }, {"byte 17", "found 255"});
  refuse([](Index& i) { i.boundaries.clear(); }, {"byte 26", "found 0", "at least 1"});
  refuse_bytes(good.substr(0, good.size() - 1), {"byte 26", "found 4", "113 bytes", "4 sequences", "cut short, not finished"});
  refuse_bytes(good.substr(0, 34 + 47), {"byte 18", "found 4", "81 bytes", "not finished"});
  refuse_bytes(good + "x", {"size: found 115 bytes", "expected 114", "4 sequences and 3 documents"});
  refuse_bytes(good.substr(0, 18) + std::string(16, '\xff') + good.substr(34), {"byte 18", "found 18446744073709551615"});
  refuse_bytes(good.substr(0, 26) + std::string(8, '\xff') + good.substr(34), {"byte 26", "found 18446744073709551615"});
  refuse([](Index& i) { i.lengths[1] = -1; }, {"byte 38", "sequence 1", "found -1"});
  refuse([](Index& i) { i.lengths[1] = 2; }, {"byte 66", "begin of sequence 2", "found 8", "expected 10"});
  refuse([](Index& i) { i.pointers[0] = 2; }, {"byte 50", "begin of sequence 0", "found 2", "expected 0"});
  refuse([](Index& i) { i.pointers[3] = -8; }, {"byte 74", "begin of sequence 3", "found -8", "expected 8"});
  refuse([](Index& i) { i.lengths[3] = 3; }, {"a.bin", "found 12 bytes", "at least 14", "sequence 3"});
  refuse([](Index& i) { i.lengths[3] = 2147483647; }, {"a.bin", "found 12 bytes", "at least 4294967302"});
  refuse([](Index& i) { i.lengths[3] = 1; }, {"a.bin", "found 12 bytes", "expected 10", "4 sequences"});
  refuse([](Index& i) { i.boundaries[0] = 1; }, {"byte 82", "document 0", "found 1", "expected 0"});
  refuse([](Index& i) { i.boundaries[2] = 1; }, {"byte 98", "document 2", "found 1", "expected 2 to 4"});
  refuse([](Index& i) { i.boundaries[2] = 5; }, {"byte 98", "found 5", "expected 2 to 4"});
  refuse([](Index& i) { i.boundaries[3] = 3; }, {"byte 106", "end of the last document", "found 3", "expected 4"});
  dir.write("a.bin", kData + "x");
  refuse_bytes(good, {"a.bin", "found 13 bytes", "multiple of the 2"});
  dir.write("a.bin", kData.substr(0, 10));
  refuse_bytes(good, {"a.bin", "found 10 bytes", "at least 12", "sequence 3"});

  dir.write("a.bin", kData);
  Index floats = example();
  floats.code = 7;
  dir.write("a.idx", floats.bytes());
  expect_error<RequestError>([&] { MegatronTokens file(dir / "a.bin", true); }, {"a.idx", "byte 17", "found 7", "floats"});
  dir.write("a.idx", good + std::string(4, '\0'));
  expect_error<RequestError>([&] { MegatronTokens file(dir / "a.bin", true); }, {"a.idx", "byte 114", "multimodal"});
  fs::remove(dir / "a.idx");
  expect_error<IoError>([&] { MegatronTokens file(dir / "a.bin", true); }, {"a.idx", "No such file"});
}

TEST(MegatronTokens, FindsWhatTheEndsTellWithoutVerifying) {
  const TempDir dir;
  dir.write("a.bin", kData);
  const auto refuse = [&](const auto& change, const std::vector<std::string>& pieces) {
    Index index = example();
    change(index);
    dir.write("a.idx", index.bytes());
    expect_error<FormatError>([&] { MegatronTokens file(dir / "a.bin", false); }, pieces);
  };
  refuse([](Index& i) { i.boundaries[3] = 3; }, {"a.idx", "byte 106", "found 3", "expected 4"});
  refuse([](Index& i) { i.lengths[3] = 1; }, {"a.bin", "found 12 bytes", "the 10 where the index ends"});
  refuse([](Index& i) { i.pointers[3] = -1; }, {"a.idx", "byte 74", "found -1"});
  refuse([](Index& i) { i.pointers[3] = std::numeric_limits<std::int64_t>::max(); }, {"a.idx", "byte 74"});
  refuse([](Index& i) { i = {.boundaries = {0}}; }, {"a.bin", "found 12 bytes", "the 0 where"});
  // What it didn't look at is still found when it is read.
  Index index = example();
  index.boundaries[1] = 9;
  index.pointers[2] = -3;
  dir.write("a.idx", index.bytes());
  const MegatronTokens file(dir / "a.bin", false);
  expect_error<FormatError>([&] { begins(file, 1, 1); }, {"a.idx", "byte 90", "document 1", "found 9", "0 to 4"});
  expect_error<FormatError>([&] { begins(file, 2, 1); }, {"a.idx", "byte 66", "sequence 2", "found -3", "0 to 12"});
}

TEST(MegatronTokens, ReadsNoTokensAndNoDocuments) {
  const TempDir dir;
  dir.write("a.bin", "");
  dir.write("a.idx", Index{.boundaries = {0}}.bytes());
  for (const bool verify : {true, false}) {
    const MegatronTokens file(dir / "a.bin", verify);
    EXPECT_EQ(file.tokens(), 0);
    EXPECT_EQ(file.documents(), 0);
    EXPECT_THAT(begins(file, 0, 1), ElementsAre(0));
  }
}

TEST(MegatronTokens, CountsBeyond31Bits) {
  const TempDir dir;
  const std::int64_t tokens = 3 * std::int64_t{1'500'000'000} + 2;
  const std::string path = dir.write("a.bin", "");
  fs::resize_file(path, static_cast<std::uintmax_t>(2 * tokens));  // sparse: it takes no space
  std::fstream data(path, std::ios::binary | std::ios::in | std::ios::out);
  data.seekp(2 * (tokens - 2));
  data.write("\x07\x00\x09\x00", 4);
  data.close();
  Index index{.lengths = {1'500'000'000, 1'500'000'000, 1'500'000'000, 2}, .boundaries = {0, 3, 4}};
  index.pointers = {0, 3'000'000'000, 6'000'000'000, 9'000'000'000};
  dir.write("a.idx", index.bytes());
  const MegatronTokens file(path, true);
  EXPECT_EQ(file.tokens(), 4'500'000'002);
  EXPECT_THAT(begins(file, 0, 3), ElementsAre(0, 4'500'000'000, 4'500'000'002));
  EXPECT_THAT(read(file, tokens - 3, 3), ElementsAre(0, 7, 9));
}

TEST(MegatronTokens, ReadsBeyondItsPieces) {
  const TempDir dir;
  constexpr std::int32_t kDocuments = 30'000;
  Index index{.code = 4};
  std::vector<std::int32_t> ids;
  index.boundaries.push_back(0);
  for (std::int32_t i = 0; i < kDocuments; ++i) {
    index.pointers.push_back(static_cast<std::int64_t>(4 * ids.size()));
    index.lengths.push_back(i % 3);
    for (std::int32_t j = 0; j < i % 3; ++j) ids.push_back(i);
    index.boundaries.push_back(i + 1);
  }
  dir.write("a.bin", bytes_of(ids));
  dir.write("a.idx", index.bytes());
  const MegatronTokens file(dir / "a.bin", true);
  EXPECT_EQ(read(file, 1, file.tokens() - 1), std::vector<std::int32_t>(ids.begin() + 1, ids.end()));
  const std::vector<std::int64_t> found = begins(file, 7, kDocuments - 6);
  for (std::int32_t i = 7; i <= kDocuments; ++i) {
    const std::int64_t expected = i / 3 * 3 + (i % 3 == 2 ? 1 : 0);
    ASSERT_EQ(found[static_cast<std::size_t>(i - 7)], expected) << i;
  }
}

TEST(MegatronTokens, MutatedIndexesAreReadOrRefused) {
  const TempDir dir;
  const std::string path = dir.write("a.bin", kData);
  const std::string good = example().bytes();
  const std::vector<std::string> pieces{bytes_of<std::int64_t>({8}), bytes_of<std::int32_t>({2}), bytes_of<std::int64_t>({-1}),
                                        std::string(4, '\0'), std::string(8, '\0')};
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < testing::mutation_rounds(); ++round) {
    dir.write("a.idx", testing::mutated(good, static_cast<std::uint64_t>(round), pieces));
    for (const bool verify : {true, false}) {
      try {
        const MegatronTokens file(path, verify);
        ASSERT_EQ(file.tokens() * file.bytes_per_token(), static_cast<std::int64_t>(kData.size()));
        ASSERT_LE(file.documents(), 1000);
        std::vector<std::int64_t> found = begins(file, 0, file.documents() + 1);
        EXPECT_TRUE(!verify || std::is_sorted(found.begin(), found.end())) << round;
        for (const std::int64_t begin : found) ASSERT_TRUE(begin >= 0 && begin <= file.tokens()) << round;
        read(file, 0, file.tokens());
        ++accepted;
      } catch (const FormatError&) {
        ++refused;
      } catch (const RequestError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(accepted, testing::mutation_rounds() / 50);
  EXPECT_GT(refused, testing::mutation_rounds());
}

TEST(MegatronTokensWriter, WritesWhatTheReaderReads) {
  const TempDir dir;
  for (const std::int64_t vocabulary : {65499, 65500}) {
    const std::string path = dir / "out.bin";
    {
      MegatronTokensWriter writer(path, vocabulary);
      writer.add(std::vector<std::int32_t>{1, 2, 65498});
      writer.add(std::vector<std::int32_t>{7});
      EXPECT_FALSE(fs::exists(path) && vocabulary == 65499) << "nothing stands under the name before the end";
      writer.finish();
    }
    const MegatronTokens file(path, true);
    EXPECT_EQ(file.bytes_per_token(), vocabulary == 65499 ? 2 : 4);
    EXPECT_EQ(file.documents(), 2);
    EXPECT_THAT(read(file, 0, 4), ElementsAre(1, 2, 65498, 7));
    EXPECT_THAT(begins(file, 0, 3), ElementsAre(0, 3, 4));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 2) << "nothing else is left";
  }
}

TEST(MegatronTokensWriter, WritesTheBytesOfMegatron) {
  const TempDir dir;
  MegatronTokensWriter writer(dir / "a.bin", 70'000);
  writer.add(std::vector<std::int32_t>{1, 69'999});
  writer.add(std::vector<std::int32_t>{2});
  writer.finish();
  const Index expected{.code = 4, .lengths = {2, 1}, .pointers = {0, 8}, .boundaries = {0, 1, 2}};
  std::ifstream index(dir / "a.idx", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(index), {}), expected.bytes());
  std::ifstream data(dir / "a.bin", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(data), {}), bytes_of<std::int32_t>({1, 69'999, 2}));
}

TEST(MegatronTokensWriter, WritesManyDocumentsOverItsBuffer) {
  const TempDir dir;
  MegatronTokensWriter writer(dir / "a.bin", 300);
  std::vector<std::int32_t> all;
  std::vector<std::int64_t> expected{0};
  for (std::int32_t i = 0; i < 20'000; ++i) {
    std::vector<std::int32_t> document(static_cast<std::size_t>(1 + i % 77));
    std::iota(document.begin(), document.end(), i % 200);
    all.insert(all.end(), document.begin(), document.end());
    expected.push_back(static_cast<std::int64_t>(all.size()));
    writer.add(document);
  }
  writer.finish();
  const MegatronTokens file(dir / "a.bin", true);
  EXPECT_EQ(read(file, 0, file.tokens()), all);
  EXPECT_EQ(begins(file, 0, 20'001), expected);
}

TEST(MegatronTokensWriter, LeavesOldFilesUntilTheEnd) {
  const TempDir dir;
  {
    MegatronTokensWriter first(dir / "a.bin", 10);
    first.add(std::vector<std::int32_t>{1});
    first.finish();
    MegatronTokensWriter second(dir / "a.bin", 10);
    second.add(std::vector<std::int32_t>{2, 3});
  }
  EXPECT_THAT(read(MegatronTokens(dir / "a.bin", true), 0, 1), ElementsAre(1));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 2);
  MegatronTokensWriter empty(dir / "b.bin", 10);
  empty.finish();
  EXPECT_EQ(MegatronTokens(dir / "b.bin", true).documents(), 0);
  EXPECT_THROW(MegatronTokensWriter(dir / "absent/a.bin", 10), IoError);
  MegatronTokensWriter wrong(dir / "c.bin", 10);
  EXPECT_THROW(wrong.add(std::vector<std::int32_t>{10}), LogicError);
  EXPECT_THROW(wrong.add(std::vector<std::int32_t>{-1}), LogicError);
  EXPECT_THROW(wrong.add({}), LogicError);
}

TEST(MegatronTokensWriter, SplitsWhatOneSequenceCantCount) {
  EXPECT_THAT(megatron_sequences(1), ElementsAre(1));
  EXPECT_THAT(megatron_sequences(2'147'483'647), ElementsAre(2'147'483'647));
  EXPECT_THAT(megatron_sequences(2'147'483'648), ElementsAre(2'147'483'647, 1));
  EXPECT_THAT(megatron_sequences(5'000'000'000), ElementsAre(2'147'483'647, 2'147'483'647, 705'032'706));
}

}  // namespace
}  // namespace sluice::formats
