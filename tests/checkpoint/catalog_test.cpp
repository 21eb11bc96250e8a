#include "checkpoint/catalog.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "checkpoint/sample_state.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using sluice::testing::expect_error;
using sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Catalog, ListsWholeDamagedAndIncompleteOnes) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 30, 1, 2).ok);
  ASSERT_TRUE(sample::save_sample(dir.path(), 20, 1, 1).ok);
  fs::resize_file(dir / "step-00000020/rank-00000.h5", 1000);
  fs::create_directories(dir / "step-00000040.tmp.0011");
  fs::create_directories(dir / ".trash.step-00000010.77");
  fs::create_directories(dir / "step-7");  // not one of our names
  dir.write("notes", "mine");

  const std::vector<Entry> entries = list_checkpoints(dir.path());
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].step, 10);
  EXPECT_EQ(entries[0].state, State::kIncomplete);
  EXPECT_EQ(entries[1].step, 20);
  EXPECT_EQ(entries[1].state, State::kDamaged);
  EXPECT_THAT(entries[1].reason, HasSubstr("rank-00000.h5: has 1000 bytes, expected"));
  EXPECT_EQ(entries[2].step, 30);
  EXPECT_EQ(entries[2].state, State::kComplete);
  EXPECT_EQ(entries[2].ranks, 2);
  EXPECT_EQ(entries[2].bytes, read_manifest(dir / "step-00000030").bytes());
  EXPECT_EQ(entries[3].step, 40);
  EXPECT_EQ(entries[3].state, State::kIncomplete);

  EXPECT_THAT(describe(entries), HasSubstr("damaged"));
  EXPECT_THAT(describe(entries), HasSubstr("step       30  complete "));
  EXPECT_THAT(describe(entries), ::testing::EndsWith("\ncomplete: all files are there with the right sizes and structure; "
                                                     "sluice checkpoint verify reads every byte\n"));
  const json list = json::parse(to_json(entries));
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[1]["state"], "damaged");
  EXPECT_EQ(list[2]["step"], 30);
  EXPECT_EQ(list[2]["state"], "complete");
  EXPECT_EQ(describe(std::vector<Entry>()), "no checkpoints\n");
}

TEST(Catalog, SweepsOnlyWhatACutOffSaveLeaves) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 30, 1, 1).ok);
  dir.write("step-00000040.tmp.0011/rank-00000.h5", "half");
  dir.write(".trash.step-00000010.77/model.h5", "old");
  dir.write("my.tmp.file", "mine");
  dir.write("step-7.tmp.x", "mine");
  const Removal removal = sweep_leftovers(dir.path());
  EXPECT_THAT(removal.removed, ElementsAre(dir / ".trash.step-00000010.77", dir / "step-00000040.tmp.0011"));
  EXPECT_TRUE(removal.warnings.empty());
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "my.tmp.file", "step-00000030", "step-7.tmp.x"));
}

TEST(Catalog, RetentionCountsOnlyWholeOnes) {
  const TempDir dir;
  for (const int step : {10, 20, 30, 40}) ASSERT_TRUE(sample::save_sample(dir.path(), step, 1, 1).ok);
  fs::remove(dir / "step-00000030/manifest.json");
  fs::remove(dir / "step-00000040/rank-00000.h5");
  // The two newest by name are damaged: the two whole ones stay.
  EXPECT_TRUE(retain_newest(dir.path(), 2, {20}, {}, {}).removed.empty());
  EXPECT_TRUE(retain_newest(dir.path(), 1, {20, 10}, {}, {}).removed.empty()) << "the best one stays as well";
  EXPECT_THAT(retain_newest(dir.path(), 1, {20}, {}, {}).removed, ElementsAre(dir / "step-00000010"));
  EXPECT_TRUE(retain_newest(dir.path(), 0, {20}, {}, {}).removed.empty());
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000020", "step-00000030", "step-00000040"));
}

TEST(Catalog, WhatLoadingRefusedCountsNotUntilItIsWrittenAnew) {
  const TempDir dir;
  const std::string run = dir / "run", other = dir / "other";
  for (const int step : {10, 20, 30, 40}) ASSERT_TRUE(sample::save_sample(run, step, step, 1).ok);
  {
    const File shard(run + "/step-00000040/rank-00000.h5", O_RDWR);
    const std::int64_t place = read_manifest(run + "/step-00000040").shards[0].planes[0].offset + 100;
    char byte = 0;
    shard.read_at(&byte, 1, place);
    byte ^= 4;
    shard.write_at(&byte, 1, place);
  }
  const auto world = comm::make_single_rank();
  sample::SampleState state(sample::Layout::kWhole, 1, 0);
  const auto loaded = load_newest(*world, run, state.params, state.loading());
  ASSERT_TRUE(loaded.has_value());
  ASSERT_EQ(loaded->manifest.progress.step, 30);
  ASSERT_EQ(loaded->refused.size(), 1U);
  ASSERT_EQ(list_checkpoints(run).back().state, State::kComplete) << "nothing but loading can know";

  SaveOptions options = sample::sample_options();
  options.keep = 2;
  options.damaged_steps = {loaded->refused[0].step};
  const CommitResult between = sample::save_sample(run, 35, 35, 1, sample::Layout::kWhole, options);
  EXPECT_THAT(between.removed, ElementsAre(run + "/step-00000010", run + "/step-00000020"));
  EXPECT_TRUE(between.warnings.empty());
  EXPECT_THAT(names_in(run), ElementsAre("latest", "step-00000030", "step-00000035", "step-00000040"));

  fs::copy(run, other, fs::copy_options::recursive);
  const CommitResult anew = sample::save_sample(other, 40, 41, 1, sample::Layout::kWhole, options);
  EXPECT_THAT(anew.removed, ElementsAre(other + "/step-00000030"));
  EXPECT_TRUE(anew.warnings.empty());

  // Once enough newer whole ones stand it goes with what is older, and that is said; the best one stays whatever it is.
  EXPECT_TRUE(sample::save_sample(run, 50, 50, 1, sample::Layout::kWhole, options).warnings.empty());
  EXPECT_THAT(names_in(run), ElementsAre("latest", "step-00000035", "step-00000040", "step-00000050"));
  options.keep = 1;
  EXPECT_TRUE(retain_newest(run, 1, {35, 40}, {40}, {}).removed.empty());
  const CommitResult last = sample::save_sample(run, 60, 60, 1, sample::Layout::kWhole, options);
  EXPECT_THAT(last.removed, ElementsAre(run + "/step-00000035", run + "/step-00000040", run + "/step-00000050"));
  EXPECT_THAT(last.warnings, ElementsAre("the damaged checkpoint of step 40 is removed, since 1 newer whole one stands"));
}

TEST(Catalog, ShowsWhatAManifestHolds) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 30, 1, 2).ok);
  const Manifest manifest = read_manifest(dir / "step-00000030");
  const std::string text = describe(manifest);
  EXPECT_THAT(text, HasSubstr("step 30, sample 240, 29 updates, global batch 8"));
  EXPECT_THAT(text, HasSubstr("6 parameters"));
  const json value = json::parse(summary_json(manifest));
  EXPECT_EQ(value["step"], 30);
  EXPECT_EQ(value["elements"]["working"], 37 * 19 + 6 * 5 * 7 + 23 + 1 + 40 + 3 * 211);
  EXPECT_EQ(value["elements"]["exp_avg"], 37 * 19 + 6 * 5 * 7 + 23 + 1 + 3 * 211);
  EXPECT_EQ(value["model"]["layers"], 2);
  EXPECT_EQ(value["shards"].size(), 2U);
  EXPECT_FALSE(value["shards"][0].contains("planes"));
  EXPECT_FALSE(value.contains("progress"));
  EXPECT_EQ(value["parameters"][0]["name"], "wte.weight");
  const json verified = json::parse(to_json(verify_checkpoint(dir / "step-00000030", true)));
  EXPECT_EQ(verified["whole"], true);
  EXPECT_EQ(verified["deep"], true);
  EXPECT_EQ(verified["step"], 30);
}

TEST(Catalog, FindsTheCheckpointsAPathMeans) {
  const TempDir dir;
  const std::string run = dir / "run";
  const std::string checkpoints = run + "/checkpoints";
  const std::string one = sample::save_sample(checkpoints, 30, 1, 1).path;
  EXPECT_EQ(locate_checkpoints(run).directory, checkpoints);
  EXPECT_FALSE(locate_checkpoints(run).path.has_value());
  EXPECT_EQ(locate_checkpoints(checkpoints + "/").directory, checkpoints);
  EXPECT_EQ(locate_checkpoints(one).path, one);
  EXPECT_EQ(locate_checkpoints(one + "/").path, one);
  EXPECT_EQ(locate_checkpoints(one).directory, checkpoints);
  expect_error<RequestError>([&] { locate_checkpoints(dir / "absent"); }, {"absent: no such directory"});
}

TEST(Catalog, AManifestIsOfItsDirectorysStep) {
  const TempDir dir;
  const std::string path = sample::save_sample(dir.path(), 30, 1, 1).path;
  fs::rename(path, dir / "step-00000031");
  expect_error<FormatError>([&] { read_manifest(dir / "step-00000031"); }, {"is of step 30, expected step 31"});
  fs::rename(dir / "step-00000031", dir / "copy");  // any other name says nothing
  EXPECT_EQ(read_manifest(dir / "copy").progress.step, 30);
  expect_error<FormatError>([&] { read_manifest(dir.path()); }, {"manifest.json: is missing"});
}

}  // namespace
}  // namespace sluice::checkpoint
