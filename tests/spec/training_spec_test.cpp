#include "spec/training_spec.hpp"

#include <limits>
#include <tuple>

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
  t.precision = Precision::kFp16;
  t.loss_scale = {128, 12, 500, 3, true, 0.25};
  t.trainable = {"^h\\.1[01]\\.", "bias$"};
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

TEST(TrainingSpec, EveryScheduleAndOptimizerSurvives) {
  TrainingSpec t = example();
  t.schedule.warmup_shape = WarmupShape::kLog;
  t.schedule.power = 2.5;
  t.schedule.one_cycle = {1e-5, 10, 20, 3, 4, 0.5, 7};
  t.schedule.range_test = {1e-6, 30, 2.0, true};
  t.optimizer.momentum = 0.9;
  t.optimizer.dampening = 0.1;
  t.optimizer.nesterov = true;
  for (const ScheduleKind kind :
       {ScheduleKind::kPolynomial, ScheduleKind::kDeepSpeedCosine, ScheduleKind::kOneCycle, ScheduleKind::kRangeTest}) {
    t.schedule.kind = kind;
    EXPECT_EQ(training_spec_from_json(to_json(t), "t.json"), t);
  }
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kLion}) {
    t.optimizer.kind = kind;
    EXPECT_EQ(training_spec_from_json(to_json(t), "t.json"), t);
  }
}

TEST(TrainingSpec, PrecisionsHaveNamesAndDtypes) {
  for (const auto& [precision, name, dtype] : {std::tuple(Precision::kFp32, "fp32", DType::kF32),
                                               {Precision::kBf16, "bf16", DType::kBF16},
                                               {Precision::kFp16, "fp16", DType::kF16}}) {
    EXPECT_EQ(name_of(precision), name);
    EXPECT_EQ(dtype_of(precision), dtype);
    TrainingSpec t = example();
    t.precision = precision;
    t.trainable.clear();
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
  refuse(replaced(good, "\"fp16\"", "\"half\""), {"\"precision\"", "found \"half\"", "\"fp32\", \"bf16\", \"fp16\""});
  refuse(replaced(good, "\"window\": 500", "\"window\": 0.5"), {"\"loss_scale.window\"", "found 0.5", "a whole number"});
  refuse(replaced(good, "\"bias$\"", "7"), {"\"trainable[1]\"", "found 7", "a text"});
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
