#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Said {
  std::string out;
  std::string err;
};

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("sluice-log-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// What a log with `options` says for one note, one warning and one error.
  static Said say(const Log::Options& options) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    {
      Log log(options);
      log.note("a note");
      log.warn("a warning");
      log.error("an error");
      log.flush();
    }
    Said said;
    said.out = testing::internal::GetCapturedStdout();
    said.err = testing::internal::GetCapturedStderr();
    return said;
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(LogTest, RankZeroNotesOnOutputAndTheRestOnError) {
  const Said said = say({});
  EXPECT_EQ(said.out, "a note\n");
  EXPECT_EQ(said.err, "warning: a warning\nerror: an error\n");
}

TEST_F(LogTest, OtherRanksNeverNoteAndSayWhoTheyAre) {
  const Said said = say({.rank = 3});
  EXPECT_EQ(said.out, "");
  EXPECT_EQ(said.err, "rank 3: warning: a warning\nrank 3: error: an error\n");
}

TEST_F(LogTest, QuietKeepsWarningsAndTheFile) {
  const Said said = say({.quiet = true, .file = file("quiet.log")});
  EXPECT_EQ(said.out, "");
  EXPECT_EQ(said.err, "warning: a warning\nerror: an error\n");
  EXPECT_THAT(content(file("quiet.log")), HasSubstr("a note"));
}

TEST_F(LogTest, ColourOnlyWhenAsked) {
  EXPECT_THAT(say({.colour = true}).err, HasSubstr("\033[31merror: an error\033[0m"));
  EXPECT_THAT(say({}).err, Not(HasSubstr("\033")));
}

TEST_F(LogTest, FileHoldsEverythingOfRankZeroAndIsAppendedTo) {
  const std::string path = file("rank0.log");
  say({.file = path});
  say({.file = path});
  const std::string text = content(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_THAT(text, testing::ContainsRegex("I a note"));
  EXPECT_THAT(text, testing::ContainsRegex("W a warning"));
  EXPECT_THAT(text, testing::ContainsRegex("E an error"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST_F(LogTest, OtherRanksOpenTheirFileWhenTheyHaveSomethingToSay) {
  const std::string path = file("rank3.log");
  testing::internal::CaptureStderr();
  Log log({.rank = 3, .file = path});
  log.note("a note");
  EXPECT_FALSE(std::filesystem::exists(path));
  log.warn("a warning");
  log.flush();
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(content(path), HasSubstr("W a warning"));
  EXPECT_THAT(content(path), Not(HasSubstr("a note")));
}

TEST_F(LogTest, OpenFileTakesWhatComesAfterwards) {
  testing::internal::CaptureStdout();
  Log log({});
  log.note("before");
  log.open_file(file("later.log"));
  log.note("after");
  log.flush();
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(content(file("later.log")), HasSubstr("after"));
  EXPECT_THAT(content(file("later.log")), Not(HasSubstr("before")));
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnIoError) {
  std::ofstream(file("plain")) << "a file, not a folder";
  const std::string path = file("plain") + "/log";
  try {
    Log log({.file = path});
    FAIL() << "opened a log below a plain file";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_NE(error.error_number, 0);
  }
}

TEST_F(LogTest, BracesAreNotFormats) {
  testing::internal::CaptureStdout();
  Log log({});
  log.note("{\"step\": {}}");
  log.flush();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "{\"step\": {}}\n");
}

}  // namespace
}  // namespace sluice
