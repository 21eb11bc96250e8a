#include "checkpoint/checksum.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sluice::checkpoint {
namespace {

std::string hash_of(const std::string& text) {
  return to_hex(xxh64(text.data(), text.size()));
}

// Vectors published with xxHash and with its Python binding.
TEST(Checksum, AgreesWithPublishedVectors) {
  EXPECT_EQ(hash_of(""), "ef46db3751d8e999");
  EXPECT_EQ(hash_of("a"), "d24ec4f1a98c6e5b");
  EXPECT_EQ(hash_of("abc"), "44bc2cf5ad770999");
  EXPECT_EQ(hash_of("Nobody inspects the spammish repetition"), "fbcea83c8a378bf1");
}

TEST(Checksum, SeesEveryBitOfEveryLength) {
  for (std::size_t bytes = 1; bytes < 80; ++bytes) {
    std::string text(bytes, 'x');
    const std::uint64_t before = xxh64(text.data(), text.size());
    for (std::size_t bit = 0; bit < bytes * 8; ++bit) {
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_NE(xxh64(text.data(), text.size()), before) << "bit " << bit << " of " << bytes << " bytes";
      text[bit / 8] = 'x';
    }
  }
}

}  // namespace
}  // namespace sluice::checkpoint
