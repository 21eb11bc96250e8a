#include "base/text.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Cat, JoinsWhatItIsGiven) {
  EXPECT_EQ(cat(), "");
  EXPECT_EQ(cat("rank ", 3, ": ", 1.5, '!', std::string_view(" end")), "rank 3: 1.5! end");
}

TEST(Counted, SaysOneAndMany) {
  EXPECT_EQ(counted(0, "document"), "0 documents");
  EXPECT_EQ(counted(1, "document"), "1 document");
  EXPECT_EQ(counted(12, "token"), "12 tokens");
}

TEST(EditDistance, CountsSingleEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("step", "steps"), 1);   // insertion
  EXPECT_EQ(edit_distance("steps", "step"), 1);   // deletion
  EXPECT_EQ(edit_distance("steps", "staps"), 1);  // substitution
  EXPECT_EQ(edit_distance("setps", "steps"), 1);  // swap of neighbours
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // a swapped pair is not edited again
}

TEST(EditDistance, IsSymmetric) {
  EXPECT_EQ(edit_distance("gradient_cliping", "gradient_clipping"), edit_distance("gradient_clipping", "gradient_cliping"));
}

}  // namespace
}  // namespace sluice
