#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

// Computed apart from this code, in Python integers. Hashes are written to disk: a change makes every old file a stranger.
TEST(Hash, IsPinned) {
  EXPECT_EQ(Hash().hex(), "b800bd6c02472607");
  EXPECT_EQ(Hash().add(0).hex(), "2235547d5ce88da7");
  EXPECT_EQ(Hash().add(1).add(2).hex(), "648378a0ffd19f50");
  EXPECT_EQ(Hash().add("sluice").hex(), "1861ae27a4b7d533");
  EXPECT_EQ(Hash().add("the quick brown f\xc3\xb6x").hex(), "ca1fb00c7a236681");  // longer than a word, bytes above 127
  EXPECT_EQ(Hash().add_double(0.1).hex(), "2fcb459b05460e37");
}

TEST(Hash, HexShowsTheValue) {
  EXPECT_EQ(Hash().add(1).add(2).value(), 0x648378a0ffd19f50u);
  EXPECT_EQ(Hash().hex().size(), 16u);
}

TEST(Hash, DependsOnOrderAndOnWhereTextsEnd) {
  EXPECT_NE(Hash().add(1).add(2).value(), Hash().add(2).add(1).value());
  EXPECT_NE(Hash().add("ab").add("c").value(), Hash().add("a").add("bc").value());
  EXPECT_NE(Hash().add("a").value(), Hash().add(std::string_view("a\0", 2)).value());
  EXPECT_NE(Hash().add_double(0.0).value(), Hash().add_double(-0.0).value());
}

TEST(Hash, KeepsSmallNumbersApart) {
  std::set<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 10'000; ++i) values.insert(Hash().add(i).value());
  EXPECT_EQ(values.size(), 10'000u);
}

}  // namespace
}  // namespace sluice
