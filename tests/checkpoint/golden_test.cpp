// The committed checkpoint of each format version stays readable: its numbers are known by formula.

#include <gmock/gmock.h>

#include "checkpoint/catalog.hpp"
#include "checkpoint/sample_state.hpp"

namespace sluice::checkpoint {
namespace {

using sample::Layout;

const std::string kGolden = std::string(SLUICE_SOURCE_DIR) + "/checkpoints/golden-v1";

TEST(Golden, Version1IsWhole) {
  const Verification verification = verify_checkpoint(kGolden + "/step-00000003", true);
  EXPECT_TRUE(verification.whole()) << describe(verification);
  EXPECT_TRUE(verification.notes.empty()) << describe(verification);
  const std::vector<Entry> entries = list_checkpoints(kGolden);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].ranks, 4);
}

TEST(Golden, Version1GivesItsNumbersOnAnyRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const Layout layout : {Layout::kIntervals, Layout::kColumns, Layout::kWhole, Layout::kMixed}) {
      EXPECT_EQ(sample::load_differences(kGolden + "/step-00000003", 7, ranks, layout), 0);
    }
  }
}

TEST(Golden, Version1SaysWhereItsRunWas) {
  const Manifest manifest = read_manifest(kGolden + "/step-00000003");
  EXPECT_EQ(manifest.version, 1);
  EXPECT_EQ(manifest.progress.step, 3);
  EXPECT_EQ(manifest.progress.samples, 24);
  EXPECT_EQ(manifest.progress.adam_count, 2);
  EXPECT_EQ(manifest.progress.global_batch, 8);
  EXPECT_EQ(manifest.progress.epoch, 2);
  EXPECT_EQ(manifest.progress.samples_per_epoch, 1000);
  EXPECT_EQ(manifest.progress.seed, 18446744073709551557u);
  EXPECT_EQ(manifest.progress.attempt, 3);
  EXPECT_EQ(manifest.created, 1'700'000'000);
  EXPECT_EQ(manifest.writer, "sluice 0.1.0");
  EXPECT_EQ(manifest.block_bytes, 256);
  EXPECT_EQ(manifest.documents.model, R"({"layers":2,"eps":1e-05})");
  EXPECT_EQ(manifest.params, sample::sample_params());
}

}  // namespace
}  // namespace sluice::checkpoint
