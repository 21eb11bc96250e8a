#include "base/file.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice {
namespace {

using testing::expect_error;
using testing::TempDir;

TEST(WriteDurably, ReplacesAndLeavesNothingBehind) {
  const TempDir directory;
  write_durably(directory / "f", "one");
  write_durably(directory / "f", "two");
  EXPECT_EQ(read_text(directory / "f"), "two");
  EXPECT_EQ(names_in(directory.path()), std::vector<std::string>{"f"});
}

TEST(WriteDurably, AFailureKeepsTheOldFile) {
  const TempDir directory;
  std::filesystem::create_directory(directory / "f");  // a rename onto a folder fails
  expect_error<IoError>([&] { write_durably(directory / "f", "x"); }, {"renaming"});
  EXPECT_EQ(names_in(directory.path()), std::vector<std::string>{"f"});
  expect_error<IoError>([&] { write_durably(directory / "no/such/f", "x"); }, {"opening", "no/such/f"});
}

}  // namespace
}  // namespace sluice
