#include "profile/measure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/local/local_communicator.hpp"
#include "support/expect_error.hpp"

namespace sluice::profile {
namespace {

MeasureRequest small_request() {
  return {.model = {.name = "small", .vocab = 64, .context = 32, .hidden = 32, .layers = 2, .heads = 2, .ffn = 128},
          .sequence_length = 16,
          .rows = {2, 1},
          .threads = 1};
}

/// One measurement on two ranks for all tests: it takes seconds.
const std::array<Measurement, 2>& measured_by_two_ranks() {
  static const std::array<Measurement, 2> kMeasured = [] {
    std::array<Measurement, 2> result;
    comm::run_local_ranks(
        2, [&](comm::Communicator& world) { result[static_cast<std::size_t>(world.rank())] = measure(world, small_request()); });
    return result;
  }();
  return kMeasured;
}

TEST(Measure, EveryRankEndsWithTheSameMachine) {
  EXPECT_EQ(measured_by_two_ranks()[0].machine, measured_by_two_ranks()[1].machine);
}

TEST(Measure, FiguresAreThoseOfAMachine) {
  const spec::MachineSpec& m = measured_by_two_ranks()[0].machine;
  EXPECT_EQ(m.ranks_per_node, 2);
  EXPECT_GE(m.cores_per_node, 1);
  EXPECT_EQ(m.threads_per_rank, 1);
  // Any processor of this century and the next years: loose, but a wrong unit shows.
  EXPECT_GT(m.flops_per_core, 1e8);
  EXPECT_LT(m.flops_per_core, 1e13);
  for (const double rate : {m.memory_bytes_per_second, m.update_bytes_per_second, m.upload_bytes_per_second, m.download_bytes_per_second,
                            m.gather.bytes_per_second, m.scatter.bytes_per_second}) {
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e13);
  }
  for (const double seconds : {m.agree_seconds, m.task_seconds, m.wake_seconds}) {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 0.1);
  }
  for (const double seconds : {m.skew_seconds, m.gather.core_seconds, m.scatter.core_seconds}) {
    EXPECT_GE(seconds, 0);
    EXPECT_LT(seconds, 0.1);
  }
  EXPECT_GT(m.device_bytes, 0);
  EXPECT_EQ(m.disk, spec::DiskSpeed{}) << "no disk was asked for";
  EXPECT_GT(m.unplanned_bytes, 0);
  EXPECT_FALSE(m.device_name.empty());
  EXPECT_FALSE(m.sources.empty());
}

TEST(Measure, TimesEveryPhaseOfEverySegmentAtEveryShape) {
  std::set<std::string> timed;
  for (const spec::SegmentTime& time : measured_by_two_ranks()[0].machine.segments) {
    EXPECT_EQ(time.hidden, 32);
    EXPECT_EQ(time.sequence, 16);
    EXPECT_GT(time.seconds, 0);
    EXPECT_LT(time.seconds, 1);
    EXPECT_TRUE(timed.insert(cat(time.segment, " ", time.phase, " ", time.rows)).second) << time.segment << " " << time.phase << " twice";
  }
  std::set<std::string> expected;
  for (const int rows : {1, 2}) {
    for (const char* phase : {"forward", "recompute", "backward"}) {
      for (const char* kind : {"attention", "mlp"}) expected.insert(cat(kind, " ", phase, " ", rows));
    }
    for (const char* name : {"embedding forward", "embedding backward", "head forward", "head forward_backward"})
      expected.insert(cat(name, " ", rows));
  }
  EXPECT_EQ(timed, expected);
}

TEST(Measure, SurvivesItsFile) {
  Measurement measured = measured_by_two_ranks()[0];
  measured.machine.disk.read_bytes_per_second = 2e9;
  measured.unsteady = "2 of 40 timings were disturbed";
  measured.disk = {measured.machine.disk, {"a line"}, {"a warning", "another"}};
  std::string key;
  const Measurement read = measurement_from_json(to_json("the key", measured), "profile.json", key);
  EXPECT_EQ(key, "the key");
  EXPECT_EQ(read.machine, measured.machine);
  EXPECT_EQ(read.spread, measured.spread);
  EXPECT_EQ(read.unsteady, measured.unsteady);
  EXPECT_EQ(read.disk.speed, measured.disk.speed);
  EXPECT_EQ(read.disk.lines, measured.disk.lines);
  EXPECT_EQ(read.disk.warnings, measured.disk.warnings);
  EXPECT_EQ(read.seconds, measured.seconds);
  testing::expect_error<FormatError>([&] { measurement_from_json("{\"key\": 1}", "profile.json", key); }, {"profile.json", "no profile"});
  testing::expect_error<FormatError>([&] { measurement_from_json("{", "profile.json", key); }, {"profile.json"});
}

TEST(CacheKey, HoldsWhatAMeasurementDependsOn) {
  const auto key_of = [](const MeasureRequest& request) {
    std::array<std::string, 2> keys;
    comm::run_local_ranks(2, [&](comm::Communicator& world) { keys[static_cast<std::size_t>(world.rank())] = cache_key(world, request); });
    EXPECT_EQ(keys[0], keys[1]);
    return keys[0];
  };
  const MeasureRequest request = small_request();
  const std::string key = key_of(request);
  EXPECT_EQ(key_of(request), key);
  MeasureRequest other = request;
  other.threads = 2;
  EXPECT_NE(key_of(other), key);
  other = request;
  other.sequence_length = 8;
  EXPECT_NE(key_of(other), key);
  other = request;
  other.rows = {4};
  EXPECT_NE(key_of(other), key);
  other = request;
  other.model.vocab = 65;
  EXPECT_NE(key_of(other), key);
  other = request;
  other.model.layers = 9;  // one layer of each kind is timed
  EXPECT_EQ(key_of(other), key);
  other.disk = {.paths = {"/tmp"}, .job = "1"};
  const std::string with_disk = key_of(other);
  EXPECT_NE(with_disk, key);
  other.disk.job = "2";  // whoever asks
  EXPECT_EQ(key_of(other), with_disk);
}

}  // namespace
}  // namespace sluice::profile
