#include "formats/text_file.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

TEST(TextPlace, CountsLinesAndBytes) {
  const testing::TempDir dir;
  const InputFile file(dir.write("a.txt", "ab\n\ncd"));
  const auto expect = [&](std::int64_t offset, std::int64_t line, std::int64_t column) {
    const TextPlace place = place_in_text(file, offset);
    EXPECT_EQ(place.line, line) << offset;
    EXPECT_EQ(place.column, column) << offset;
  };
  expect(0, 1, 1);
  expect(2, 1, 3);  // a line break belongs to the line it ends
  expect(3, 2, 1);
  expect(4, 3, 1);
  expect(6, 3, 3);
  EXPECT_EQ(place_text(file, 5), dir / "a.txt:3:2");
  EXPECT_THROW(place_in_text(file, 7), LogicError);
}

TEST(TextPlace, ReachesPastItsReadingPiece) {
  const testing::TempDir dir;
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "x\r\n";
  const InputFile file(dir.write("a.txt", text));
  EXPECT_EQ(place_in_text(file, 3 * 40'000 + 1).line, 40'001);
  EXPECT_EQ(place_in_text(file, 3 * 40'000 + 1).column, 2);
}

}  // namespace
}  // namespace sluice::formats
