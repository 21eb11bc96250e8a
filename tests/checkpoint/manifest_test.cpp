#include "checkpoint/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/geometry.hpp"
#include "support/expect_error.hpp"

namespace sluice::checkpoint {
namespace {

using sluice::testing::expect_error;
using sluice::testing::replaced;

Manifest small_manifest() {
  Manifest m;
  m.save_id = "0123";
  m.writer = "sluice test";
  m.created = 1700000000;
  m.progress = {50, 400, 49, 8, 1, 320, 18446744073709551615u, 2};
  m.documents.model = R"({"b":1,"a":[0.1,2]})";
  m.block_bytes = 64;
  m.params = {{"w", {4, 6}, DType::kF32}, {"b", {6}, DType::kF32}};
  for (int rank = 0; rank < 2; ++rank) {
    ShardInfo shard;
    shard.file = shard_name(rank);
    shard.rank = rank;
    shard.bytes = 4096;
    shard.structure = "00000000000000aa";
    StoredPlane plane;
    plane.offset = 2048;
    plane.checksums_offset = 1024;
    plane.pieces = {{0, {0, rank == 0 ? 0 : 2}, {4, rank == 0 ? 2 : 4}, 0, rank == 0 ? 8 : 16}, flat_region(m.params, 1, rank * 3, 3)};
    for (const Region& region : plane.pieces) {
      plane.elements += region.elements;
      plane.blocks += blocks_of(region.elements, 64);
    }
    shard.planes.push_back(plane);
    m.shards.push_back(shard);
  }
  m.index_bytes = 99;
  m.index_checksum = "00000000000000bb";
  return m;
}

// The checksum as FORMAT.md says it: XXH64 of the text with the sixteen digits as zeros.
std::string resealed(std::string text) {
  const std::size_t at = std::string("{\"manifest_xxh64\":\"").size();
  text.replace(at, 16, "0000000000000000");
  return text.replace(at, 16, to_hex(xxh64(text.data(), text.size())));
}

TEST(Manifest, SurvivesItsText) {
  const Manifest m = small_manifest();
  const std::string text = to_json(m);
  const Manifest back = manifest_from_json(text, "manifest.json");
  EXPECT_EQ(back.progress, m.progress);
  EXPECT_EQ(back.params, m.params);
  EXPECT_EQ(back.documents.model, m.documents.model);
  EXPECT_EQ(back.documents.plan, "");
  EXPECT_EQ(back.save_id, m.save_id);
  EXPECT_EQ(back.created, m.created);
  ASSERT_EQ(back.shards.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back.shards[i].planes[0].pieces, m.shards[i].planes[0].pieces);
    EXPECT_EQ(back.shards[i].planes[0].offset, 2048);
    EXPECT_EQ(back.shards[i].planes[0].checksums_offset, 1024);
    EXPECT_EQ(back.shards[i].structure, m.shards[i].structure);
  }
  EXPECT_EQ(to_json(back), text);
  EXPECT_EQ(resealed(text), text);
}

TEST(Manifest, HoldsWhichCheckpointIsTheBest) {
  Manifest m = small_manifest();
  EXPECT_EQ(manifest_from_json(to_json(m), "m").progress.best, std::nullopt);
  m.progress.best = Best{.step = 40, .loss = 0.1 + 0.2};
  const std::string text = to_json(m);
  EXPECT_EQ(manifest_from_json(text, "m").progress.best, m.progress.best);
  expect_error<FormatError>([&] { manifest_from_json(resealed(replaced(text, "\"step\":40", "\"step\":-4")), "m"); },
                            {"progress.best.step", "-4"});
  expect_error<FormatError>([&] { manifest_from_json(resealed(replaced(text, "\"loss\":0.3", "\"lost\":0.3")), "m"); },
                            {"progress.best.loss", "missing"});
}

TEST(Manifest, HoldsWhereALossScaleStands) {
  Manifest m = small_manifest();
  EXPECT_EQ(manifest_from_json(to_json(m), "m").progress.loss_scale, std::nullopt);
  m.progress.loss_scale = spec::LossScaleState{.scale = 0x1p17, .hysteresis = 2, .clean_steps = 313};
  const std::string text = to_json(m);
  EXPECT_EQ(manifest_from_json(text, "m").progress, m.progress);
  const auto refused = [&](const std::string& from, const std::string& to, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { manifest_from_json(resealed(replaced(text, from, to)), "m"); }, pieces);
  };
  refused("\"scale\":131072.0", "\"scale\":0", {"progress.loss_scale.scale", "0", "above 0"});
  refused("\"hysteresis\":2", "\"hysteresis\":0", {"progress.loss_scale.hysteresis", "0", "1 or more"});
  refused("\"clean_steps\":313", "\"clean_steps\":-1", {"progress.loss_scale.clean_steps", "-1"});
  refused("\"clean_steps\"", "\"dirty_steps\"", {"progress.loss_scale.clean_steps", "missing"});
}

TEST(Manifest, ASingleAlteredByteIsRefused) {
  const std::string text = to_json(small_manifest());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const int mask : {1, 8, 64}) {
      std::string altered = text;
      altered[i] = static_cast<char>(altered[i] ^ mask);
      EXPECT_THROW(manifest_from_json(altered, "m"), FormatError) << "byte " << i << " of " << text;
    }
  }
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, text.size() / 2, text.size() - 1}) {
    EXPECT_THROW(manifest_from_json(text.substr(0, length), "m"), FormatError) << length;
  }
  EXPECT_THROW(manifest_from_json(text + " ", "m"), FormatError);
}

TEST(Manifest, RefusalsNameWhatWasFoundAndExpected) {
  const std::string text = to_json(small_manifest());
  const auto refused = [&](const std::string& from, const std::string& to, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { manifest_from_json(resealed(replaced(text, from, to)), "step-1/manifest.json"); }, pieces);
  };
  refused("\"version\":1", "\"version\":2", {"step-1/manifest.json", "format version is 2, this program reads version 1"});
  refused("\"sluice-checkpoint\"", "\"other\"", {"format is \"other\", expected \"sluice-checkpoint\""});
  refused("\"step\":50", "\"step\":\"fifty\"", {"key \"progress.step\" is \"fifty\", expected a whole number"});
  refused("\"samples\":400", "\"samples\":-1", {"progress.samples", "-1"});
  refused("\"adam_count\"", "\"adam\"", {"key \"progress.adam_count\" is missing"});
  refused("\"block_bytes\":64", "\"block_bytes\":3", {"block_bytes", "3", "a multiple of 4"});
  refused("\"dtype\":\"f32\"},{\"name\":\"b\"", "\"dtype\":\"f64\"},{\"name\":\"b\"", {"parameter w has dtype f64", "stores f32"});
  refused("\"name\":\"b\"", "\"name\":\"w\"", {"parameter w is listed twice"});
  refused("\"file\":\"rank-00001.h5\"", "\"file\":\"../../x.h5\"", {"shard 1 is ../../x.h5", "expected rank-00001.h5"});
  refused("\"offset\":2048,\"elements\":19", "\"offset\":4090,\"elements\":19", {"rank-00001.h5, plane working: leaves its file"});
  refused("\"offset\":2048,\"elements\":19", "\"offset\":1020,\"elements\":19", {"rank-00001.h5: two planes share byte"});
  refused("\"elements\":19", "\"elements\":20", {"holds 20 elements, its pieces have 19"});
  refused("[1,3,3]", "[1,2,3]", {"plane working of parameter b", "element 2 is held twice"});
  refused("[1,3,3]", "[7,3,3]", {"names parameter 7, which is not listed"});
  refused("[1,3,3]", "[1,4,3]", {"interval of 3 elements at 4 leaves the rectangle"});
  refused("[0,2],[4,4]", "[0,3],[4,4]", {"leaves the parameter"});
  refused("\"name\":\"working\"", "\"name\":\"velocity\"", {"plane \"velocity\" is unknown"});
  expect_error<FormatError>([&] { manifest_from_json("half a manif", "m"); }, {"m: is not JSON (12 bytes)"});
}

TEST(Manifest, StatePlanesAreTheSameForAllThatHaveAny) {
  const std::vector<ParamInfo> params{{"w", {4, 6}, DType::kF32}, {"b", {6}, DType::kF32}, {"frozen", {5}, DType::kF32}};
  // Which planes w and b have beside "working"; 2 is "exp_avg_sq".
  const auto fault = [&](const std::vector<int>& of_w, const std::vector<int>& of_b, std::int64_t elements_of_b = 6) {
    std::vector<StoredPlane> planes(kPlaneCount);
    for (int p = 0; p < kPlaneCount; ++p) planes[static_cast<std::size_t>(p)].plane = p;
    for (int p = 0; p < 3; ++p) planes[0].pieces.push_back(whole_region(params, p));
    for (const int plane : of_w) planes[static_cast<std::size_t>(plane)].pieces.push_back(whole_region(params, 0));
    for (const int plane : of_b) planes[static_cast<std::size_t>(plane)].pieces.push_back(flat_region(params, 1, 0, elements_of_b));
    return shards_fault(params, {{.file = "rank-00000.h5", .planes = planes}});
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(fault({}, {}), "") << "SGD";
  EXPECT_EQ(fault({1}, {1}), "") << "SGD with momentum, Lion";
  EXPECT_EQ(fault({1}, {}), "");
  EXPECT_EQ(fault({1, 2}, {1, 2}), "") << "Adam";
  EXPECT_EQ(fault({1, 2}, {}), "");
  EXPECT_THAT(fault({1, 2}, {1}), HasSubstr("plane exp_avg_sq of parameter b"));
  EXPECT_THAT(fault({1, 2}, {2}), HasSubstr("plane exp_avg of parameter b"));
  EXPECT_THAT(fault({2}, {2}), HasSubstr("plane exp_avg of parameter w"));
  EXPECT_THAT(fault({1}, {1}, 5), HasSubstr("plane exp_avg of parameter b"));
}

TEST(Manifest, NamesOfSteps) {
  EXPECT_EQ(step_name(50), "step-00000050");
  EXPECT_EQ(step_of_name("step-00000050"), 50);
  EXPECT_EQ(step_of_name(step_name(1'234'567'890)), 1'234'567'890);
  for (const char* name : {"step-50", "step-00000050.tmp.1", "step-0000005x", "step-", "step--0000050", "latest", "xstep-00000050"}) {
    EXPECT_EQ(step_of_name(name), -1) << name;
  }
}

}  // namespace
}  // namespace sluice::checkpoint
