#include "spec/training_spec.hpp"

#include <limits>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::spec {
namespace {

using testing::expect_error;
using testing::replaced;

TrainingSpec example() {
  TrainingSpec t;
  t.batch = {48, 4, 6, 256};
  t.optimizer = {0.9, 0.95, 1e-8, 0.1, DecayOn::kAll, 0.7};
  t.schedule = {ScheduleKind::kCosine, 6e-4, 1e-7, 715, 19560, 0.1, 1};
  t.seed = std::numeric_limits<std::uint64_t>::max();
  return t;
}

TEST(TrainingSpec, SurvivesItsJsonFormExactly) {
  EXPECT_EQ(training_spec_from_json(to_json(example()), "t.json"), example());
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    TrainingSpec t = example();
    t.schedule.kind = kind;
    t.optimizer.decay_on = DecayOn::kMatrices;
    EXPECT_EQ(training_spec_from_json(to_json(t), "t.json"), t);
  }
}

TEST(TrainingSpec, NamesNestedKeys) {
  const std::string good = to_json(example());
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { training_spec_from_json(text, "t.json"); }, pieces);
  };
  refuse(replaced(good, "\"warmup_steps\"", "\"warm_up_steps\""), {"\"schedule.warm_up_steps\" is unknown", "\"schedule.warmup_steps\""});
  refuse(replaced(good, "\"cosine\"", "\"cosin\""), {"\"schedule.kind\"", "found \"cosin\"", "\"constant\", \"linear\", \"cosine\""});
  refuse(replaced(good, "\"beta1\": 0.9", "\"beta1\": 0.9, \"beta1\": 0.9"), {"\"optimizer.beta1\"", "twice"});
  refuse(replaced(good, "18446744073709551615", "-1"), {"\"seed\"", "found -1", "from 0 to 18446744073709551615"});
  refuse(replaced(good, "\"seed\"", "\"sead\""), {"\"sead\" is unknown", "\"seed\""});
  refuse("{\"batch\": 3}", {"\"batch\"", "found 3", "an object"});
}

TEST(MeshSpec, SurvivesItsJsonForm) {
  const MeshSpec mesh{2, 3, 4, 5};
  EXPECT_EQ(mesh_spec_from_json(to_json(mesh), "mesh.json"), mesh);
  EXPECT_EQ(mesh.ranks(), 120);
  expect_error<FormatError>([] { mesh_spec_from_json(R"({"data": 1, "pipeline": 1, "tensor": 1})", "mesh.json"); },
                            {"\"sequence\" is missing"});
}

}  // namespace
}  // namespace sluice::spec
