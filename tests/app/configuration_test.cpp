#include "app/configuration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/key_rules.hpp"
#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

constexpr const char* kComplete = R"({
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.8, 0.95], "eps": 1e-9, "weight_decay": 0.1}},
  "sluice": {"model": {"preset": "gpt2-124m"}, "data": {"train": ["a.txt"]}, "steps": 20}
})";

Setting value(const std::string& path, const std::string& text, const std::string& origin) {
  return {path, text, origin, Setting::Kind::kValue};
}

class ConfigurationTest : public ::testing::Test {
 protected:
  ConfigurationRequest file(const std::string& text) { return {.file = directory_.write("demo.json", text)}; }
  /// "PATH/demo.json" of the message is cut to "demo.json".
  std::string cut(std::string text) const {
    for (std::size_t at; (at = text.find(directory_.path() + "/")) != std::string::npos;) text.erase(at, directory_.path().size() + 1);
    return text;
  }
  std::vector<std::string> problems(const std::string& text) {
    std::vector<std::string> found;
    for (const std::string& each : examine(file(text), std::nullopt).problems) found.push_back(cut(each));
    return found;
  }
  static KeyReport report_of(const Configuration& configuration, const std::string& path) {
    for (const KeyReport& key : configuration.keys) {
      if (key.path == path) return key;
    }
    ADD_FAILURE() << path << " is not reported";
    return {};
  }
  TempDir directory_;
};

TEST_F(ConfigurationTest, ReadsACompleteFile) {
  const Configuration c = load_configuration(file(kComplete), 2, Demand::kTrain);
  EXPECT_EQ(c.preset, "gpt2-124m");
  EXPECT_EQ(c.model_path, "");
  EXPECT_EQ(c.init, Init::kScratch);
  EXPECT_THAT(c.train_data, ElementsAre("a.txt"));
  EXPECT_EQ(c.order, DataOrder::kShuffled);
  EXPECT_EQ(c.steps, 20);
  EXPECT_EQ(c.epochs, std::nullopt);
  EXPECT_EQ(c.training.batch, (spec::BatchSpec{16, 4, 2, 0}));
  EXPECT_EQ(c.training.optimizer, (spec::OptimizerSpec{0.8, 0.95, 1e-9, 0.1, spec::DecayOn::kAll, 1.0}));
  EXPECT_EQ(c.training.schedule.kind, spec::ScheduleKind::kConstant);
  EXPECT_DOUBLE_EQ(c.training.schedule.peak, 1e-3);
  EXPECT_EQ(c.training.seed, 1u);
  EXPECT_EQ(c.mesh, (spec::MeshSpec{.data = 2}));
  EXPECT_EQ(c.output, "runs/demo");
  EXPECT_EQ(c.checkpoint_interval, 100);
  EXPECT_EQ(c.checkpoint_keep, 3);
  EXPECT_EQ(c.resume, ResumeMode::kAuto);
}

TEST_F(ConfigurationTest, ReadsEveryKeyOfSluice) {
  const Configuration c = load_configuration(file(R"({
    "train_batch_size": 8, "steps_per_print": 5, "gradient_clipping": 0,
    "optimizer": {"type": "adam", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 2},
    "sluice": {
      "model": {"path": "models/x/"}, "init": "scratch",
      "data": {"train": "one.txt", "valid": ["two.txt", "three.txt"], "order": "sequential", "tokenizer": "tok/", "chat_template": "c.jinja",
        "text_key": "body", "packing": "pad", "overlong": "truncate", "invalid_utf8": "replace", "document_attention": true},
      "trainable": ["^h\\.1[01]\\.", "ln_f"],
      "sequence-length": 64, "epochs": 1.5, "seed": 18446744073709551615, "output": "out/there", "device": "cpu",
      "memory": {"device": "200MiB", "host": 1073741824}, "mesh": {"tensor": 1, "tensor_mode": "1d", "sequence": 1, "pipeline": 1},
      "checkpoint": {"interval": 0, "keep": 1, "best": false}, "evaluate": {"interval": 10}, "weight_decay_on": "matrices",
      "threads": 3, "plan": "p.json", "pin": ["zero_optimization.stage"], "resume": "some/checkpoint",
      "dry_run": true, "reprofile": true, "dump_graph": true, "export": false}})"),
                                             1, Demand::kTrain);
  EXPECT_EQ(c.model_path, "models/x/");
  EXPECT_EQ(c.init, Init::kScratch);
  EXPECT_THAT(c.train_data, ElementsAre("one.txt"));
  EXPECT_THAT(c.valid_data, ElementsAre("two.txt", "three.txt"));
  EXPECT_EQ(c.order, DataOrder::kSequential);
  EXPECT_EQ(c.tokenizer, "tok/");
  EXPECT_EQ(c.chat_template, "c.jinja");
  EXPECT_EQ(c.text_key, "body");
  EXPECT_EQ(c.packing, data::Packing::kPad);
  EXPECT_FALSE(c.training.document_attention);  // a row of "pad" holds one document
  EXPECT_TRUE(
      load_configuration(file(R"({"sluice": {"data": {"document_attention": true}}})"), 1, Demand::kNothing).training.document_attention);
  EXPECT_EQ(c.overlong, data::Overlong::kTruncate);
  EXPECT_EQ(c.invalid_utf8, data::InvalidUtf8::kReplace);
  EXPECT_THAT(c.training.trainable, ElementsAre("^h\\.1[01]\\.", "ln_f"));
  EXPECT_FALSE(c.checkpoint_best);
  EXPECT_FALSE(c.export_model);
  EXPECT_EQ(c.training.batch.sequence_length, 64);
  EXPECT_EQ(c.epochs, 1.5);
  EXPECT_EQ(c.training.seed, 18446744073709551615u);
  EXPECT_EQ(c.output, "out/there");
  EXPECT_EQ(c.device_memory_bytes, 200 << 20);
  EXPECT_EQ(c.host_memory_bytes, 1 << 30);
  EXPECT_EQ(c.checkpoint_interval, 0);
  EXPECT_EQ(c.checkpoint_keep, 1);
  EXPECT_EQ(c.evaluate_interval, 10);
  EXPECT_EQ(c.print_interval, 5);
  EXPECT_EQ(c.training.optimizer.decay_on, spec::DecayOn::kMatrices);
  EXPECT_EQ(c.training.optimizer.gradient_clipping, 0);
  EXPECT_EQ(c.threads, 3);
  EXPECT_EQ(c.plan_file, "p.json");
  EXPECT_THAT(c.pins, ElementsAre("zero_optimization.stage"));
  EXPECT_EQ(c.resume, ResumeMode::kPath);
  EXPECT_EQ(c.resume_path, "some/checkpoint");
  EXPECT_TRUE(c.dry_run && c.reprofile && c.dump_graph);
  EXPECT_EQ(c.hints.zero_stage, 2);
}

TEST_F(ConfigurationTest, FlagsAloneDecayMatricesOnly) {
  ConfigurationRequest request;
  request.settings = {{"sluice.model", "gpt2-tiny", "--model", Setting::Kind::kText},
                      {"sluice.data.train", "a", "--data", Setting::Kind::kAppend},
                      {"sluice.data.train", "b", "--data", Setting::Kind::kAppend},
                      value("sluice.steps", "7", "--steps"),
                      value("train_batch_size", "6", "--train-batch-size")};
  request.trainer = {{"learning_rate", "3e-4"}, {"weight_decay", "0.01"}, {"adam_beta1", "0.8"},
                     {"adam_beta2", "0.9"},     {"adam_epsilon", "1e-6"}, {"max_grad_norm", "0.5"}};
  const Configuration c = load_configuration(request, 3, Demand::kTrain);
  EXPECT_EQ(c.preset, "gpt2-tiny");
  EXPECT_EQ(c.output, "runs/gpt2-tiny");
  EXPECT_THAT(c.train_data, ElementsAre("a", "b"));
  EXPECT_EQ(c.training.optimizer, (spec::OptimizerSpec{0.8, 0.9, 1e-6, 0.01, spec::DecayOn::kMatrices, 0.5}));
  EXPECT_EQ(c.training.batch, (spec::BatchSpec{6, 0, 0, 0}));  // the planner chooses the micro-batch
  EXPECT_DOUBLE_EQ(c.training.schedule.peak, 3e-4);
}

TEST_F(ConfigurationTest, TheCommandLineReplacesTheFileAndSaysSo) {
  ConfigurationRequest request = file(kComplete);
  request.settings = {value("sluice.steps", "5", "--steps"),
                      {"sluice.data.train", "b.txt", "--data", Setting::Kind::kAppend},
                      value("optimizer.params.lr", "2e-4", "--set optimizer.params.lr"),
                      value("sluice.checkpoint.interval", "9", "--set sluice.checkpoint.interval")};
  const Configuration c = load_configuration(request, 1, Demand::kTrain);
  EXPECT_EQ(c.steps, 5);
  EXPECT_THAT(c.train_data, ElementsAre("b.txt"));
  EXPECT_DOUBLE_EQ(c.training.schedule.peak, 2e-4);
  EXPECT_EQ(c.checkpoint_interval, 9);
  EXPECT_THAT(c.notes, Contains(HasSubstr("--steps 5 replaces sluice.steps 20 of ")));
}

TEST_F(ConfigurationTest, ALengthReplacesTheOtherKindOfLength) {
  ConfigurationRequest request = file(kComplete);
  request.settings = {value("sluice.epochs", "2", "--epochs")};
  const Configuration c = load_configuration(request, 1, Demand::kTrain);
  EXPECT_EQ(c.steps, std::nullopt);
  EXPECT_EQ(c.epochs, 2);
  request.settings.push_back(value("sluice.steps", "3", "--steps"));
  expect_error<RequestError>([&] { load_configuration(request, 1, Demand::kTrain); }, {"--epochs", "beside sluice.steps"});
}

TEST_F(ConfigurationTest, AKeyGivenTwiceDifferentlyIsRefused) {
  ConfigurationRequest request = file(kComplete);
  request.settings = {value("sluice.steps", "5", "--steps"), value("sluice.steps", "6", "--max-steps")};
  expect_error<RequestError>([&] { load_configuration(request, 1, Demand::kTrain); }, {"--steps", "5", "--max-steps", "6", "keep one"});
  request.settings[1].value = "5";
  EXPECT_EQ(load_configuration(request, 1, Demand::kTrain).steps, 5);
}

TEST_F(ConfigurationTest, ResumeAutoIsTheAbsentOne) {
  ConfigurationRequest request = file(kComplete);
  request.settings = {{"sluice.resume", "auto", "--resume", Setting::Kind::kText}};
  EXPECT_EQ(load_configuration(request, 1, Demand::kTrain).resume, ResumeMode::kAuto);
  request.settings[0].value = "never";
  EXPECT_EQ(load_configuration(request, 1, Demand::kTrain).resume, ResumeMode::kNever);
}

TEST_F(ConfigurationTest, UnknownKeysAreNamedWithTheirPlaceAndTheNearest) {
  EXPECT_THAT(problems("{\n\"zero_optimization\": {\n\"stge\": 2}}"),
              ElementsAre("demo.json:3: zero_optimization.stge: unknown key; the nearest known key is \"zero_optimization.stage\""));
  EXPECT_THAT(problems("{\"sluice\": {\"sead\": 2}}"),
              ElementsAre("demo.json:1: sluice.sead: unknown key; the nearest known key is \"sluice.seed\""));
  EXPECT_THAT(problems("{\"steps\": 2}"), ElementsAre("demo.json:1: steps: unknown key; the nearest known key is \"sluice.steps\""));
  EXPECT_THAT(problems("{\"sluice\": {\"mesh\": {\"qqqqqq\": 2}}}"),
              ElementsAre("demo.json:1: sluice.mesh.qqqqqq: unknown key; known in sluice.mesh: tensor, tensor_mode, sequence, pipeline"));
  ConfigurationRequest request;
  request.settings = {value("optimizer.parms.lr", "1", "--set optimizer.parms.lr")};
  EXPECT_THAT(examine(request, std::nullopt).problems,
              Contains(HasSubstr("--set optimizer.parms.lr: optimizer.parms: unknown key; the nearest known key is \"optimizer.params\"")));
}

TEST_F(ConfigurationTest, TheFilesWeShipHaveNoProblems) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(SLUICE_SOURCE_DIR) + "/configs/runs")) {
    EXPECT_THAT(examine({.file = entry.path()}, std::nullopt).problems, IsEmpty()) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 2);
}

TEST_F(ConfigurationTest, CommentKeysAreFreeEverywhere) {
  EXPECT_THAT(problems(R"({"_comment": 1, "//": [], "$schema": "x", "zero_optimization": {"_why": 2}, "sluice": {"_a-b": {}}})"),
              IsEmpty());
}

TEST_F(ConfigurationTest, DuplicateAndBrokenFilesAreRefused) {
  expect_error<RequestError>([&] { examine(file("{\"seed\": 1,\n \"seed\": 2}"), 1); }, {"demo.json:2", "\"seed\"", "twice", "line 1"});
  expect_error<RequestError>([&] { examine(file("{\"a\": }"), 1); }, {"demo.json", "not valid JSON", "line 1"});
  expect_error<RequestError>([&] { examine(file("[1]"), 1); }, {"demo.json", "found [1]", "an object"});
  EXPECT_THAT(problems(R"({"sluice": {"weight-decay-on": "all", "weight_decay_on": "all"}})"), Contains(HasSubstr("with - and with _")));
  expect_error<EnvironmentError>([] { examine({.file = "/no/such/file.json"}, 1); },
                                 {"/no/such/file.json", "No such file", "give the path"});
}

TEST_F(ConfigurationTest, TypesAreChecked) {
  const auto one = [&](const std::string& key, const std::string& expected) {
    EXPECT_THAT(problems("{\"sluice\": {" + key + "}}"), Contains(HasSubstr(expected))) << key;
  };
  one(R"("steps": "ten")", "sluice.steps: found \"ten\", expected a whole number of at least 1");
  one(R"("steps": 0)", "found 0, expected a whole number of at least 1");
  one(R"("steps": 1.5)", "found 1.5, expected a whole number");
  one(R"("epochs": 0)", "found 0, expected a number above 0");
  one(R"("seed": -1)", "found -1, expected a whole number of at least 0");
  one(R"("memory": {"device": "lots"})", "\"lots\" is not a size");
  one(R"("memory": {"host": 0})", "found 0, expected a size above 0");
  one(R"("data": {"train": [1]})", "expected a list of texts");
  one(R"("nvme_path": [""])", "found [\"\"], expected a list of texts, none of them empty");
  one(R"("data": {"order": "sorted"})", "expected one of shuffled, sequential");
  one(R"("dry_run": 1)", "found 1, expected true or false");
  one(R"("model": "gpt2")", "expected an object {...} with keys such as preset");
  one(R"("model": {"preset": "a", "path": "b"})", "has both preset and path");
  one(R"("init": "weights", "model": {"preset": "a"})", "a preset has none");
  one(R"("evaluate": {"interval": 5})", "nothing to evaluate on");
  one(R"("output": "")", "expected a text");
  EXPECT_THAT(problems(R"({"optimizer": {"type": "AdamW", "params": {"lr": -1}}})"),
              ElementsAre(HasSubstr("found -1, expected a number of at least 0")));
  EXPECT_THAT(problems(R"({"gradient_clipping": "1"})"), ElementsAre(HasSubstr("found \"1\", expected a number")));
}

TEST_F(ConfigurationTest, WholeNumbersMayBeWrittenAsDeepSpeedTakesThem) {
  const Configuration c = load_configuration(file(R"({"train_batch_size": 4.0, "zero_optimization": {"reduce_bucket_size": 5e8},
    "sluice": {"steps": 2e1, "model": {"preset": "a"}}})"),
                                             1, Demand::kPlan);
  EXPECT_EQ(c.training.batch.global_batch, 4);
  EXPECT_EQ(c.hints.reduce_elements, 500000000);
  EXPECT_EQ(c.steps, 20);
}

TEST_F(ConfigurationTest, FeaturesThatAreNotThereAreRefused) {
  for (const char* key : {R"("mesh": {"tensor": 2})", R"("mesh": {"tensor_mode": "2d"})", R"("mesh": {"sequence": 2})",
                          R"("mesh": {"pipeline": 4})", R"("device": "cuda")"}) {
    const std::vector<std::string> found = problems(std::string("{\"sluice\": {") + key + "}}");
    ASSERT_EQ(found.size(), 1u) << key;
    EXPECT_THAT(found[0], HasSubstr("is not in this version of Sluice")) << key;
  }
}

TEST_F(ConfigurationTest, AutoIsNoValueInsideSluice) {
  EXPECT_THAT(problems(R"({"sluice": {"threads": "auto"}})"), Contains(HasSubstr("leave the key out, absent means automatic")));
}

TEST_F(ConfigurationTest, WhatChangesResultsIsRefusedUnlessIgnored) {
  const char* text = R"({"torch_autocast": {"enabled": true}, "data_efficiency": {"enabled": false}, "gradient_allreduce_op": "sum",
    "zero_optimization": {"zero_quantized_gradients": true, "zenflow": {"topk_ratio": 0.1}}, "weight_quantization": {}})";
  ConfigurationRequest request = file(text);
  const Examination refused = examine(request, 1);
  EXPECT_THAT(refused.problems, ElementsAre(HasSubstr("torch_autocast.enabled: found true, which changes results: write bf16 or fp16"),
                                            HasSubstr("gradient_allreduce_op"), HasSubstr("zero_quantized_gradients"),
                                            HasSubstr("zenflow: changes results: updates are never delayed")));
  EXPECT_EQ(report_of(refused.configuration, "torch_autocast.enabled").key_class, KeyClass::kRefused);
  EXPECT_EQ(report_of(refused.configuration, "data_efficiency").key_class, KeyClass::kHonoured);

  for (const char* key :
       {"torch_autocast", "gradient-allreduce-op", "zero_optimization.zenflow", "zero_optimization.zero_quantized_gradients"}) {
    request.settings.push_back({"sluice.ignore", key, "--ignore", Setting::Kind::kAppend});
  }
  const Examination ignored = examine(request, 1);
  EXPECT_THAT(ignored.problems, IsEmpty());
  EXPECT_EQ(report_of(ignored.configuration, "torch_autocast").key_class, KeyClass::kIgnored);
  EXPECT_THAT(ignored.configuration.notes,
              Contains(HasSubstr("ignored as asked, results may differ from what they say: gradient_allreduce_op, torch_autocast, ")));
}

TEST_F(ConfigurationTest, WhatDeepSpeedRefusesItselfIsRefusedEvenWhereItIsOff) {
  for (const char* key : {"nebula", "compression_training", "amp", "quantize_training", "sparse_gradients", "eigenvalue",
                          "sparse_attention", "elasticity", "graph_harvesting", "curriculum_learning", "progressive_layer_drop"}) {
    EXPECT_THAT(problems(std::string("{\"") + key + "\": {\"enabled\": false}}"),
                ElementsAre(HasSubstr(std::string(key) + ": DeepSpeed 0.19.8 refuses this key, even where it is off")));
    EXPECT_THAT(problems(std::string("{\"") + key + "\": {}, \"sluice\": {\"ignore\": \"" + key + "\"}}"), IsEmpty());
  }
  for (const char* key : {"mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param"}) {
    EXPECT_THAT(problems(std::string("{\"zero_optimization\": {\"") + key + "\": 1}}"),
                ElementsAre(HasSubstr("DeepSpeed 0.19.8 refuses this key")));
  }
}

TEST_F(ConfigurationTest, KeysThatAreOnlyNotedHaveTypesToo) {
  EXPECT_THAT(problems("{\"aio\": {\n\"single_submit\": \"false\"}}"),
              ElementsAre("demo.json:2: aio.single_submit: found \"false\", expected true or false"));
  EXPECT_THAT(problems(R"({"wall_clock_breakdown": 1})"), ElementsAre(HasSubstr("found 1, expected true or false")));
  EXPECT_THAT(problems(R"({"flops_profiler": {"profile_step": 1.5}})"), ElementsAre(HasSubstr("found 1.5, expected a whole number")));
  EXPECT_THAT(problems(R"({"zero_optimization": {"sub_group_size": "1e9"}})"),
              Contains(HasSubstr("sub_group_size: found \"1e9\", expected a whole number")));
  EXPECT_THAT(problems(R"({"comms_logger": {"prof_ops": "all"}})"), ElementsAre(HasSubstr("expected a list")));
  EXPECT_THAT(problems(R"({"zero_optimization": {"overlap_comm": "auto", "sub_group_size": 1e9}, "tensorboard": {"output_path": null}})"),
              IsEmpty());
}

TEST_F(ConfigurationTest, ADottedNameIsNoPath) {
  EXPECT_THAT(problems(R"({"optimizer.params.lr": 1})"), Contains(HasSubstr("has a dot; write nested objects")));
}

TEST_F(ConfigurationTest, IgnoreKnowsItsLimits) {
  ConfigurationRequest request = file("{}");
  request.settings = {{"sluice.ignore", "fp61", "--ignore", Setting::Kind::kAppend}};
  EXPECT_THAT(examine(request, 1).problems, Contains(HasSubstr("\"fp61\" is no key that is known; the nearest known key is \"fp16\"")));
  request.settings[0].value = "sluice.nvme_path";
  EXPECT_THAT(examine(request, 1).problems, Contains(HasSubstr("never ignored")));
}

TEST_F(ConfigurationTest, HintsAndPerformanceKeysAreFoldedIntoOneNoteEach) {
  const Configuration c = load_configuration(
      file(
          R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local", "pin_memory": true, "ratio": 0.5},
        "offload_param": {"device": "none", "buffer_size": 1e8, "max_in_cpu": 1e9},
        "stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 1e9, "reduce_bucket_size": "auto"},
        "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": false, "number_checkpoints": 4},
        "aio": {"block_size": 1048576, "queue_depth": 16, "thread_count": 2, "single_submit": false, "overlap_events": true},
        "wall_clock_breakdown": true, "flops_profiler": {"enabled": true}})"),
      1, Demand::kNothing);
  EXPECT_EQ(c.hints.zero_stage, 3);
  EXPECT_EQ(c.hints.offload_optimizer, (OffloadHint{.device = "nvme", .nvme_path = "/local", .pin_memory = true, .ratio = 0.5}));
  EXPECT_EQ(c.hints.offload_param, (OffloadHint{.device = "none", .buffer_elements = 100000000, .max_host_elements = 1000000000}));
  EXPECT_EQ(c.hints.prefetch_elements, std::nullopt);
  EXPECT_EQ(c.hints.max_live_elements, 1000000000);
  EXPECT_EQ(c.hints.activations, (ActivationHint{.partition = true, .on_host = false, .number_checkpoints = 4}));
  EXPECT_EQ(c.hints.aio,
            (AioHint{.block_bytes = 1048576, .queue_depth = 16, .threads = 2, .single_submit = false, .overlap_events = true}));
  EXPECT_EQ(report_of(c, "zero_optimization.offload_optimizer.pin_memory").key_class, KeyClass::kHint);
  EXPECT_EQ(report_of(c, "flops_profiler.enabled").key_class, KeyClass::kPerformanceOnly);
  EXPECT_THAT(c.notes, Contains("not needed here, since they change no result: wall_clock_breakdown, flops_profiler.enabled"));
  EXPECT_THAT(c.notes, Contains("taken as hints about placement, which the plan may beat (--pin KEY keeps them): zero_optimization.stage, "
                                "zero_optimization.offload_optimizer.device, zero_optimization.offload_optimizer.nvme_path, "
                                "zero_optimization.offload_param.device, activation_checkpointing.cpu_checkpointing, aio.block_size, "
                                "aio.queue_depth"));
  EXPECT_THAT(c.notes, Contains(HasSubstr("hints about placement that this version's plan has no use for; no result changes: "
                                          "zero_optimization.offload_optimizer.pin_memory")));
}

TEST_F(ConfigurationTest, PathsToSwapToAreOursOrThoseOfOffloading) {
  const auto read = [&](const std::string& text) { return load_configuration(file(text), 1, Demand::kNothing); };
  Configuration c = read(R"({"sluice": {"nvme_path": ["/a", "/b"], "memory": {"nvme": "2GiB"}, "nvme_network": true},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/c"}}})");
  EXPECT_THAT(c.nvme_paths, ElementsAre("/a", "/b")) << "ours win";
  EXPECT_EQ(c.nvme_space_bytes, std::int64_t{2} << 30);
  EXPECT_TRUE(c.nvme_network);
  EXPECT_THAT(to_json(c), HasSubstr("\"nvme\": 2147483648"));
  EXPECT_EQ(report_of(c, "sluice.nvme_path").key_class, KeyClass::kHonoured);
  c = read(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/c"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "/d"}}})");
  EXPECT_THAT(c.nvme_paths, ElementsAre("/d", "/c"));
  EXPECT_THAT(c.nvme_keys, ElementsAre(HasSubstr("zero_optimization.offload_optimizer.nvme_path"),
                                       AllOf(HasSubstr(".json:1: "), HasSubstr("zero_optimization.offload_param.nvme_path"))));
  EXPECT_THAT(c.notes, Contains("zero_optimization.offload_param.nvme_path is taken for --nvme-path: /c"));
  c = read(R"({"zero_optimization": {"offload_param": {"device": "cpu", "nvme_path": "/c"}}})");
  EXPECT_THAT(c.nvme_paths, IsEmpty()) << "what goes to host memory needs no path";
  c = read(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})");
  EXPECT_THAT(c.notes, Contains(HasSubstr("zero_optimization.offload_optimizer.device is nvme, but "
                                          "zero_optimization.offload_optimizer.nvme_path is not given: nothing goes to disk without it")));
  c = read(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/c/"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "/c"}}})");
  EXPECT_THAT(c.nvme_paths, ElementsAre("/c")) << "one directory";
  EXPECT_THAT(problems(R"({"sluice": {"nvme_path": ["/a", "/b/../a/"]}})"), ElementsAre(HasSubstr("/b/../a/ is the same directory as /a")));
  EXPECT_THAT(problems(R"({"sluice": {"memory": {"nvme": "2GiB"}}})"), ElementsAre(HasSubstr("no path is given; give --nvme-path DIR")));
  EXPECT_THAT(problems(R"({"sluice": {"nvme_network": true}})"), ElementsAre(HasSubstr("no path is given")));
  EXPECT_THAT(problems(R"({"sluice": {"nvme_paths": ["/a"]}})"), ElementsAre(HasSubstr("the nearest known key is \"sluice.nvme_path\"")));
  EXPECT_THAT(problems(R"({"aio": {"queue_depth": 0}})"), Contains(HasSubstr("found 0, expected a whole number from 1 to 65536")));
}

TEST_F(ConfigurationTest, OffloadingCanBePinned) {
  ConfigurationRequest request =
      file(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "aio": {"queue_depth": 4}})");
  for (const char* key : {"zero_optimization.offload-optimizer", "aio", "aio.queue_depth"})
    request.settings.push_back({"sluice.pin", key, "--pin", Setting::Kind::kAppend});
  const Examination result = examine(request, 1);
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_THAT(result.configuration.pins, ElementsAre("zero_optimization.offload_optimizer", "aio", "aio.queue_depth"));
}

TEST_F(ConfigurationTest, AFlagGivenTwiceSaysSo) {
  ConfigurationRequest request = file("{}");
  for (const char* steps : {"20", "4000"}) request.settings.push_back({"sluice.steps", steps, "--steps"});
  EXPECT_THAT(examine(request, 1).problems, ElementsAre("--steps is given twice, as 20 and 4000; keep one of them"));
  request.settings.back().origin = "--set";
  EXPECT_THAT(examine(request, 1).problems, ElementsAre("--steps gives sluice.steps as 20, --set as 4000; keep one of them"));
}

TEST_F(ConfigurationTest, WhatCantBePinnedIsSaidAtOnce) {
  const auto problems_of = [&](const std::string& text, const std::string& pin) {
    ConfigurationRequest request = file(text);
    request.settings.push_back({"sluice.pin", pin, "--pin", Setting::Kind::kAppend});
    return examine(request, 1).problems;
  };
  const std::string nvme = R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}, "stage3_prefetch_bucket_size": 9}})";
  for (const char* pin : {"zero_optimization", "zero_optimization.offload_param"}) {
    EXPECT_THAT(problems_of(nvme, pin), ElementsAre(HasSubstr("no path is given; give zero_optimization.offload_param.nvme_path or "
                                                              "--nvme-path DIR")))
        << pin;
  }
  EXPECT_THAT(problems_of(nvme, "zero_optimization.stage"), IsEmpty());
  const std::string both =
      R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "cpu"}}})";
  EXPECT_THAT(problems_of(both, "zero_optimization"), ElementsAre(HasSubstr("zero_optimization.offload_param.device is nvme")));
  EXPECT_THAT(problems_of(both, "zero_optimization.offload_optimizer"), IsEmpty());
  EXPECT_THAT(problems_of(nvme, "zero_optimization.stage3_prefetch_bucket_size"), ElementsAre(HasSubstr("can't be pinned; known: ")));
  EXPECT_THAT(problems_of(R"({"aio": {"single_submit": true}})", "aio"), ElementsAre(HasSubstr("says nothing there that could be kept")));
}

TEST_F(ConfigurationTest, DeprecatedSpellingsMeanTheNewOnes) {
  const auto hints = [&](const std::string& text) { return load_configuration(file(text), 1, Demand::kNothing).hints; };
  EXPECT_EQ(hints(R"({"zero_optimization": true})").zero_stage, 1);
  EXPECT_EQ(hints(R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})").offload_optimizer.device, "cpu");
  EXPECT_EQ(hints(R"({"zero_optimization": {"stage": 3, "cpu_offload_param": true}})").offload_param.device, "cpu");
  EXPECT_EQ(load_configuration(file(R"({"bfloat16": {"enabled": true}})"), 1, Demand::kNothing).training.precision, spec::Precision::kBf16);
  EXPECT_THAT(problems("{\"bfloat16\": {\n\"enabled\": 1}}"), ElementsAre(HasSubstr("demo.json:2: bfloat16.enabled: found 1")));
  EXPECT_THAT(problems(R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})"),
              ElementsAre(HasSubstr("is the old name of zero_optimization.offload_optimizer")));
  EXPECT_THAT(problems(R"({"zero_optimization": {"stage": 4}})"), Contains(HasSubstr("found 4, expected a whole number from 0 to 3")));
  EXPECT_THAT(problems(R"({"zero_optimization": {"offload_param": {"device": "gpu"}}})"),
              Contains(HasSubstr("expected one of none, cpu, nvme")));
}

TEST_F(ConfigurationTest, PrecisionFollowsTheBlocks) {
  const auto training = [&](const std::string& text) { return load_configuration(file(text), 1, Demand::kNothing).training; };
  EXPECT_EQ(training("{}").precision, spec::Precision::kFp32);
  EXPECT_THAT(load_configuration(file("{}"), 1, Demand::kNothing).notes,
              Contains("precision: fp32, since neither bf16 nor fp16 is enabled"));
  EXPECT_EQ(training(R"({"bf16": {"enabled": true, "check_grad_overflow": false}})").precision, spec::Precision::kBf16);
  EXPECT_FALSE(training(R"({"bf16": {"enabled": true, "check_grad_overflow": false}})").skips_overflow);
  EXPECT_TRUE(training(R"({"bf16": {"enabled": true}})").skips_overflow);
  const spec::TrainingSpec fp16 =
      training(R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 20, "loss_scale_window": 500,
    "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 2}})");
  EXPECT_EQ(fp16.precision, spec::Precision::kFp16);
  EXPECT_EQ(fp16.loss_scale, (spec::LossScaleSpec{0, 20, 500, 3, true, 2}));
  EXPECT_EQ(training(R"({"fp16": {"enabled": "auto", "loss_scale": 128}})").loss_scale, (spec::LossScaleSpec{.fixed = 128}));
  EXPECT_THAT(problems(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"),
              ElementsAre("demo.json:1: bf16.enabled: is true beside fp16.enabled; keep one of them"));
  EXPECT_THAT(problems(R"({"fp16": {"enabled": true, "loss_scale": true}})"), ElementsAre(HasSubstr("found true, expected a number")));
  EXPECT_THAT(problems(R"({"fp16": {"enabled": true, "loss_scale": -1}})"), ElementsAre(HasSubstr("found -1")));
  EXPECT_THAT(problems(R"({"fp16": {"enabled": true, "loss_scale_window": 0}})"), ElementsAre(HasSubstr("found 0")));
  EXPECT_THAT(problems(R"({"bf16": {"bf16_master_weights_and_grads": true}})"), ElementsAre(HasSubstr("32-bit floats; remove it")));
  EXPECT_THAT(problems(R"({"bf16": {"enabled": true}, "data_types": {"param_dtype": "fp32"}})"),
              ElementsAre(HasSubstr("found \"fp32\", but parameters are bf16")));
  ConfigurationRequest request = file(R"({"bf16": {"enabled": true}})");
  request.trainer = {{"bf16", "False"}};
  EXPECT_THAT(examine(request, 1).problems, ElementsAre(HasSubstr("bf16.enabled is true and --bf16 says False")));
  request = {.trainer = {{"bf16", "true"}}};
  EXPECT_EQ(examine(request, 1).configuration.training.precision, spec::Precision::kBf16);
}

TEST_F(ConfigurationTest, ABase64TextIsAConfiguration) {
  // {"train_batch_size": 6, "gradient_clipping": 0.5}
  const Configuration c =
      load_configuration({.file = "eyJ0cmFpbl9iYXRjaF9zaXplIjogNiwgImdyYWRpZW50X2NsaXBwaW5nIjogMC41fQ=="}, 1, Demand::kNothing);
  EXPECT_EQ(c.training.batch.global_batch, 6);
  EXPECT_EQ(c.training.optimizer.gradient_clipping, 0.5);
  EXPECT_EQ(c.source, "the configuration given as base64");
  EXPECT_EQ(c.output, "");
  // Longer than a file's name may be: 3000 spaces, then {"train_batch_size": 6}.
  std::string spaces;
  for (int i = 0; i < 1000; ++i) spaces += "ICAg";
  EXPECT_EQ(load_configuration({.file = spaces + "eyJ0cmFpbl9iYXRjaF9zaXplIjogNn0="}, 1, Demand::kNothing).training.batch.global_batch, 6);
  expect_error<EnvironmentError>([] { examine({.file = "config.jsn"}, 1); }, {"config.jsn: No such file"});
  expect_error<RequestError>([] { examine({.file = "eyJhIjog"}, 1); }, {"given as base64", "not valid JSON"});
}

TEST_F(ConfigurationTest, PinsNameWrittenPlacementKeys) {
  EXPECT_THAT(problems(R"({"sluice": {"pin": ["zero_optimization"]}})"),
              Contains(HasSubstr("is not written, so there is nothing to keep")));
  EXPECT_THAT(problems(R"({"gradient_clipping": 1, "sluice": {"pin": ["gradient_clipping"]}})"),
              Contains(HasSubstr("is not about placement")));
  EXPECT_THAT(problems(R"({"sluice": {"pin": ["zero_optimisation"]}})"), Contains(HasSubstr("nearest known key is \"zero_optimization\"")));
  EXPECT_THAT(problems(R"({"zero_optimization": {"stage": 1}, "sluice": {"pin": "zero-optimization"}})"), IsEmpty());
}

TEST_F(ConfigurationTest, MovedDefaultsAreAnnounced) {
  const Configuration c = load_configuration(file(kComplete), 1, Demand::kTrain);
  EXPECT_EQ(report_of(c, "gradient_clipping").key_class, KeyClass::kMovedDefault);
  EXPECT_THAT(c.notes, Contains("gradient_clipping is not given: 1.0, DeepSpeed's newer default (before mid-2026: 0, no clipping)"));
  EXPECT_THAT(c.notes, Contains("sluice.weight_decay_on is not given: \"all\", as DeepSpeed does for a written optimizer block"));
}

TEST_F(ConfigurationTest, OptimizersOfDeepSpeed) {
  const auto optimizer = [&](const std::string& block) {
    return examine(file("{\"optimizer\": " + block + "}"), 1).configuration.training.optimizer;
  };
  spec::OptimizerSpec expected{.decay_on = spec::DecayOn::kAll};
  EXPECT_EQ(optimizer(R"({"type": "Adam"})"), expected);
  EXPECT_EQ(optimizer(R"({"type": "AdamW", "params": {"adam_w_mode": false}})"), expected);  // AdamW is decoupled anyway
  expected.weight_decay = 0.01;
  EXPECT_EQ(optimizer(R"({"type": "AdamW", "params": {"torch_adam": true}})"), expected);
  expected.weight_decay = 0.2;
  expected.kind = spec::OptimizerKind::kAdam;
  EXPECT_EQ(optimizer(R"({"type": "ADAM", "params": {"adam_w_mode": false, "weight_decay": 0.2}})"), expected);
  expected.kind = spec::OptimizerKind::kLion;
  expected.beta2 = 0.99;
  EXPECT_EQ(optimizer(R"({"type": "Lion", "params": {"lr": 1e-4, "weight_decay": 0.2}})"), expected);
  expected = {.decay_on = spec::DecayOn::kAll, .kind = spec::OptimizerKind::kSgd, .momentum = 0.9, .dampening = 0.1};
  EXPECT_EQ(optimizer(R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}})"), expected);
  for (const char* block : {R"({"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.2}})", R"({"type": "Lion"})",
                            R"({"type": "SGD"})", R"({"type": "SGD", "params": {"momentum": 0.9, "nesterov": true}})"}) {
    EXPECT_THAT(problems(std::string("{\"optimizer\": ") + block + "}"), IsEmpty()) << block;
  }
  EXPECT_THAT(problems(R"({"optimizer": {"type": "SGD", "params": {"maximize": true}}})"), ElementsAre(HasSubstr("the loss is minimised")));
}

TEST_F(ConfigurationTest, OptimizersThatAreRefused) {
  for (const char* type : {"Lamb", "Adagrad", "muon", "OneBitAdam", "RMSprop"}) {
    EXPECT_THAT(problems(std::string("{\"optimizer\": {\"type\": \"") + type + "\"}}"),
                ElementsAre(HasSubstr(std::string("\"") + type + "\" is not supported; write one of AdamW, Adam, SGD, Lion (AdamW")));
  }
  EXPECT_THAT(problems(R"({"optimizer": {"type": "Magic"}})"), ElementsAre(HasSubstr("\"Magic\" is no optimizer that is known")));
  EXPECT_THAT(problems(R"({"optimizer": {"params": {}}})"), ElementsAre(HasSubstr("optimizer: has no type")));
  EXPECT_THAT(problems(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": true, "torch_adam": true, "amsgrad": false}}})"),
              IsEmpty());
  EXPECT_THAT(problems(R"({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}})"),
              ElementsAre(HasSubstr("write gradient_clipping")));
  EXPECT_THAT(problems(R"({"optimizer": {"type": "AdamW", "params": {"bias_correction": false}}})"),
              ElementsAre(HasSubstr("bias correction")));
  EXPECT_THAT(problems(R"({"optimizer": {"type": "AdamW", "params": {"momentum": 0.9}}})"),
              ElementsAre(HasSubstr("momentum: is no parameter of AdamW; known: lr, betas")));
  EXPECT_THAT(problems(R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})"),
              Contains(HasSubstr("nesterov: needs a momentum above 0")));
  EXPECT_THAT(problems(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})"),
              ElementsAre(HasSubstr("found [0.9], expected a list of 2 numbers from 0 to 1")));
  EXPECT_THAT(problems(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1]}}})"),
              ElementsAre(HasSubstr("expected numbers below 1")));
}

TEST_F(ConfigurationTest, AutoIsFilledByTheTrainersNames) {
  ConfigurationRequest request = file(R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
      "total_num_steps": "auto", "warmup_type": "linear"}},
    "sluice": {"model": {"preset": "m"}, "data": {"train": "d"}, "steps": 100}})");
  const Examination open = examine(request, 2);
  EXPECT_THAT(open.problems, IsEmpty());
  EXPECT_EQ(open.missing_for_plan.size(), 2u);
  EXPECT_THAT(open.missing_for_plan,
              Contains(HasSubstr("train_micro_batch_size_per_gpu is \"auto\" and nothing fills it; give --per_device_train_batch_size")));
  EXPECT_THAT(open.missing_for_training, Contains(HasSubstr("optimizer.params.lr is \"auto\" and nothing fills it; give --learning_rate")));
  EXPECT_THAT(open.missing_for_training, Contains(HasSubstr("give --adam_beta1 and --adam_beta2")));
  EXPECT_THAT(open.missing_for_training, Contains(HasSubstr("gradient_clipping is \"auto\"")));
  EXPECT_THAT(open.missing_for_training, Contains(HasSubstr("give --warmup_steps")));
  expect_error<RequestError>([&] { load_configuration(request, 2, Demand::kTrain); }, {"\"auto\"", "more: `sluice config check`"});

  request.trainer = {{"learning_rate", "2e-4"},
                     {"per_device_train_batch_size", "3"},
                     {"gradient_accumulation_steps", "5"},
                     {"max_grad_norm", "0.7"},
                     {"weight_decay", "0.2"},
                     {"adam_beta1", "0.85"},
                     {"adam_beta2", "0.97"},
                     {"adam_epsilon", "1e-7"},
                     {"warmup_steps", "10"}};
  const Configuration c = load_configuration(request, 2, Demand::kTrain);
  EXPECT_EQ(c.training.batch, (spec::BatchSpec{30, 3, 5, 0}));
  EXPECT_EQ(c.training.optimizer, (spec::OptimizerSpec{0.85, 0.97, 1e-7, 0.2, spec::DecayOn::kAll, 0.7}));
  EXPECT_EQ(c.training.schedule, (spec::ScheduleSpec{spec::ScheduleKind::kLinear, 2e-4, 0, 10, 100, 0, 1}));

  request.trainer["bf16"] = "true";
  EXPECT_EQ(load_configuration(request, 2, Demand::kTrain).training.precision, spec::Precision::kBf16);
}

TEST_F(ConfigurationTest, FileAndTrainerNamesMustAgree) {
  ConfigurationRequest request = file(kComplete);
  request.trainer = {{"learning_rate", "2e-3"}, {"per_device_train_batch_size", "4"}, {"adam_beta1", "0.9"}, {"weight_decay", "0.2"}};
  expect_error<RequestError>([&] { load_configuration(request, 1, Demand::kTrain); },
                             {"file and command line disagree", "optimizer.params.lr is 0.001 and --learning_rate says 2e-3",
                              "optimizer.params.weight_decay is 0.1 and --weight_decay says 0.2",
                              "optimizer.params.betas is [0.8,0.95] and --adam_beta1 says 0.9"});
  request.trainer = {{"learning_rate", "1e-3"}};
  EXPECT_NO_THROW(load_configuration(request, 1, Demand::kTrain));
  request.trainer = {{"learning_rate", "fast"}};
  expect_error<RequestError>([&] { load_configuration(request, 1, Demand::kTrain); }, {"--learning_rate", "\"fast\"", "expected a number"});
}

TEST_F(ConfigurationTest, MissingThingsAreAskedForByName) {
  const Examination e = examine(file("{}"), 1);
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_THAT(e.missing_for_plan,
              ElementsAre(HasSubstr("--model NAME"), HasSubstr("neither train_batch_size nor train_micro_batch_size_per_gpu")));
  EXPECT_THAT(e.missing_for_training,
              ElementsAre(HasSubstr("--data FILE"), HasSubstr("--steps N or --epochs N"), HasSubstr("--learning-rate X")));
  EXPECT_NO_THROW(load_configuration(file("{}"), 1, Demand::kNothing));
  expect_error<RequestError>([&] { load_configuration(file("{}"), 1, Demand::kPlan); }, {"--model", "(and 1 more"});
  expect_error<RequestError>([&] { load_configuration(file("{}"), 1, Demand::kTrain); }, {"--model", "(and 4 more"});
}

TEST_F(ConfigurationTest, LoadedWeightsHaveADefaultRateAndScratchHasNone) {
  const Configuration c = load_configuration(
      file(R"({"train_batch_size": 1, "sluice": {"model": {"path": "x"}, "data": {"train": "d"}, "steps": 10}})"), 1, Demand::kTrain);
  EXPECT_EQ(c.init, Init::kWeights);
  EXPECT_EQ(c.training.schedule.kind, spec::ScheduleKind::kLinear);
  EXPECT_DOUBLE_EQ(c.training.schedule.peak, 5e-5);
  EXPECT_EQ(c.training.schedule.total_steps, 10);
  EXPECT_THAT(c.notes, Contains(HasSubstr("optimizer.params.lr is not given: 5e-05")));
  expect_error<RequestError>(
      [&] {
        load_configuration(file(R"({"train_batch_size": 1, "sluice": {"model": {"preset": "x"}, "data": {"train": "d"}, "steps": 10}})"), 1,
                           Demand::kTrain);
      },
      {"the learning rate is not given", "--learning-rate", "optimizer.params.lr"});
}

TEST_F(ConfigurationTest, AModelWordWithASlashOrOfAFolderIsAPath) {
  ConfigurationRequest request;
  request.settings = {{"sluice.model", "some/model", "--model", Setting::Kind::kText}};
  Configuration c = load_configuration(request, 1, Demand::kNothing);
  EXPECT_EQ(c.model_path, "some/model");
  EXPECT_EQ(c.output, "runs/model");
  request.settings[0].value = directory_.path();
  EXPECT_EQ(load_configuration(request, 1, Demand::kNothing).model_path, directory_.path());
  request.settings[0].value = "gpt2-124m";
  EXPECT_EQ(load_configuration(request, 1, Demand::kNothing).preset, "gpt2-124m");
}

TEST_F(ConfigurationTest, SequenceLengthSettlesWithTheModel) {
  Configuration c = load_configuration(file(kComplete), 1, Demand::kTrain);
  const spec::ModelSpec model{.name = "m", .context = 128};
  settle_model(c, model);
  EXPECT_EQ(c.training.batch.sequence_length, 128);
  EXPECT_THAT(c.notes, Contains(HasSubstr("sequence_length is not given: 128")));
  c.training.batch.sequence_length = 129;
  expect_error<RequestError>([&] { settle_model(c, model); }, {"129", "128 positions", "--sequence-length 128"});
}

TEST_F(ConfigurationTest, TheEffectiveConfigurationIsWrittenWhole) {
  const std::string json = to_json(load_configuration(file(kComplete), 2, Demand::kTrain));
  for (const char* piece :
       {"\"preset\": \"gpt2-124m\"", "\"global_batch\": 16", "\"accumulation\": 2", "\"data\": 2", "\"steps\": 20", "\"epochs\": null",
        "\"interval\": 100", "\"resume\": \"auto\"", "\"output\": \"runs/demo\"", "gradient_clipping is not given"}) {
    EXPECT_THAT(json, HasSubstr(piece));
  }
}

TEST_F(ConfigurationTest, CheckShowsEveryKeyWithItsClass) {
  const Examination e = examine(
      file(R"({"train_batch_size": 2, "hybrid_engine": {"enabled": true}, "log_level": "info", "zero_optimization": {"stage": 1}})"), 1);
  const std::string text = describe(e);
  EXPECT_THAT(text, HasSubstr("honoured          train_batch_size = 2\n"));
  EXPECT_THAT(text, HasSubstr("refused           hybrid_engine.enabled = true  (found true"));
  EXPECT_THAT(text, HasSubstr("performance only  log_level = \"info\"\n"));
  EXPECT_THAT(text, HasSubstr("hint              zero_optimization.stage = 1\n"));
  EXPECT_THAT(text, HasSubstr("moved default     gradient_clipping = 1.0"));
  EXPECT_THAT(text, HasSubstr("error: "));
  EXPECT_THAT(text, HasSubstr("asked for: no model is given"));
  EXPECT_THAT(text, HasSubstr("1 error, 4 things left"));
  const std::string json = to_json(e);
  EXPECT_THAT(json, HasSubstr("\"class\": \"performance only\""));
  EXPECT_THAT(json, HasSubstr("\"default\": \"null\""));
  EXPECT_THAT(json, HasSubstr("\"problems\": ["));
}

// ---- DeepSpeed's batch numbers

spec::BatchSpec batch(std::optional<std::int64_t> train, std::optional<std::int64_t> micro, std::optional<std::int64_t> accumulation,
                      std::int64_t ranks) {
  return resolve_batch({train, micro, accumulation}, ranks);
}

TEST(ResolveBatch, FollowsDeepSpeed) {
  EXPECT_EQ(batch(24, 3, 4, 2), (spec::BatchSpec{24, 3, 4, 0}));
  EXPECT_EQ(batch(24, 3, {}, 2), (spec::BatchSpec{24, 3, 4, 0}));
  EXPECT_EQ(batch(24, {}, 4, 2), (spec::BatchSpec{24, 3, 4, 0}));
  EXPECT_EQ(batch({}, 3, 4, 2), (spec::BatchSpec{24, 3, 4, 0}));
  EXPECT_EQ(batch({}, 3, {}, 2), (spec::BatchSpec{6, 3, 1, 0}));
  EXPECT_EQ(batch(24, {}, {}, 2), (spec::BatchSpec{24, 0, 0, 0}));  // the planner's
}

TEST(ResolveBatch, RefusesWithAllFourNumbers) {
  expect_error<RequestError>([] { batch(25, 3, 4, 2); },
                             {"train_batch_size 25", "per_gpu 3", "accumulation_steps 4", "2 data-parallel ranks", "write 24"});
  expect_error<RequestError>([] { batch(48, 3, 4, 2); }, {"write 24 or leave one of the three out; or run with 4 ranks"});
  expect_error<RequestError>([] { batch(48, 4, {}, 5); }, {"write a multiple of 20, as 40 or 60; or run with 3, 4, 6 or 12 ranks"});
  expect_error<RequestError>([] { batch(24, 5, {}, 2); },
                             {"train_batch_size 24", "per_gpu 5", "accumulation_steps (not given)", "multiple of 10, as 20 or 30"});
  expect_error<RequestError>([] { batch(24, {}, 5, 2); }, {"per_gpu (not given)", "accumulation_steps 5", "as 20 or 30"});
  expect_error<RequestError>([] { batch(3, {}, {}, 2); }, {"train_batch_size 3", "2 data-parallel ranks", "as 2 or 4"});
  expect_error<RequestError>([] { batch(1, {}, {}, 2); }, {"train_batch_size 1 ", "as 2"});
  expect_error<RequestError>([] { batch({}, {}, 4, 2); }, {"neither train_batch_size nor train_micro_batch_size_per_gpu"});
  expect_error<RequestError>([] { batch({}, std::int64_t{1} << 62, 2, 2); }, {"too large"});
  expect_error<RequestError>([] { batch(8, std::int64_t{1} << 62, 2, 2); }, {"too large"});
}

TEST(KeepGlobalBatch, DerivesTheAccumulationAnewOrSaysWhichRankCountsWork) {
  const auto resumed = [](const BatchKeys& keys, std::int64_t ranks, std::int64_t global_batch) {
    Configuration c;
    c.batch_keys = keys;
    c.mesh.data = ranks;
    c.training.batch = resolve_batch(keys, ranks);
    c.training.batch.sequence_length = 64;
    keep_global_batch(c, global_batch);
    return c;
  };
  // Two ranks made 2 x 4 x 2 sequences a step.
  Configuration c = resumed({.micro = 2, .accumulation = 4}, 4, 16);
  EXPECT_EQ(c.training.batch, (spec::BatchSpec{16, 2, 2, 64}));
  EXPECT_THAT(c.notes, ElementsAre("the run keeps its global batch of 16 sequences: gradient_accumulation_steps is 2 with 4 ranks"));
  c = resumed({.micro = 2}, 1, 16);
  EXPECT_EQ(c.training.batch, (spec::BatchSpec{16, 2, 8, 64}));
  c = resumed({.micro = 2, .accumulation = 4}, 2, 16);
  EXPECT_THAT(c.notes, IsEmpty());
  c = resumed({.train = 8, .micro = 2}, 2, 16);  // what is written stands, and the fingerprint refuses it
  EXPECT_EQ(c.training.batch.global_batch, 8);
  expect_error<RequestError>([&] { resumed({.micro = 2}, 3, 16); },
                             {"global batch of 16", "3 ranks can't share in micro-batches of 2", "run with 1, 2, 4 or 8 ranks"});
  expect_error<RequestError>([&] { resumed({.micro = 5}, 1, 16); }, {"write another train_micro_batch_size_per_gpu"});
}

}  // namespace
}  // namespace sluice::app
