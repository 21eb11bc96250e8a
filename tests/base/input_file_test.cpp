#include "base/input_file.hpp"

#include <sys/stat.h>

#include <utility>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice {
namespace {

using testing::expect_error;
using testing::TempDir;

TEST(InputFile, ReadsRanges) {
  const TempDir dir;
  const InputFile file(dir.write("a", "0123456789"));
  EXPECT_EQ(file.size(), 10);
  std::string piece(4, ' ');
  file.read(3, piece.data(), 4);
  EXPECT_EQ(piece, "3456");
  file.read(10, piece.data(), 0);
  EXPECT_THROW(file.read(7, piece.data(), 4), LogicError);
  EXPECT_THROW(file.read(-1, piece.data(), 1), LogicError);
}

TEST(InputFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  expect_error<IoError>([&] { InputFile file(dir / "absent"); }, {"absent", "opening", "No such file"});
  expect_error<RequestError>([&] { InputFile file(dir.path()); }, {dir.path(), "a directory", "a regular file"});
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_error<RequestError>([&] { InputFile file(dir / "pipe"); }, {"pipe", "a regular file"});
}

TEST(InputFile, NoticesAFileThatShrinks) {
  const TempDir dir;
  const InputFile file(dir.write("a", "0123456789"));
  std::filesystem::resize_file(dir / "a", 5);
  std::string piece(8, ' ');
  expect_error<FormatError>([&] { file.read(0, piece.data(), 8); }, {"ends at byte 5", "had 10"});
}

TEST(InputFile, MovedFromIsInert) {
  const TempDir dir;
  InputFile from(dir.write("a", "abc"));
  InputFile to(std::move(from));
  EXPECT_EQ(from.size(), 0);  // NOLINT(bugprone-use-after-move): that is what is tested
  char c = 0;
  EXPECT_THROW(from.read(0, &c, 1), LogicError);
  to.read(2, &c, 1);
  EXPECT_EQ(c, 'c');
  InputFile other(dir.write("b", "xyz"));
  other = std::move(to);
  other.read(0, &c, 1);
  EXPECT_EQ(c, 'a');
}

TEST(ReadText, ReadsOrRefusesTooMuch) {
  const TempDir dir;
  const std::string path = dir.write("a", std::string("a\0b", 3));
  EXPECT_EQ(read_text(path, 3), std::string("a\0b", 3));
  expect_error<FormatError>([&] { read_text(path, 2); }, {"found 3 B", "at most 2 B"});
}

}  // namespace
}  // namespace sluice
