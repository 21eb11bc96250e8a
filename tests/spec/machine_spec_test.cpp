#include "spec/machine_spec.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::spec {
namespace {

using testing::expect_error;
using testing::replaced;

MachineSpec example() {
  MachineSpec m;
  m.name = "two hosts";
  m.device_name = "AMD EPYC";
  m.isa = "avx2";
  m.ranks_per_node = 4;
  m.cores_per_node = 3.5;
  m.threads_per_rank = 2;
  m.flops_per_core = 88.3e9;
  m.upload_bytes_per_second = 25.1e9;
  m.download_bytes_per_second = 18.1e9;
  m.gather = {1.7e-6, 9.1e9, 4.5e-6};
  m.skew_seconds = 1.5e-4;
  m.scatter = {2.3e-6, 1.0 / 3.0};
  m.device_bytes = 7'700'000'000;
  m.host_bytes = 1LL << 50;
  m.unplanned_bytes = 12345;
  m.segments = {{"attention", "forward", 768, 4, 1024, 0.0123}, {"mlp", "backward", 768, 4, 1024, 0.1}};
  m.sources = {{"flops_per_core", "measured"}, {"gather", "vendor's manual, page 3"}};
  return m;
}

TEST(MachineSpec, SurvivesItsJsonFormExactly) {
  EXPECT_EQ(machine_spec_from_json(to_json(example()), "machine.json"), example());
  EXPECT_EQ(machine_spec_from_json(to_json(MachineSpec()), "machine.json"), MachineSpec());
}

TEST(MachineSpec, RefusesBadKeysByName) {
  const std::string good = to_json(example());
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { machine_spec_from_json(text, "machine.json"); }, pieces);
  };
  refuse(replaced(good, "\"backward\"", "7"), {"\"segments[1].phase\"", "found 7", "a text"});
  refuse(replaced(good, "\"rows\"", "\"row\""), {"\"segments[0].row\" is unknown", "\"segments[0].rows\""});
  refuse(replaced(good, "\"latency_seconds\"", "\"latency\""), {"\"gather.latency\" is unknown"});
  refuse(replaced(good, "\"measured\"", "1"), {"\"sources.flops_per_core\"", "found 1"});
  refuse(replaced(good, "\"wake_seconds\"", "\"wakes\""), {"\"wakes\" is unknown"});
}

TEST(LinearCost, IsLatencyPlusBytesOverRate) {
  EXPECT_DOUBLE_EQ((LinearCost{0.5, 100}.seconds(300)), 3.5);
}

}  // namespace
}  // namespace sluice::spec
