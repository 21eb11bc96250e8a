// Every way of damaging a committed checkpoint is refused by name, and the loader goes back to the one before, telling so.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/sample_state.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using sample::Layout;
using sample::SampleState;
using sluice::testing::expect_error;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

void flip(const std::string& path, std::int64_t byte, int mask = 1) {
  const File file(path, O_RDWR);
  char value = 0;
  file.read_at(&value, 1, byte);
  value = static_cast<char>(value ^ mask);
  file.write_at(&value, 1, byte);
}

void zero(const std::string& path, std::int64_t byte, std::int64_t count) {
  File(path, O_RDWR).write_at(std::string(static_cast<std::size_t>(count), '\0').data(), count, byte);
}

void write(const std::string& path, const std::string& text) {
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write_at(text.data(), static_cast<std::int64_t>(text.size()), 0);
}

struct Damage {
  const char* name;
  std::function<void(const std::string& damaged, const std::string& other)> apply;  // paths of steps 20 and 10
  std::vector<std::string> told;
};

std::int64_t plane_offset(const std::string& path, std::size_t shard, std::size_t plane) {
  return read_manifest(path).shards[shard].planes[plane].offset;
}

const std::vector<Damage>& damages() {
  static const std::vector<Damage> kDamages = {
      {"BitFlipInData",
       [](auto& at, auto&) { flip(at + "/rank-00001.h5", plane_offset(at, 1, 1) + 1001, 16); },
       {"rank-00001.h5: plane exp_avg of parameter", "checksum", "expected"}},
      {"BitFlipInHdf5Headers",
       [](auto& at, auto&) { flip(at + "/rank-00000.h5", 60); },
       {"rank-00000.h5: its structure has checksum", "expected"}},
      {"BitFlipInChecksums",
       [](auto& at, auto&) { flip(at + "/rank-00000.h5", read_manifest(at).shards[0].planes[0].checksums_offset); },
       {"rank-00000.h5: its structure has checksum"}},
      {"Truncated",
       [](auto& at, auto&) { fs::resize_file(at + "/rank-00000.h5", fs::file_size(at + "/rank-00000.h5") - 1); },
       {"rank-00000.h5: has", "bytes, expected", "(truncated)"}},
      {"Emptied", [](auto& at, auto&) { fs::resize_file(at + "/rank-00000.h5", 0); }, {"rank-00000.h5: has 0 bytes, expected"}},
      {"ExtraBytes",
       [](auto& at, auto&) { fs::resize_file(at + "/rank-00000.h5", fs::file_size(at + "/rank-00000.h5") + 100); },
       {"rank-00000.h5: has", "(longer)"}},
      {"ZeroedHole",
       [](auto& at, auto&) { zero(at + "/rank-00001.h5", plane_offset(at, 1, 0) + 512, 1024); },
       {"rank-00001.h5: plane working of parameter wte.weight", "checksum"}},
      {"SwappedShards",
       [](auto& at, auto&) {
         fs::rename(at + "/rank-00000.h5", at + "/x");
         fs::rename(at + "/rank-00001.h5", at + "/rank-00000.h5");
         fs::rename(at + "/x", at + "/rank-00001.h5");
       },
       {"rank-00000.h5", "it is the shard of rank 1, step 20", "expected rank 0, step 20"}},
      {"ShardOfAnotherStep",
       [](auto& at, auto& other) { fs::copy_file(other + "/rank-00001.h5", at + "/rank-00001.h5", fs::copy_options::overwrite_existing); },
       {"rank-00001.h5", "it is the shard of rank 1, step 10", "expected rank 1, step 20"}},
      {"MissingShard", [](auto& at, auto&) { fs::remove(at + "/rank-00001.h5"); }, {"rank-00001.h5: is missing, expected a shard of"}},
      {"ShardIsSomethingElse",
       [](auto& at, auto&) { write(at + "/rank-00001.h5", std::string(fs::file_size(at + "/rank-00001.h5"), 'x')); },
       {"rank-00001.h5: its structure has checksum", "no readable identity"}},
      {"MissingManifest", [](auto& at, auto&) { fs::remove(at + "/manifest.json"); }, {"manifest.json: is missing"}},
      {"UnparsableManifest",
       [](auto& at, auto&) { fs::resize_file(at + "/manifest.json", 100); },
       {"manifest.json: is not JSON (100 bytes)"}},
      {"AlteredManifest",
       [](auto& at, auto&) {
         std::string text = read_text(at + "/manifest.json");
         text.replace(text.find("\"samples\":160"), 13, "\"samples\":161");
         write(at + "/manifest.json", text);
       },
       {"manifest.json: its text has checksum", "expected"}},
      {"WrongVersion",
       [](auto& at, auto&) {
         std::string text = read_text(at + "/manifest.json");
         text.replace(text.find("\"version\":1"), 11, "\"version\":9");
         write(at + "/manifest.json", text);
       },
       {"manifest.json: format version is 9, this program reads version 1"}},
      {"ManifestOfAnotherStep",
       [](auto& at, auto& other) { fs::copy_file(other + "/manifest.json", at + "/manifest.json", fs::copy_options::overwrite_existing); },
       {"manifest.json: is of step 10, expected step 20"}},
  };
  return kDamages;
}

class Damaged : public ::testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsRefusedByNameAndTheOneBeforeIsLoaded) {
  const TempDir dir;
  const std::string older = sample::save_sample(dir.path(), 10, 1).path;
  const std::string newest = sample::save_sample(dir.path(), 20, 2).path;
  ASSERT_TRUE(verify_checkpoint(newest, true).whole());
  GetParam().apply(newest, older);

  const Verification verification = verify_checkpoint(newest, true);
  ASSERT_FALSE(verification.whole());
  for (const std::string& piece : GetParam().told) EXPECT_THAT(verification.faults[0], HasSubstr(piece));
  EXPECT_THAT(describe(verification), HasSubstr("DAMAGED"));

  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    SampleState state(Layout::kColumns, 2, world.rank());
    EXPECT_GT(state.differences(1), 0);
    const std::optional<Selection> loaded = load_newest(world, dir.path(), state.params, state.loading());
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->manifest.progress.step, 10);
    EXPECT_EQ(loaded->path, older);
    EXPECT_EQ(state.differences(1), 0);
    ASSERT_EQ(loaded->refused.size(), 1U);
    EXPECT_EQ(loaded->refused[0].step, 20);
    EXPECT_THAT(describe_refused(loaded->refused), HasSubstr("step 20 is refused: "));
  });

  // With no other left, the run must not start over by itself.
  fs::remove_all(older);
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    SampleState state(Layout::kColumns, 2, world.rank());
    try {
      load_newest(world, dir.path(), state.params, state.loading());
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kFormat);
      EXPECT_THAT(error.what(), HasSubstr("none of its 1 checkpoints is whole: step 20 is refused"));
    }
    world.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, Damaged, ::testing::ValuesIn(damages()), [](const auto& param) { return std::string(param.param.name); });

TEST(Verify, FindsASingleFlippedBitAnywhereInAShard) {
  const TempDir dir;
  const std::string path = sample::save_sample(dir.path(), 10, 1).path;
  const std::string shard = path + "/rank-00001.h5";
  const auto bytes = static_cast<std::int64_t>(fs::file_size(shard));
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t at = std::uniform_int_distribution<std::int64_t>(0, bytes - 1)(random);
    const int mask = 1 << (trial % 8);
    flip(shard, at, mask);
    EXPECT_FALSE(verify_checkpoint(path, true).whole()) << "byte " << at;
    flip(shard, at, mask);
  }
  EXPECT_TRUE(verify_checkpoint(path, true).whole());
}

TEST(Verify, TellsEveryDamagedShard) {
  const TempDir dir;
  const std::string path = sample::save_sample(dir.path(), 10, 1, 3).path;
  flip(path + "/rank-00000.h5", plane_offset(path, 0, 0));
  fs::remove(path + "/rank-00002.h5");
  write(path + "/notes.txt", "mine");
  const Verification verification = verify_checkpoint(path, true);
  ASSERT_EQ(verification.faults.size(), 2U);
  EXPECT_THAT(verification.faults[0], HasSubstr("rank-00000.h5"));
  EXPECT_THAT(verification.faults[1], HasSubstr("rank-00002.h5"));
  ASSERT_EQ(verification.notes.size(), 1U);
  EXPECT_EQ(verification.notes[0], "notes.txt does not belong to the checkpoint");
  // A flipped bit of the bulk shows only when the bulk is read.
  const Verification shallow = verify_checkpoint(path, false);
  ASSERT_EQ(shallow.faults.size(), 1U);
  EXPECT_THAT(shallow.faults[0], HasSubstr("rank-00002.h5"));
}

TEST(Newest, NoneAtAllIsNoError) {
  const TempDir dir;
  const auto world = comm::make_single_rank();
  EXPECT_FALSE(select_newest(*world, dir / "absent").has_value());
  EXPECT_FALSE(select_newest(*world, dir.path()).has_value());
  // A first save that was cut off is no checkpoint, and the run had none to go back to.
  fs::create_directories(dir / "step-00000010.tmp.aa");
  EXPECT_FALSE(select_newest(*world, dir.path()).has_value());
}

TEST(Newest, GoesByStepNumbersAndNotByTheHintOrTimes) {
  const TempDir dir;
  for (const int step : {30, 10, 20}) ASSERT_TRUE(sample::save_sample(dir.path(), step, step, 1).ok);
  EXPECT_EQ(read_text(dir / "latest"), "step-00000020\n");
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    EXPECT_EQ(select_newest(world, dir.path())->manifest.progress.step, 30);
    EXPECT_EQ(select_newest(world, dir.path(), 30)->manifest.progress.step, 20);
    EXPECT_FALSE(select_newest(world, dir.path(), 10).has_value());
  });
}

TEST(Newest, ASecondDamagedOneIsPassedOverToo) {
  const TempDir dir;
  for (const int step : {10, 20, 30}) ASSERT_TRUE(sample::save_sample(dir.path(), step, step, 1).ok);
  flip(dir / "step-00000030/rank-00000.h5", plane_offset(dir / "step-00000030", 0, 2));  // shows when loaded
  fs::remove(dir / "step-00000020/manifest.json");                                       // shows when listed
  const auto world = comm::make_single_rank();
  SampleState state(Layout::kWhole, 1, 0);
  const auto loaded = load_newest(*world, dir.path(), state.params, state.loading());
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->manifest.progress.step, 10);
  EXPECT_EQ(state.differences(10), 0);
  ASSERT_EQ(loaded->refused.size(), 2U);
  EXPECT_EQ(loaded->refused[0].step, 30);
  EXPECT_EQ(loaded->refused[1].step, 20);
}

}  // namespace
}  // namespace sluice::checkpoint
