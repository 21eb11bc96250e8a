#include "app/metrics_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::Pair;
using testing::TempDir;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// (step, loss) of the training lines, in the file's order.
std::vector<std::pair<std::int64_t, double>> losses_in(const std::string& path) {
  std::vector<std::pair<std::int64_t, double>> losses;
  for (const TrainMetrics& each : read_metrics(path).train) losses.emplace_back(each.step, each.loss);
  return losses;
}

TrainMetrics train(std::int64_t step, double loss, std::int64_t attempt = 1) {
  return {.step = step,
          .loss = loss,
          .lr = 1e-3,
          .grad_norm = 0.1,
          .tokens = step * 100,
          .step_seconds = 0.5,
          .tokens_per_second = 200,
          .skipped = false,
          .attempt = attempt,
          .time = 12.25};
}

TEST(MetricsFile, HasExactlyTheFieldsOfTheDesign) {
  const TempDir directory;
  MetricsFile file(directory / "m", 0);
  file.append(train(1, 4.5));
  file.append(EvaluateMetrics{1, 4.25, 70.5, 99});
  EXPECT_EQ(content(directory / "m"),
            "{\"kind\":\"train\",\"step\":1,\"loss\":4.5,\"lr\":0.001,\"grad_norm\":0.1,\"tokens\":100,\"step_seconds\":0.5,\"tokens_per_"
            "second\":200.0,"
            "\"skipped\":false,\"attempt\":1,\"time\":12.25}\n"
            "{\"kind\":\"evaluate\",\"step\":1,\"loss\":4.25,\"perplexity\":70.5,\"tokens\":99}\n");
}

TEST(MetricsFile, ReadsBackTheSameBits) {
  const TempDir directory;
  MetricsFile file(directory / "m", 0);
  const TrainMetrics exact = train(1, 1.0 / 3.0);
  file.append(exact);
  file.append(EvaluateMetrics{1, 2.0 / 3.0, 1e300, 7});
  file.append(train(2, std::numeric_limits<double>::quiet_NaN()));
  file.sync();
  const Metrics metrics = read_metrics(directory / "m");
  ASSERT_EQ(metrics.train.size(), 2u);
  EXPECT_EQ(metrics.train[0], exact);
  EXPECT_TRUE(std::isnan(metrics.train[1].loss));
  EXPECT_THAT(metrics.evaluate, ElementsAre(EvaluateMetrics{1, 2.0 / 3.0, 1e300, 7}));
}

TEST(MetricsFile, ResumingKeepsEachStepOnce) {
  const TempDir directory;
  const std::string path = directory / "m";
  {
    MetricsFile file(path, 0);
    for (int step = 1; step <= 5; ++step) file.append(train(step, step));
    file.append(EvaluateMetrics{4, 1, 2, 3});
  }
  {
    MetricsFile file(path, 3);
    EXPECT_THAT(losses_in(path), ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3)));
    file.append(train(4, 40, 2));
  }
  EXPECT_THAT(losses_in(path), ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3), Pair(4, 40)));
  EXPECT_TRUE(read_metrics(path).evaluate.empty());
  EXPECT_EQ(read_metrics(path).train[3].attempt, 2);
  { MetricsFile file(path, 0); }
  EXPECT_EQ(content(path), "");
}

TEST(MetricsFile, KnowsWhetherTheResumedStepWasEvaluated) {
  const TempDir directory;
  const std::string path = directory / "m";
  EXPECT_FALSE(MetricsFile(path, 0).resumed_loss());
  {
    MetricsFile file(path, 0);
    file.append(train(1, 1));
    file.append(EvaluateMetrics{1, 2.0 / 3.0, 2, 3});
    file.append(train(2, 2));
    file.append(EvaluateMetrics{2, std::numeric_limits<double>::infinity(), 2, 3});  // null: no loss to go by
    file.append(train(3, 3));
  }
  EXPECT_FALSE(MetricsFile(path, 3).resumed_loss());
  EXPECT_FALSE(MetricsFile(path, 2).resumed_loss());
  EXPECT_EQ(MetricsFile(path, 1).resumed_loss(), 2.0 / 3.0);
}

TEST(MetricsFile, ATornLastLineIsDropped) {
  const TempDir directory;
  const std::string path = directory / "m";
  { MetricsFile(path, 0).append(train(1, 1)); }
  const std::string whole = content(path);
  for (const std::string torn : {"{\"kind\":\"tr", "{\"kind\":\"train\",\"step\":2", "{\"ki\n"}) {
    directory.write("m", whole + torn);
    EXPECT_THAT(losses_in(path), ElementsAre(Pair(1, 1))) << torn;
    MetricsFile(path, 1).append(train(2, 2));
    EXPECT_THAT(losses_in(path), ElementsAre(Pair(1, 1), Pair(2, 2))) << torn;
  }
}

TEST(MetricsFile, DamageElsewhereIsAFormatError) {
  const TempDir directory;
  { MetricsFile(directory / "m", 0).append(train(1, 1)); }
  const std::string path = directory.write("m", "garbage\n" + content(directory / "m"));
  expect_error<FormatError>([&] { read_metrics(path); }, {"line 1", "not a metrics record"});
  expect_error<FormatError>([&] { MetricsFile(path, 9); }, {"line 1"});
  directory.write("m", "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n");
  expect_error<FormatError>([&] { read_metrics(path); }, {"loss"});
  expect_error<IoError>([&] { read_metrics(directory / "none"); }, {"none"});
}

}  // namespace
}  // namespace sluice::app
