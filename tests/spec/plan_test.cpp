#include "spec/plan.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::spec {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::replaced;

Plan example() {
  Plan p;
  p.zero_stage = 3;
  p.chunk_elements = 1LL << 40;
  p.rcache_elements = 3 * p.chunk_elements;
  p.prefetch_segments = 2;
  p.micro_batch = 4;
  p.accumulation = 8;
  p.update_mode = UpdateMode::kNextForward;
  p.order = MicroBatchOrder::kLayerByLayer;
  p.activations = {Activation::kKeep, Activation::kRecompute, Activation::kRecompute, Activation::kHost};
  p.homes = {{Tier::kHost, Tier::kHost, Tier::kDisk}, {Tier::kHost, Tier::kHost, Tier::kDisk}, {}};
  p.state_prefetch = 3;
  p.threads = 7;
  p.mesh = {2, 1, 1, 1};
  return p;
}

ArithmeticSignature signature() {
  ArithmeticSignature s;
  s.mesh = {2, 1, 1, 1};
  s.micro_batch = 4;
  s.accumulation = 1;
  s.reduce_point = "step";
  s.dtypes = "f32";
  s.isa = "avx512";
  s.threads = 1;
  s.libraries = "onednn 2.6.3";
  return s;
}

TEST(Plan, SurvivesItsJsonForm) {
  EXPECT_EQ(plan_from_json(to_json(example()), "plan.json"), example());
  Plan smallest;
  smallest.chunk_elements = 256;
  EXPECT_EQ(plan_from_json(to_json(smallest), "plan.json"), smallest);
  for (const UpdateMode mode : {UpdateMode::kAtEnd, UpdateMode::kNextForward, UpdateMode::kInBackward}) {
    Plan p = example();
    p.update_mode = mode;
    EXPECT_EQ(plan_from_json(to_json(p), "plan.json").update_mode, mode);
  }
}

TEST(Plan, WritesEqualNeighboursAsRuns) {
  EXPECT_THAT(to_json(example()), HasSubstr("\"count\": 2,\n      \"each\": \"recompute\""));
  Plan large = example();
  large.homes.assign(1'000'000, {Tier::kHost, Tier::kDevice, Tier::kDisk});
  EXPECT_LT(to_json(large).size(), 2000U);
  EXPECT_EQ(plan_from_json(to_json(large), "plan.json"), large);
}

TEST(Plan, KnowsWhichTiersItUses) {
  Plan p;
  p.activations = {Activation::kKeep, Activation::kRecompute};
  EXPECT_TRUE(p.uses_tier(Tier::kDevice));
  EXPECT_FALSE(p.uses_tier(Tier::kHost));
  p.homes = {{}, {Tier::kDevice, Tier::kDevice, Tier::kHost}};
  EXPECT_TRUE(p.uses_tier(Tier::kHost));
  EXPECT_FALSE(p.uses_tier(Tier::kDisk));
  EXPECT_EQ(p.home(0), ChunkHomes{});
  EXPECT_EQ(p.home(1).states, Tier::kHost);
  p.activations[0] = Activation::kDisk;
  EXPECT_TRUE(p.uses_tier(Tier::kDisk));
}

TEST(Plan, RefusesBadValues) {
  const std::string good = to_json(example());
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { plan_from_json(text, "plan.json"); }, pieces);
  };
  refuse(replaced(good, "\"recompute\"", "\"forget\""), {"plan.json", "\"activations[1].each\"", "\"forget\"", "\"keep\", \"recompute\""});
  refuse(replaced(good, "\"count\": 2", "\"count\": 0"), {"\"activations[1].count\"", "found 0", "1 to 100000000"});
  refuse(replaced(good, "\"count\": 2", "\"count\": 1000000000"), {"\"activations[1].count\"", "1000000000"});
  refuse(replaced(good, "\"zero_stage\": 3", "\"zero_stage\": 4"), {"\"zero_stage\"", "found 4", "0, 1, 2 or 3"});
  refuse(replaced(good, "\"threads\": 7", "\"threads\": 2147483648"), {"\"threads\"", "2147483648"});
  refuse(replaced(good, "\"next_forward\"", "\"later\""),
         {"\"update_mode\"", "\"later\"", "\"at_end\", \"next_forward\", \"in_backward\""});
  refuse(replaced(good, "\"tensor\": 1", "\"tensors\": 1"), {"\"mesh.tensors\" is unknown", "\"mesh.tensor\""});
}

TEST(Plan, RefusesNumbersThatNoPlanHas) {
  const auto refuse = [](const char* key, void (*change)(Plan&)) {
    Plan p = example();
    change(p);
    expect_error<FormatError>([&] { plan_from_json(to_json(p), "plan.json"); }, {"plan.json", key});
  };
  refuse("chunk_elements", [](Plan& p) { p.chunk_elements = 0; });
  refuse("chunk_elements", [](Plan& p) { p.chunk_elements = 300; });
  refuse("rcache_elements", [](Plan& p) { p.rcache_elements = -1; });
  refuse("prefetch_segments", [](Plan& p) { p.prefetch_segments = -1; });
  refuse("micro_batch", [](Plan& p) { p.micro_batch = 0; });
  refuse("accumulation", [](Plan& p) { p.accumulation = 0; });
  refuse("threads", [](Plan& p) { p.threads = -3; });
}

TEST(Plan, NamesTiersAndModes) {
  EXPECT_EQ(name_of(Tier::kDevice), "device");
  EXPECT_EQ(name_of(Tier::kHost), "host");
  EXPECT_EQ(name_of(Tier::kDisk), "disk");
  EXPECT_EQ(name_of(UpdateMode::kAtEnd), "at_end");
  EXPECT_EQ(name_of(UpdateMode::kNextForward), "next_forward");
  EXPECT_EQ(name_of(UpdateMode::kInBackward), "in_backward");
}

TEST(Signature, SurvivesItsJsonForm) {
  EXPECT_EQ(signature_from_json(to_json(signature()), "manifest.json"), signature());
  expect_error<FormatError>([] { signature_from_json(replaced(to_json(signature()), "\"isa\"", "\"iso\""), "manifest.json"); },
                            {"manifest.json", "\"iso\" is unknown", "\"isa\""});
}

TEST(Signature, DescribesItselfInALine) {
  EXPECT_EQ(describe(signature()), "dp 2 x micro 4 x accum 1, reduce per step, f32, avx512, 1 thread, onednn 2.6.3");
  ArithmeticSignature s = signature();
  s.mesh = {1, 2, 3, 4};
  s.threads = 2;
  s.reduce_point = "micro-batch";
  EXPECT_EQ(describe(s), "dp 1 x pp 2 x tp 3 x sp 4 x micro 4 x accum 1, reduce per micro-batch, f32, avx512, 2 threads, onednn 2.6.3");
}

TEST(Signature, ListsEveryDifference) {
  EXPECT_THAT(differences(signature(), signature()), IsEmpty());
  ArithmeticSignature there;
  there.mesh = {3, 2, 2, 2};
  there.micro_batch = 5;
  there.accumulation = 2;
  there.reduce_point = "micro-batch";
  there.dtypes = "bf16";
  there.isa = "avx2";
  there.threads = 2;
  there.libraries = "onednn 3.0.0";
  EXPECT_THAT(differences(signature(), there),
              ElementsAre("mesh.data: 2 here, 3 there", "mesh.pipeline: 1 here, 2 there", "mesh.tensor: 1 here, 2 there",
                          "mesh.sequence: 1 here, 2 there", "micro_batch: 4 here, 5 there", "accumulation: 1 here, 2 there",
                          "reduce_point: step here, micro-batch there", "dtypes: f32 here, bf16 there", "isa: avx512 here, avx2 there",
                          "threads: 1 here, 2 there", "libraries: onednn 2.6.3 here, onednn 3.0.0 there"));
}

}  // namespace
}  // namespace sluice::spec
