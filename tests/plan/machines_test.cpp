// The machine files that are shipped: each is well formed, says where its numbers come from, and can be planned for.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plan/plan_requests.hpp"
#include "plan/search.hpp"

namespace sluice::plan {
namespace {

TEST(MachineFiles, HaveSourcesAndCanBePlannedFor) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_SOURCE_DIR "/configs/machines")) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++count;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const spec::MachineSpec machine = spec::machine_spec_from_json(text.str(), entry.path().string());
    EXPECT_EQ(machine.name, entry.path().stem().string());
    EXPECT_EQ(spec::machine_spec_from_json(spec::to_json(machine), "again"), machine);
    const nlohmann::json json = nlohmann::json::parse(text.str());
    for (const auto& [key, value] : json.items()) {
      const bool is_measure = value.is_number() ? value.get<double>() != 0 : value.is_object() && key != "sources";
      EXPECT_TRUE(!is_measure || machine.sources.contains(key)) << key << " has no source";
    }
    PlanRequest request = test::plan_request("gpt2-124m", machine.ranks_per_node, 8 * machine.ranks_per_node, 1024, machine.device_bytes);
    request.machine = machine;
    request.budget.host_bytes = machine.host_bytes;
    request.threads = machine.threads_per_rank;
    request.training.batch.micro_batch = 4;
    const PlanResult result = search(request);
    // Within an order of magnitude of the arithmetic alone: 6 N + 12 L C T FLOP a token at the stated rate.
    const double flops = machine.device_flops > 0 ? machine.device_flops : machine.flops_per_core * machine.threads_per_rank;
    const double ideal = model::model_flops(request.model, 8 * 1024, 1024) / flops;
    EXPECT_GT(result.prediction.seconds, 0.9 * ideal);
    EXPECT_LT(result.prediction.seconds, 10 * ideal);
  }
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace sluice::plan
