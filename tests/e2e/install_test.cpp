// What `cmake --install` leaves works by itself: from another directory, with the presets and machines under its prefix.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::StartsWith;

TEST(Install, ThePrefixHoldsAllThatTheProgramReads) {
  const RunArea area;
  const std::string prefix = area / "prefix", share = prefix + "/share/sluice";
  ASSERT_TRUE(ended_with(run_program({.words = {SLUICE_CMAKE, "--install", SLUICE_BINARY_DIR, "--prefix", prefix}}), 0));
  const auto installed = [&](const std::vector<std::string>& words) {
    ProgramCommand command = area.sluice(words);
    command.words[0] = prefix + "/bin/sluice";
    command.prepare = [] { return ::chdir("/"); };
    return run_program(command);
  };

  const ProgramOutcome version = installed({"--version"});
  ASSERT_TRUE(ended_with(version, 0));
  EXPECT_EQ(version.output, run_program(area.sluice({"--version"})).output);
  EXPECT_THAT(version.output, StartsWith("sluice "));

  const std::vector<std::string> words{"plan",
                                       "--model",
                                       "gpt2-micro",
                                       "--machine",
                                       share + "/machines/xeon-8480-2s.json",
                                       "--ranks",
                                       "2",
                                       "--train-batch-size",
                                       "8",
                                       "--sequence-length",
                                       "64",
                                       "--learning-rate",
                                       "1e-3",
                                       "--json"};
  const ProgramOutcome plan = installed(words);
  ASSERT_TRUE(ended_with(plan, 0));
  EXPECT_EQ(json::parse(plan.output).at("plan").at("mesh").at("data"), 2);

  // The preset is the prefix's own, not one of the source tree that the program was built in.
  ASSERT_TRUE(fs::remove(share + "/models/gpt2-micro.json"));
  EXPECT_TRUE(refused_with(installed(words), 2, {"gpt2-micro"}));
}

}  // namespace
}  // namespace sluice::testing
