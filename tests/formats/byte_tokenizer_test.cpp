#include "formats/byte_tokenizer.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;

TEST(ByteTokenizer, EveryByteIsItsToken) {
  EXPECT_THAT(encode_bytes(std::string("A\r\n\0\xff\xc3", 6)), ElementsAre(65, 13, 10, 0, 255, 195));
  EXPECT_THAT(encode_bytes("\xEF\xBB\xBFx"), ElementsAre(0xEF, 0xBB, 0xBF, 'x')) << "a byte-order mark stays";
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(decode_bytes(encode_bytes(all)), all);
}

TEST(ByteTokenizer, DecodesEndOfDocumentToNothing) {
  EXPECT_EQ(kEndOfDocument, 256);
  EXPECT_EQ(kByteVocabulary, 257);
  const std::vector<std::int32_t> tokens{'a', kEndOfDocument, 'b'};
  EXPECT_EQ(decode_bytes(tokens), "ab");
}

TEST(ByteTokenizer, RefusesOtherTokens) {
  const std::vector<std::int32_t> above{'a', 257};
  const std::vector<std::int32_t> below{-1};
  testing::expect_error<RequestError>([&] { decode_bytes(above); }, {"token 1", "found 257", "0 to 256"});
  testing::expect_error<RequestError>([&] { decode_bytes(below); }, {"token 0", "found -1"});
}

}  // namespace
}  // namespace sluice::formats
