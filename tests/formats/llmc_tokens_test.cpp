#include "formats/llmc_tokens.hpp"

#include <numeric>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/llmc_bytes.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::llmc_bytes;
using testing::TempDir;

TEST(LlmcTokens, ReadsRanges) {
  const TempDir dir;
  const LlmcTokens file(dir.write("a.bin", llmc_bytes({50256, 0, 1, 65535})));
  EXPECT_EQ(file.tokens(), 4);
  std::vector<std::int32_t> out(4);
  file.read(0, 4, out.data());
  EXPECT_THAT(out, ElementsAre(50256, 0, 1, 65535));
  out.assign(2, -7);
  file.read(2, 1, out.data());
  EXPECT_THAT(out, ElementsAre(1, -7));
  EXPECT_THROW(file.read(3, 2, out.data()), LogicError);
}

TEST(LlmcTokens, ReadsBeyondItsPiece) {
  const TempDir dir;
  std::vector<std::uint16_t> tokens(30'000);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  const LlmcTokens file(dir.write("a.bin", llmc_bytes(tokens)));
  std::vector<std::int32_t> out(29'000);
  file.read(1000, 29'000, out.data());
  for (int i = 0; i < 29'000; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], i + 1000);
}

TEST(LlmcTokens, RefusesWhatIsNoneOrDamaged) {
  const TempDir dir;
  const auto refuse = [&](const std::string& bytes, const std::vector<std::string>& pieces) {
    const std::string path = dir.write("bad.bin", bytes);
    std::vector<std::string> all = pieces;
    all.push_back(path);
    expect_error<FormatError>([&] { LlmcTokens file(path); }, all);
  };
  const std::string good = llmc_bytes({1, 2, 3});
  refuse("", {"found 0 bytes", "1024"});
  refuse(std::string(1024, '\0'), {"magic: found 0", "20240520"});
  refuse(llmc_bytes({1}, 20240801, 7), {"magic: found 20240801", "Llama 3", "20240520"});
  refuse(llmc_bytes({1}, 20240520, 2), {"version: found 2", "expected 1"});
  refuse(good.substr(0, good.size() - 1), {"size: found 1029", "expected 1030", "3 tokens", "cut short"});
  refuse(good + "x", {"size: found 1031", "expected 1030", "too long"});
  std::string negative = good;
  negative[11] = '\x80';
  refuse(negative, {"number of tokens: found -2147483645"});
}

TEST(LlmcTokensWriter, WritesWhatTheReaderReads) {
  const TempDir dir;
  std::vector<std::int32_t> all;
  {
    LlmcTokensWriter writer(dir / "a.bin", 65536);
    for (int part = 0; part < 3; ++part) {
      std::vector<std::int32_t> tokens;
      for (int i = 0; i < 400'000; ++i) tokens.push_back((i * 7 + part) % 65536);
      writer.add(tokens);
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    EXPECT_FALSE(std::filesystem::exists(dir / "a.bin")) << "before the end nothing stands under the name";
    writer.finish();
  }
  const LlmcTokens tokens(dir / "a.bin");
  ASSERT_EQ(tokens.tokens(), static_cast<std::int64_t>(all.size()));
  std::vector<std::int32_t> found(all.size());
  tokens.read(0, tokens.tokens(), found.data());
  EXPECT_EQ(found, all);
  {
    LlmcTokensWriter writer(dir / "a.bin", 10);
    writer.add(std::vector<std::int32_t>{1});
    EXPECT_THROW(writer.add(std::vector<std::int32_t>{10}), LogicError);
  }
  EXPECT_EQ(LlmcTokens(dir / "a.bin").tokens(), tokens.tokens()) << "an unfinished one changes nothing";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  expect_error<RequestError>([&] { LlmcTokensWriter(dir / "b.bin", 65537); }, {"b.bin", "65536", "65537", "Megatron"});
}

}  // namespace
}  // namespace sluice::formats
