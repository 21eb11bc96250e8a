#include "formats/byte_tokenizer.hpp"

#include "base/error.hpp"
#include "formats/tokenizer.hpp"
#include "support/expect_error.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;

std::vector<std::int32_t> encoded(std::string_view text) {
  std::vector<std::int32_t> ids;
  make_byte_tokenizer()->encode(text, ids);
  return ids;
}

std::string decoded(std::span<const std::int32_t> ids) {
  return make_byte_tokenizer()->decode(ids, true);
}

TEST(ByteTokenizer, EveryByteIsItsToken) {
  EXPECT_THAT(encoded(std::string("A\r\n\0\xff\xc3", 6)), ElementsAre(65, 13, 10, 0, 255, 195));
  EXPECT_THAT(encoded("\xEF\xBB\xBFx"), ElementsAre(0xEF, 0xBB, 0xBF, 'x')) << "a byte-order mark stays";
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(decoded(encoded(all)), all);
}

TEST(ByteTokenizer, DecodesEndOfDocumentToNothing) {
  EXPECT_EQ(kEndOfDocument, 256);
  EXPECT_EQ(kByteVocabulary, 257);
  const std::vector<std::int32_t> tokens{'a', kEndOfDocument, 'b'};
  EXPECT_EQ(decoded(tokens), "ab");
}

TEST(ByteTokenizer, RefusesOtherTokens) {
  const std::vector<std::int32_t> above{'a', 257};
  const std::vector<std::int32_t> below{-1};
  testing::expect_error<RequestError>([&] { decoded(above); }, {"token 1", "found 257", "0 to 256"});
  testing::expect_error<RequestError>([&] { decoded(below); }, {"token 0", "found -1"});
}

}  // namespace
}  // namespace sluice::formats
