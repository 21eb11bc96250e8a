#include "app/run_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "checkpoint/geometry.hpp"
#include "checkpoint/save.hpp"
#include "comm/local/local_communicator.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::IsEmpty;
using testing::TempDir;

Status example() {
  return {RunState::kStopped, 50, "step-00000050", "step-00000040", 75, "asked to stop", true, 3, {"node1", 1234, 99, 0, ""}};
}

TEST(Status, SurvivesItsJsonForm) {
  EXPECT_EQ(status_from_json(to_json(example()), "s"), example());
  for (const RunState state : {RunState::kRunning, RunState::kFinished, RunState::kStopped, RunState::kFailed}) {
    Status status = example();
    status.state = state;
    status.last_checkpoint = "";
    status.exit_code = std::nullopt;
    EXPECT_EQ(status_from_json(to_json(status), "s"), status);
  }
}

TEST(Status, DamageIsAFormatError) {
  expect_error<FormatError>([] { status_from_json("{\"state\": \"running\"", "runs/x/status.json"); },
                            {"runs/x/status.json", "not valid JSON"});
  expect_error<FormatError>([] { status_from_json(testing::replaced(to_json(example()), "\"stopped\"", "\"asleep\""), "s"); },
                            {"\"asleep\"", "running"});
  expect_error<FormatError>([] { status_from_json(testing::replaced(to_json(example()), "\"step\"", "\"stap\""), "s"); }, {"s: ", "step"});
}

TEST(DataFile, SeesChangesAtBothEndsAndInSize) {
  const TempDir directory;
  std::string bytes(300000, 'a');
  const DataFile before = describe_data_file(directory.write("a", bytes));
  EXPECT_EQ(before.bytes, 300000);
  EXPECT_EQ(describe_data_file(directory.write("b", bytes)).hash, before.hash);  // contents, not names
  bytes.front() = 'b';
  const DataFile head = describe_data_file(directory.write("a", bytes));
  bytes.front() = 'a';
  bytes.back() = 'b';
  const DataFile tail = describe_data_file(directory.write("a", bytes));
  EXPECT_NE(head.hash, before.hash);
  EXPECT_NE(tail.hash, before.hash);
  EXPECT_NE(tail.hash, head.hash);
  EXPECT_EQ(describe_data_file(directory.write("empty", "")).bytes, 0);
  expect_error<IoError>([&] { describe_data_file(directory / "none"); }, {"none", "No such file"});
}

struct Request {
  Configuration configuration;
  spec::ModelSpec model{.name = "m", .vocab = 256, .context = 64, .hidden = 32, .layers = 2, .heads = 2, .ffn = 128};
  std::vector<DataFile> train{{"a.txt", 100, "00aa"}};
  std::vector<DataFile> valid;
  Request() {
    configuration.training.batch = {8, 2, 4, 64};
    configuration.steps = 20;
  }
  Fingerprint print() const { return fingerprint_of(configuration, model, train, valid); }
};

TEST(FingerprintTest, FixedAndFreeKeys) {
  const Request before;
  const auto changed = [&](auto&& change, bool fixed) {
    Request after;
    change(after);
    EXPECT_THAT(differences(before.print(), after.print(), !fixed), IsEmpty());
    return differences(before.print(), after.print(), fixed);
  };
  EXPECT_THAT(changed([](Request& r) { r.model.hidden = 64; }, true), ElementsAre("model.hidden: 32 there, 64 asked"));
  EXPECT_THAT(changed([](Request& r) { r.train[0].hash = "00bb"; }, true),
              ElementsAre("data.train[0]: 100 bytes, hash 00aa there, 100 bytes, hash 00bb asked"));
  EXPECT_THAT(changed(
                  [](Request& r) {
                    r.train.push_back({"b.txt", 5, "cc"});
                  },
                  true),
              ElementsAre("data.train[1]: nothing there, 5 bytes, hash cc asked"));
  EXPECT_THAT(changed([](Request& r) { r.train.clear(); }, true), ElementsAre("data.train[0]: 100 bytes, hash 00aa there, nothing asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.batch.global_batch = 16; }, true),
              ElementsAre("train_batch_size: 8 there, 16 asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.seed = 2; }, true), ElementsAre("seed: 1 there, 2 asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.optimizer.beta2 = 0.5; }, true),
              ElementsAre("optimizer.beta2: 0.999 there, 0.5 asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.precision = spec::Precision::kBf16; }, true),
              ElementsAre("precision: \"fp32\" there, \"bf16\" asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.trainable = {"ln_f"}; }, true),
              ElementsAre("trainable: [] there, [\"ln_f\"] asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.packing = data::Packing::kPad; }, true),
              ElementsAre("data.packing: \"stream\" there, \"pad\" asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.valid_fraction = 0.1; }, true),
              ElementsAre("data.valid_fraction: 0.0 there, 0.1 asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.tokenizer = "bytes"; }, true),
              ElementsAre("data.tokenizer: none there, bytes asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.document_attention = true; }, true),
              ElementsAre("data.document_attention: false there, true asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.threads = 7; }, true), IsEmpty());
  EXPECT_THAT(changed([](Request& r) { r.configuration.hints.zero_stage = 3; }, true), IsEmpty());
  EXPECT_THAT(changed([](Request& r) { r.configuration.order = DataOrder::kSequential; }, true),
              ElementsAre("data.order: shuffled there, sequential asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.steps = 30; }, false), ElementsAre("steps: 20 there, 30 asked"));
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.schedule.peak = 0.5; }, false),
              ElementsAre("schedule.peak: 0.001 there, 0.5 asked"));
  EXPECT_THAT(changed([](Request& r) { r.train[0].path = "moved.txt"; }, true), IsEmpty());
  EXPECT_THAT(changed([](Request& r) { r.configuration.training.batch.micro_batch = 1; }, true), IsEmpty());
}

TEST(FingerprintTest, ATokenizerIsWhatItsFilesHold) {
  const TempDir one, other;
  for (const TempDir* directory : {&one, &other}) directory->write("tokenizer.json", "{}");
  Request request;
  request.configuration.tokenizer = one.path();
  const Fingerprint before = request.print();
  request.configuration.tokenizer = other.path();
  EXPECT_THAT(differences(before, request.print(), true), IsEmpty());
  other.write("tokenizer.json", "[]");
  EXPECT_EQ(differences(before, request.print(), true).size(), 1u);
  request.configuration.chat_template = other.path() + "/none.jinja";
  expect_error<IoError>([&] { request.print(); }, {"none.jinja"});
}

TEST(RunDirectoryTest, RefusesAnotherRunKeyByKey) {
  const TempDir directory;
  const RunDirectory run(directory / "runs/demo");
  Request request;
  EXPECT_FALSE(run.has_run());
  EXPECT_EQ(run.global_batch(), std::nullopt);
  EXPECT_THAT(run.check_same_run(request.print()), IsEmpty());
  run.create();
  run.write_run({.configuration = to_json(request.configuration),
                 .model = spec::to_json(request.model),
                 .fingerprint = request.print(),
                 .versions = {{"sluice", "0.1.0"}},
                 .hosts = {"n1", "n1"},
                 .started = 1.5});
  EXPECT_TRUE(run.has_run());
  EXPECT_EQ(run.global_batch(), std::nullopt);  // nothing depends on it before something is saved
  request.configuration.training.batch.global_batch = 4;
  EXPECT_THAT(run.check_same_run(request.print()), IsEmpty());
  std::filesystem::create_directories(run.checkpoints() + "/step-00000050");
  EXPECT_EQ(run.global_batch(), 8);
  expect_error<RequestError>([&] { run.check_same_run(request.print()); }, {"train_batch_size: 8 there, 4 asked"});
  request.configuration.training.batch.global_batch = 8;
  const std::optional<RunRecord> record = run.read_run();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->fingerprint, request.print());
  EXPECT_EQ(record->hosts.size(), 2u);
  EXPECT_EQ(record->versions.at("sluice"), "0.1.0");
  EXPECT_EQ(record->started, 1.5);
  EXPECT_EQ(spec::model_spec_from_json(record->model, "m"), request.model);

  request.configuration.steps = 40;
  EXPECT_THAT(run.check_same_run(request.print()), ElementsAre("steps: 20 there, 40 asked"));
  request.model.layers = 3;
  request.train[0].bytes = 101;
  expect_error<RequestError>([&] { run.check_same_run(request.print()); },
                             {"runs/demo holds another run", "model.layers: 2 there, 3 asked", "data.train[0]: 100 bytes",
                              "another --output", "What may change: steps, epochs, schedule"});
}

TEST(FingerprintTest, TheIdentityIsThatOfTheFixedKeys) {
  Request request;
  const std::string before = identity_of(request.print());
  EXPECT_EQ(before.size(), 16u);
  EXPECT_EQ(identity_in(identity_document(request.print()), "m"), before);
  request.configuration.steps = 40;
  EXPECT_EQ(identity_of(request.print()), before);
  request.configuration.training.seed = 9;
  EXPECT_NE(identity_of(request.print()), before);
  EXPECT_EQ(identity_in("", "m"), "");
  EXPECT_EQ(identity_in("{}", "m"), "");
  expect_error<FormatError>([] { identity_in("{\"fingerprint\": 3}", "manifest.json"); }, {"manifest.json", "string"});
}

TEST(RunDirectoryTest, OneOfSeveralRanksMaySayWhyTheRunFailed) {
  const TempDir directory;
  const RunDirectory run(directory / "r");
  run.create();
  ASSERT_TRUE(run.claim_failure());  // before run.json is there each rank has to say it
  run.write_run({.configuration = "{}", .model = "{}"});
  {
    const auto first = run.claim_failure();
    ASSERT_TRUE(first);
    EXPECT_FALSE(RunDirectory(directory / "r").claim_failure());
    EXPECT_FALSE(run.claim_failure());
  }
  EXPECT_TRUE(run.claim_failure());  // the next attempt's ranks
}

TEST(RunDirectoryTest, WhetherItCanBeWrittenIsKnownWithoutMakingIt) {
  const TempDir directory;
  EXPECT_NO_THROW(RunDirectory(directory / "a/b/c").check_writable());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  directory.write("file", "");
  expect_error<EnvironmentError>([&] { RunDirectory(directory / "file/new").check_writable(); },
                                 {"file/new", "Not a directory", "--output"});
  expect_error<EnvironmentError>([] { RunDirectory("/proc/nowhere").check_writable(); }, {"/proc/nowhere", "--output"});
}

TEST(RunDirectoryTest, HasTheNamesOfTheDesign) {
  const TempDir directory;
  const RunDirectory run(directory / "r");
  EXPECT_EQ(run.log_file(3), directory / "r/log/rank-00003.log");
  EXPECT_EQ(run.checkpoints(), directory / "r/checkpoints");
  EXPECT_EQ(run.read_status(), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(run.path()));
  run.create();
  run.create();
  EXPECT_TRUE(std::filesystem::is_directory(directory / "r/log"));
  run.write_status(example());
  EXPECT_EQ(run.read_status(), example());
  EXPECT_EQ(run.last_attempt()->status, example());
  EXPECT_EQ(run.last_attempt()->damage, "");
  directory.write("blocked", "a file");
  expect_error<EnvironmentError>([&] { RunDirectory(directory / "blocked").create(); }, {"blocked/log", "--output"});
}

TEST(RunDirectoryTest, WithoutAReadableStatusTheCheckpointsTellOfTheLastAttempt) {
  const TempDir directory;
  const RunDirectory run(directory / "r");
  EXPECT_FALSE(run.last_attempt());
  run.create();
  for (const char* text : {"", "{\"state\": \"running\"", "{}"}) {
    directory.write("r/status.json", text);
    expect_error<FormatError>([&] { run.read_status(); }, {"r/status.json: "});
    const std::optional<LastAttempt> last = run.last_attempt();
    ASSERT_TRUE(last);
    EXPECT_THAT(last->damage, ::testing::HasSubstr("r/status.json: "));
    EXPECT_EQ(last->status, Status());
  }
  const auto world = comm::make_single_rank();
  const std::vector<checkpoint::ParamInfo> params{{"w", {2}, DType::kF32}};
  std::vector<float> values{1, 2};
  const std::vector<checkpoint::Piece> pieces{{"working", checkpoint::whole_region(params, 0), values.data(), DType::kF32}};
  for (const std::int64_t step : {10, 20, 30}) {
    checkpoint::Progress progress;
    progress.step = step;
    progress.attempt = step / 10 + 3;
    progress.best = checkpoint::Best{10, 0.5};
    ASSERT_TRUE(checkpoint::save_checkpoint(*world, run.checkpoints(), progress, {}, params, pieces, {}).ok);
  }
  directory.write("r/checkpoints/step-00000030/manifest.json", "");
  const Status status = run.last_attempt()->status;
  EXPECT_EQ(status.state, RunState::kRunning);
  EXPECT_EQ(status.attempt, 5);
  EXPECT_EQ(status.step, 20);
  EXPECT_EQ(status.last_checkpoint, "step-00000020");
  EXPECT_EQ(status.best_checkpoint, "step-00000010");
  std::filesystem::remove(run.status_file());
  EXPECT_EQ(run.last_attempt()->status, status);
  EXPECT_THAT(run.last_attempt()->damage, ::testing::HasSubstr("r/status.json: is missing"));
}

TEST(RunDirectoryTest, AnUnreadableRunJsonIsRefusedWithWhatToDo) {
  const TempDir directory;
  const RunDirectory run(directory / "r");
  run.create();
  directory.write("r/run.json", "");
  expect_error<Error>([&] { run.check_same_run({}); }, {"r/run.json: not valid JSON", "remove it"});
  std::filesystem::remove(run.run_file());
  EXPECT_THAT(run.check_same_run({}), IsEmpty());
}

}  // namespace
}  // namespace sluice::app
