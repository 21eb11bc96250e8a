// Requests that can't be honoured: each ends by itself with its code and one line that says what is wrong, and nothing that was there
// before is touched.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "support/llmc_bytes.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BadRequest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    ASSERT_TRUE(ended_with(run_program(area_->train(2, "there", {"--steps", "20", "--plan", area_->plan()})), 0));
  }
  static void TearDownTestSuite() { delete area_; }
  static std::string run(const std::string& name) { return *area_ / name; }
  static ProgramOutcome train(int ranks, const std::string& output, const std::vector<std::string>& more) {
    return run_program(area_->train(ranks, output, more));
  }
  /// Refused before anything is made.
  static void expect_refused(const ProgramOutcome& outcome, int code, const std::vector<std::string>& parts,
                             const std::string& output = "new") {
    EXPECT_TRUE(refused_with(outcome, code, parts));
    EXPECT_FALSE(fs::exists(run(output))) << "a run directory was made";
  }
  /// Refused by the run and by its dry run, and the run that stands there is as it was.
  static void expect_kept(int ranks, const std::vector<std::string>& more, const std::vector<std::string>& parts) {
    const auto before = snapshot(run("there"));
    EXPECT_TRUE(refused_with(train(ranks, "there", more), 2, parts));
    EXPECT_TRUE(refused_with(dry_run(ranks, "there", more), 2, parts));
    EXPECT_THAT(changed_files(before, snapshot(run("there"))), ElementsAre());
  }
  static ProgramOutcome dry_run(int ranks, const std::string& output, std::vector<std::string> more) {
    more.insert(more.end(), {"--dry-run", "--ranks", std::to_string(std::max(1, ranks))});
    return train(0, output, more);
  }

  static RunArea* area_;
};
RunArea* BadRequest::area_ = nullptr;

TEST_F(BadRequest, KeysAndOptions) {
  const std::string steps = "--steps";
  expect_refused(train(2, "new", {steps, "5", "--set", "sluice.sequense_length=16"}), 2,
                 {"sluice.sequense_length", "unknown key", "\"sluice.sequence_length\""});
  expect_refused(train(0, "new", {steps, "5", "--set", "gradient_cliping=1"}), 2, {"gradient_cliping", "\"gradient_clipping\""});
  expect_refused(train(2, "new", {"--stps", "5"}), 2, {"unknown option --stps", "--steps"});
  expect_refused(train(0, "new", {steps, "0"}), 2, {"--steps", "found 0", "at least 1"});
  expect_refused(train(0, "new", {}), 2, {"the length of the run is not given", "--steps"});
  expect_refused(train(0, "new", {steps, "5", "--set", "fp16.enabled=true", "--set", "bf16.enabled=true"}), 2, {"fp16", "bf16"});
  expect_refused(train(0, "new", {steps, "5", "--set", "sluice.sequence_length=65"}), 2, {"sequence_length is 65", "64"});
  expect_refused(run_program(area_->sluice({"trian", area_->config()})), 2, {"\"trian\" is no verb", "\"train\""});
  expect_refused(run_program(area_->sluice({})), 2, {"no verb"});
}

TEST_F(BadRequest, PathsToSwapTo) {
  const std::string key = "zero_optimization.offload_param.nvme_path", absent = run("no-disk");
  expect_refused(train(2, "new", {"--steps", "5", "--nvme-path", absent}), 2, {"--nvme-path: " + absent + ": does not exist"});
  expect_refused(train(0, "new",
                       {"--steps", "5", "--set", "zero_optimization.stage=3", "--set", "zero_optimization.offload_param.device=nvme",
                        "--set", key + "=" + absent}),
                 2, {key + ": " + absent + ": does not exist"});
}

TEST_F(BadRequest, Files) {
  const auto with_config = [&](const std::string& text, int ranks) {
    const std::string file = area_->write("bad.json", text);
    const std::vector<std::string> words = {"train", file, "--output", run("new")};
    return run_program(ranks == 0 ? area_->sluice(words) : area_->launch(ranks, words));
  };
  expect_refused(with_config("{\n \"train_batch_size\": 8,\n \"train_batch_size\": 16\n}\n", 2), 2,
                 {"bad.json:3", "\"train_batch_size\" stands twice", "line 2"});
  expect_refused(with_config("{\n \"train_batch_size\": 8,,\n}\n", 2), 2, {"bad.json", "line 2"});
  expect_refused(with_config("[1, 2]", 0), 2, {"bad.json", "an object"});
  expect_refused(run_program(area_->launch(2, {"train", run("absent.json"), "--output", run("new")})), 3,
                 {"the configuration: ", "absent.json", "No such file", "give the path"});
  expect_refused(train(0, "new", {"--steps", "5", "--data", run("absent.txt")}), 3,
                 {"--data: ", "absent.txt", "No such file", "give files"});
  expect_refused(train(0, "new", {"--steps", "5", "--set", "sluice.data.valid=" + run("absent.txt")}), 3,
                 {"--set sluice.data.valid: ", "absent.txt", "No such file"});
  expect_refused(train(0, "new", {"--steps", "5", "--model", run("no-model")}), 2,
                 {"--model: ", "no-model: no such directory", "a preset's name"});
  expect_refused(train(0, "new", {"--steps", "5", "--data", area_->write("empty.txt", "")}), 2, {"empty.txt", "no text"});
  expect_refused(train(2, "new", {"--steps", "5", "--data", area_->write("short.txt", "twenty characters...")}), 2,
                 {"found 21 tokens", "at least 33", "sequence"});
  expect_refused(train(0, "new", {"--steps", "5", "--data", area_->write("no.bin", std::string(2000, 'x'))}), 4, {"no.bin"});
  expect_refused(run_program(area_->sluice({"train", "--model", "gpt2-mirco", "--data", area_->text(), "--steps", "5", "--train-batch-size",
                                            "2", "--learning-rate", "1e-3", "--output", run("new")})),
                 2, {"gpt2-mirco", "gpt2-micro"});
}

TEST_F(BadRequest, ATokenBeyondTheVocabularyIsNamedWithItsPlace) {
  std::vector<std::uint16_t> tokens(4000, 7);
  tokens[3210] = 257;
  const ProgramOutcome outcome = train(2, "new", {"--steps", "5", "--data", area_->write("beyond.bin", llmc_bytes(tokens))});
  expect_refused(outcome, 2, {"beyond.bin", "token 3210", "found 257", "less than 257"});
}

TEST_F(BadRequest, BatchNumbersThatContradict) {
  expect_refused(
      train(2, "new", {"--steps", "5", "--set", "train_micro_batch_size_per_gpu=3", "--set", "gradient_accumulation_steps=2"}), 2,
      {"train_batch_size 8", "train_micro_batch_size_per_gpu 3", "gradient_accumulation_steps 2", "2 data-parallel ranks", "12"});
  expect_refused(train(3, "new", {"--steps", "5"}), 2, {"train_batch_size 8", "3 data-parallel ranks", "6 or 9"});
}

TEST_F(BadRequest, NoLearningRate) {
  const std::vector<std::string> words = {"train", "--model",  "gpt2-micro", "--data", area_->text(), "--steps", "5", "--train-batch-size",
                                          "2",     "--output", run("new")};
  expect_refused(run_program(area_->launch(2, words)), 2, {"learning rate", "--learning-rate"});
}

TEST_F(BadRequest, AWrongLaunch) {
  ProgramCommand torch = area_->sluice({"train", area_->config(), "--steps", "5", "--output", run("new")});
  torch.environment["WORLD_SIZE"] = "2";
  torch.environment["RANK"] = "0";
  expect_refused(run_program(torch), 2, {"WORLD_SIZE is 2", "MPI counts 1 process", "mpirun -n 2"});
  ProgramCommand slurm = area_->sluice({"train", area_->config(), "--steps", "5", "--output", run("new")});
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}) {
    slurm.environment[name] = value;
  }
  expect_refused(run_program(slurm), 2, {"SLURM_STEP_NUM_TASKS is 4", "srun --mpi=pmix"});
}

TEST_F(BadRequest, MoreThreadsThanOpenMpGives) {
  ProgramCommand limited = area_->sluice({"train", area_->config(), "--steps", "5", "--output", run("limited"), "--threads", "2"});
  limited.environment["OMP_THREAD_LIMIT"] = "1";
  expect_refused(run_program(limited), 3, {"OMP_THREAD_LIMIT lets a rank have 1 thread, --threads 2 is asked"});
  limited = area_->train(0, "one", {"--steps", "2"});
  limited.environment["OMP_THREAD_LIMIT"] = "1";
  const ProgramOutcome outcome = run_program(limited);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("1 thread a rank"));
}

TEST_F(BadRequest, AnotherRunInTheDirectory) {
  expect_kept(0,
              {"--steps", "20", "--set", "sluice.model.path=" + std::string(SLUICE_SOURCE_DIR) + "/tests/golden/gpt2_odd",
               "--sequence-length", "16"},
              {"there holds another run", "model.hidden: 32 there, 30 asked", "sequence_length: 32 there, 16 asked", "another --output"});
  expect_kept(2, {"--steps", "20", "--seed", "2"}, {"there holds another run", "seed: 1 there, 2 asked"});
  expect_kept(0, {"--steps", "30", "--set", "train_batch_size=4"}, {"there holds another run", "train_batch_size: 8 there, 4 asked"});
  expect_kept(0, {"--steps", "30", "--data", area_->valid()}, {"there holds another run", "data.train[0]: 15000 bytes"});
  expect_kept(0, {"--steps", "30", "--resume", "never"}, {"there", "--resume never"});
}

TEST_F(BadRequest, Plans) {
  expect_refused(train(0, "p1", {"--steps", "5", "--plan", run("absent-plan.json")}), 3, {"--plan: ", "absent-plan.json", "No such file"},
                 "none");
  expect_refused(train(0, "p2", {"--steps", "5", "--plan", area_->write("plan.json", "{\"plan\": ")}), 4, {"plan.json", "line 1"}, "none");
  expect_refused(train(0, "p3", {"--steps", "5", "--plan", area_->plan()}), 2, {"--plan", "for 2 ranks, here are 1"}, "none");
  expect_refused(train(2, "p4", {"--steps", "5", "--plan", area_->plan({.layers = 5})}), 2, {"--plan", "a model of 5 layers"}, "none");
  expect_refused(train(2, "p5", {"--steps", "5", "--plan", area_->plan({.micro_batch = 1})}), 2,
                 {"--plan", "1 x 2 x 2", "global batch of 8"}, "none");
  expect_refused(train(2, "p6", {"--steps", "5", "--plan", area_->plan(), "--device-memory", "300KiB"}), 3,
                 {"--plan", "it needs", "300 KiB"}, "none");
  for (const char* name : {"p1", "p2", "p3", "p4", "p5", "p6"}) {
    EXPECT_FALSE(fs::exists(run(name) + "/plan.json"));
    // Given a plan that can be used, the same directory serves.
    EXPECT_EQ(read_run_status(run(name)).state, "failed") << name;
  }
  EXPECT_TRUE(ended_with(train(2, "p4", {"--steps", "5", "--plan", area_->plan()}), 0));
}

TEST_F(BadRequest, ABudgetThatFitsNothing) {
  const ProgramOutcome outcome = train(2, "small", {"--steps", "5", "--device-memory", "200KiB"});
  EXPECT_TRUE(refused_with(outcome, 3,
                           {"model tiny does not fit", "the nearest plan (zero", "more than the 200 KiB given", "give --device-memory"}));
  EXPECT_EQ(read_run_status(run("small")).exit_code, 3);
  // With what it asks for, it runs.
  const std::string line = outcome.error_lines().front();
  const std::size_t at = line.find("--device-memory ") + 16;
  EXPECT_TRUE(ended_with(train(2, "small", {"--steps", "5", "--device-memory", line.substr(at, line.find(' ', at) - at)}), 0));
}

TEST_F(BadRequest, MoreMemoryThanTheMachineHas) {
  expect_refused(train(0, "new", {"--steps", "5", "--device-memory", "900TiB"}), 3, {"900 TiB", "this node has"});
}

TEST_F(BadRequest, PlacesThatCanNotBeReadOrWritten) {
  const std::string secret = area_->write("secret.txt", sample_text(5000, 3));
  ::chmod(secret.c_str(), 0);
  ProgramCommand command = area_->train(2, "new", {"--steps", "5", "--plan", area_->plan(), "--data", secret});
  command.prepare = become_ordinary;
  ProgramOutcome outcome = run_program(command);
  if (outcome.code == kNotAllowed) GTEST_SKIP() << "root may not give up its powers here";
  expect_refused(outcome, 3, {"secret.txt", "Permission denied"});

  fs::create_directory(run("locked"));
  ::chmod(run("locked").c_str(), 0555);
  command = area_->train(2, "locked/new", {"--steps", "5", "--plan", area_->plan()});
  command.prepare = become_ordinary;
  expect_refused(run_program(command), 3, {"locked/new", "Permission denied", "--output"}, "locked/new");
  expect_refused(train(2, "text.txt/new", {"--steps", "5"}), 3, {"text.txt/new", "Not a directory", "--output"}, "text.txt/new");
  for (const char* place : {"text.txt/new", "locked/deep/new"}) {
    command = area_->train(0, place, {"--steps", "5", "--dry-run"});
    command.prepare = become_ordinary;
    expect_refused(run_program(command), 3, {place, "nothing can be made", "--output"}, place);
  }
}

TEST_F(BadRequest, TwoRunsInOneDirectoryAtOnce) {
  const std::vector<std::string> words = {"--steps", "100000", "--plan", area_->plan(), "--set", "sluice.checkpoint.interval=0"};
  Program first(area_->train(2, "shared", words));
  ASSERT_TRUE(first.wait_until([&] { return last_step(run("shared")) >= 5; })) << first.wait().all();
  EXPECT_TRUE(refused_with(train(2, "shared", words), 2, {"shared", "process ", "works in this run directory"}));
  EXPECT_TRUE(first.is_running());
  EXPECT_EQ(read_run_status(run("shared")).state, "running");
  ASSERT_NE(first.rank(0), 0);
  ::kill(first.rank(0), SIGUSR1);
  ASSERT_TRUE(ended_with(first.wait(), 75));
  EXPECT_TRUE(has_each_step_once(run("shared"), read_run_status(run("shared")).step));
}

TEST_F(BadRequest, AFullDiskAtTheFirstSave) {
  // A disk of the run's own, seen by this command alone: large enough for all but the checkpoints.
  const std::string disk = run("disk");
  fs::create_directory(disk);
  const std::string hog = disk + "/hog";
  ProgramCommand command = area_->train(2, "disk/run", {"--steps", "40", "--plan", area_->plan()});
  command.prepare = [disk, user = ::getuid()]() -> int {
    if (::unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return kNotAllowed;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotAllowed;
    return ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=300k") == 0 ? 0 : kNotAllowed;
  };
  const ProgramOutcome outcome = run_program(command);
  if (outcome.code == kNotAllowed) GTEST_SKIP() << "this user may not mount; AFileSizeLimitAtTheFirstSave sees the same end";
  // The first three saves fail, each with a warning; then nothing lasts of what is computed.
  EXPECT_TRUE(refused_with(outcome, 3, {"saving step 30 failed, 3 times in a row", "the checkpoint needs"}));
  EXPECT_THAT(outcome.errors, HasSubstr("the checkpoint of step 10 was not saved"));
}

TEST_F(BadRequest, AFileSizeLimitAtTheFirstSave) {
  // One rank's checkpoint of the micro model is 10 MB in one file; what MPI makes for itself stays below the limit.
  ProgramCommand command = area_->sluice(
      {"train", "--model", "gpt2-micro", "--data", area_->text(), "--sequence-length", "16", "--steps", "2", "--train-batch-size", "1",
       "--learning-rate", "1e-3", "--threads", "1", "--output", run("limited"), "--plan",
       area_->plan({.ranks = 1, .zero_stage = 0, .micro_batch = 1, .accumulation = 1, .chunk_elements = 65536, .layers = 4})});
  command.prepare = [] {
    const rlimit limit{8 << 20, 8 << 20};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 ? 0 : kNotAllowed;
  };
  EXPECT_TRUE(refused_with(run_program(command), 3, {"saving step 2 failed", "ulimit -f"}));
  const RunStatus status = read_run_status(run("limited"));
  EXPECT_EQ(status.state, "failed");
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_TRUE(checkpoint_names(run("limited")).empty());
  // With room again the same command does it.
  command.prepare = {};
  EXPECT_TRUE(ended_with(run_program(command), 0));
}

TEST_F(BadRequest, ADiskThatFillsAfterACheckpointIsResumable) {
  ProgramCommand command = area_->sluice(
      {"train", "--model", "gpt2-micro", "--data", area_->text(), "--sequence-length", "16", "--steps", "2", "--train-batch-size", "1",
       "--learning-rate", "1e-3", "--threads", "1", "--output", run("fills"), "--plan",
       area_->plan({.ranks = 1, .zero_stage = 0, .micro_batch = 1, .accumulation = 1, .chunk_elements = 65536, .layers = 4})});
  ASSERT_TRUE(ended_with(run_program(command), 0));
  std::replace(command.words.begin(), command.words.end(), std::string("2"), std::string("4"));
  command.prepare = [] {
    const rlimit limit{8 << 20, 8 << 20};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 ? 0 : kNotAllowed;
  };
  EXPECT_TRUE(refused_with(run_program(command), 75, {"saving step 4 failed", "the checkpoint of step 2 stands"}));
  EXPECT_EQ(read_run_status(run("fills")).exit_code, 75);
  EXPECT_TRUE(read_run_status(run("fills")).retriable);
  command.prepare = {};
  EXPECT_TRUE(ended_with(run_program(command), 0));
  EXPECT_TRUE(has_each_step_once(run("fills"), 4));
}

TEST_F(BadRequest, TrainingThatDiverges) {
  const ProgramOutcome outcome =
      train(2, "diverges", {"--steps", "60", "--plan", area_->plan(), "--set", "optimizer.params.lr=1e38", "--set", "gradient_clipping=0"});
  EXPECT_TRUE(refused_with(outcome, 5, {"the loss is", "lower the learning rate"}));
  const RunStatus status = read_run_status(run("diverges"));
  EXPECT_EQ(status.state, "failed");
  EXPECT_EQ(status.exit_code, 5);
  EXPECT_FALSE(status.retriable);
}

TEST_F(BadRequest, CheckpointsAndPromptsThatAreNotThere) {
  const std::vector<std::string> absent = {"nowhere", "no such directory"};
  EXPECT_TRUE(refused_with(run_program(area_->sluice({"checkpoint", "list", run("nowhere")})), 2, absent));
  EXPECT_TRUE(refused_with(run_program(area_->sluice({"generate", "--model", run("nowhere"), "--prompt", "x"})), 2, absent));
  EXPECT_TRUE(refused_with(train(2, "from-nowhere", {"--steps", "5", "--resume", run("nowhere")}), 2, absent));
  EXPECT_TRUE(refused_with(dry_run(2, "from-nowhere", {"--steps", "5", "--resume", run("nowhere")}), 2, absent));
  EXPECT_TRUE(refused_with(run_program(area_->sluice({"checkpoint", "verify", area_->model()})), 2, {"tiny"}));
  EXPECT_TRUE(refused_with(run_program(area_->sluice({"generate", "--model", run("there")})), 2, {"--prompt"}));
  EXPECT_TRUE(
      refused_with(run_program(area_->sluice({"generate", "--model", run("there"), "--prompt-tokens", "5,300"})), 2, {"300", "257"}));
}

}  // namespace
}  // namespace sluice::testing
