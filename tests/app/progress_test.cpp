#include "app/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "support/temp_dir.hpp"
#include "train/stop.hpp"

namespace sluice::app {
namespace {

using ::sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() : metrics_(folder_ / "metrics.jsonl", 0), stop_(folder_ / "STOP") {
    options_.steps = 1000;
    options_.tier_bytes = {6'186'598, 1'551'892, 0};  // 5.90 and 1.48 MiB
    options_.margin.margin_bytes = std::int64_t{1} << 50;
  }
  /// What is printed while `steps` steps of 20 ms by their own account are shown, with a pause after each.
  std::string shown(std::int64_t first, std::int64_t last, std::chrono::milliseconds pause = {}) {
    ::testing::internal::CaptureStdout();
    const auto begin = std::chrono::steady_clock::now();
    {
      Log log({.file = folder_ / "log"});
      Progress progress(options_, log, &metrics_, stop_, [](std::int64_t, const checkpoint::CommitResult*) {});
      for (std::int64_t step = first; step <= last; ++step) {
        train::StepMetrics m;
        m.step = step;
        m.loss = 5.4321;
        m.grad_norm = 1.25;
        m.learning_rate = 0.002;
        m.step_seconds = 0.02;
        m.tokens_per_second = 12345.6;
        progress.on_step(m);
        std::this_thread::sleep_for(pause);
      }
      progress.end_line();
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return ::testing::internal::GetCapturedStdout();
  }
  std::vector<std::string> logged() const {
    std::ifstream file(folder_ / "log");
    return lines_of({std::istreambuf_iterator<char>(file), {}});
  }

  TempDir folder_;
  MetricsFile metrics_;
  train::StopSource stop_;
  Progress::Options options_;
  double seconds_ = 0;  // that showing took; a busy machine may pause for long
};

TEST_F(ProgressTest, PlainLinesComeAtMostOnceASecond) {
  const std::vector<std::string> lines = lines_of(shown(1, 24, std::chrono::milliseconds(50)));
  ASSERT_GE(lines.size(), 2U);  // the first, and one a second later
  EXPECT_LE(static_cast<double>(lines.size()), 1 + seconds_);
  EXPECT_EQ(lines[0],
            "step 1/1000  loss 5.4321  |g| 1.250  lr 0.002  20.0 ms/step  12346 tokens/s  device 5.90 MiB, host 1.48 MiB  left 20.0 s");
  ASSERT_THAT(logged(), SizeIs(lines.size()));
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_THAT(logged()[i], EndsWith(lines[i]));
  EXPECT_THAT(shown(25, 25), Not(HasSubstr("\033")));
}

TEST_F(ProgressTest, PlainLinesComeAsOftenAsAskedAndAtTheEnd) {
  options_.print_interval = 4;
  options_.steps = 10;
  const std::vector<std::string> lines = lines_of(shown(1, 10));
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], HasSubstr("step 4/10 "));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("step 10/10 "), Not(HasSubstr("left"))));
}

TEST_F(ProgressTest, ATerminalsLineRewritesItselfAndTheLogGetsPlainOnes) {
  options_.columns = [] { return std::optional<int>(80); };
  options_.steps = 30;
  const std::string text = shown(1, 30, std::chrono::milliseconds(10));
  EXPECT_THAT(lines_of(text), SizeIs(1));
  int rewritten = 0;
  for (std::size_t at = text.find("\r\033[K"); at != std::string::npos; at = text.find("\r\033[K", at + 1)) {
    ++rewritten;
    const std::size_t end = std::min(text.find('\r', at + 1), text.size() - 1);
    EXPECT_LE(end - at - 4, 79U) << text.substr(at, end - at);
  }
  EXPECT_GE(rewritten, 3);
  EXPECT_LE(rewritten, 2 + 10 * seconds_);
  EXPECT_THAT(text, HasSubstr("\r\033[K1/30 loss 5.4321 20.0 ms 12346 tokens/s dev 5.90M host 1.48M left 580 ms\r"));
  EXPECT_THAT(text, HasSubstr("\r\033[K30/30 loss 5.4321 |g| 1.250 20.0 ms 12346 tokens/s dev 5.90M host 1.48M\n"));
  EXPECT_THAT(logged().front(), HasSubstr("step 1/30  loss 5.4321  |g| 1.250"));
  EXPECT_THAT(logged().back(), HasSubstr("step 30/30"));
  EXPECT_LE(static_cast<double>(logged().size()), 2 + seconds_);
}

TEST_F(ProgressTest, ATerminalThatHasGoneIsNotWrittenTo) {
  options_.columns = [] { return std::optional<int>(); };
  EXPECT_EQ(shown(1, 3), "");
  EXPECT_THAT(logged(), SizeIs(1));
}

TEST(FittedLine, LosesSpacesAndWordsFirstAndThenWhatMattersLeast) {
  const std::vector<LinePart> parts = {{0, "step 1/9"}, {1, "loss 5"}, {4, "|g| 1"}, {2, "9 tokens/s"}, {3, "host 3 MiB"}};
  EXPECT_EQ(fitted_line(parts, 47), "step 1/9  loss 5  |g| 1  9 tokens/s  host 3 MiB");
  EXPECT_EQ(fitted_line(parts, 46), "step 1/9 loss 5 |g| 1 9 tokens/s host 3 MiB");
  EXPECT_EQ(fitted_line(parts, 42), "step 1/9  loss 5  9 tokens/s  host 3 MiB");
  EXPECT_EQ(fitted_line(parts, 28), "step 1/9  loss 5  9 tokens/s");
  EXPECT_EQ(fitted_line(parts, 27), "step 1/9 loss 5 9 tokens/s");
  EXPECT_EQ(fitted_line(parts, 15), "step 1/9 loss 5");
  EXPECT_EQ(fitted_line(parts, 3), "step 1/9");
  const std::vector<LinePart> brief = {{0, "step 1/9", "1/9"}, {1, "loss 5"}, {2, "2 ms/step", "2 ms"}};
  EXPECT_EQ(fitted_line(brief, 24), "1/9 loss 5 2 ms");
  EXPECT_EQ(fitted_line(brief, 25), "step 1/9 loss 5 2 ms/step");
  EXPECT_EQ(fitted_line(brief, 14), "1/9 loss 5");
}

}  // namespace
}  // namespace sluice::app
