// Schedules as people write them, held against the rates that DeepSpeed's and the Trainer's own schedulers give
// (tests/golden/schedules).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/configuration.hpp"
#include "base/text.hpp"
#include "optim/schedule.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::json;
using ::testing::IsEmpty;
using testing::TempDir;

Examination examined(const Json& written) {
  const TempDir directory;
  Json file = written.value("blocks", Json::object());
  file["train_batch_size"] = 1;
  if (written.contains("run_steps")) file["sluice"]["steps"] = written.at("run_steps");
  ConfigurationRequest request{.file = directory.write("demo.json", file.dump())};
  if (written.contains("trainer")) request.trainer = written.at("trainer").get<std::map<std::string, std::string>>();
  // The Trainer's default, which we take for loaded weights only.
  if (written.contains("trainer") && !request.trainer.contains("lr_scheduler_type")) request.trainer["lr_scheduler_type"] = "linear";
  return examine(request, 1);
}

TEST(ScheduleGolden, EveryRateIsTheirs) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/schedules/rates.json");
  const Json cases = Json::parse(file);
  ASSERT_GE(cases.size(), 30u);
  for (const Json& each : cases) {
    const Examination e = examined(each);
    ASSERT_THAT(e.problems, IsEmpty()) << each.dump().substr(0, 300);
    for (std::size_t i = 0; i < each.at("steps").size(); ++i) {
      const double expected = each.at("rates")[i];
      const double found = optim::learning_rate(e.configuration.training.schedule, each.at("steps")[i]);
      EXPECT_LE(std::abs(found - expected), 1e-12 * std::abs(expected))
          << "step " << each.at("steps")[i] << ": " << found << ", expected " << expected << ", of " << each.dump().substr(0, 300);
    }
  }
}

}  // namespace
}  // namespace sluice::app
