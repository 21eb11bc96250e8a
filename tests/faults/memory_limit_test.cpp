// "It fits": under a hard limit of memory a model whose states are three times the limit trains from disk. Needs a memory cgroup of its own
// (version 1 or 2) and is skipped by name where none can be made.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "support/sanitized.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::int64_t kLimit = std::int64_t{192} << 20;
constexpr std::int64_t kHidden = 512, kLayers = 12, kVocabulary = 257, kContext = 32;
/// Of a block: four weights of attention and two of four times their size, their biases and two norms.
constexpr std::int64_t kParameters = kLayers * (12 * kHidden * kHidden + 13 * kHidden) + (kVocabulary + kContext) * kHidden + 2 * kHidden;
constexpr std::int64_t kStates = 16 * kParameters;  // parameters, gradients and two moments, in f32
static_assert(kStates >= 3 * kLimit);

/// A cgroup with a limit of memory, removed at the end.
class LimitedGroup {
 public:
  static std::optional<LimitedGroup> make(std::int64_t bytes) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const std::size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string controllers = line.substr(first + 1, second - first - 1);
      const bool is_unified = controllers.empty();
      if (!is_unified && controllers != "memory") continue;
      LimitedGroup group;
      group.is_unified_ = is_unified;
      const std::string own = std::string(is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + line.substr(second + 1);
      group.folder_ = own + "/sluice-test-" + std::to_string(::getpid());
      if (::mkdir(group.folder_.c_str(), 0755) != 0) continue;
      group.is_made_ = true;
      std::ofstream limit(group.folder_ + (is_unified ? "/memory.max" : "/memory.limit_in_bytes"));
      if (limit << bytes << std::flush) return group;
    }
    return std::nullopt;
  }
  LimitedGroup(LimitedGroup&& other) noexcept
      : folder_(std::move(other.folder_)), is_unified_(other.is_unified_), is_made_(std::exchange(other.is_made_, false)) {}
  LimitedGroup& operator=(LimitedGroup&&) = delete;
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;
  ~LimitedGroup() {
    if (is_made_) ::rmdir(folder_.c_str());
  }

  /// The command runs in the group, with all that it starts.
  void take_in(ProgramCommand& command) const {
    command.prepare = [members = folder_ + "/cgroup.procs"] {
      std::ofstream file(members);
      return file << ::getpid() << std::flush ? 0 : 1;
    };
  }
  /// How often somebody wanted more than the limit: then the kernel takes page cache away first.
  std::int64_t hits() const { return is_unified_ ? field("/memory.events", "max") : number("/memory.failcnt"); }
  std::int64_t kills() const { return field(is_unified_ ? "/memory.events" : "/memory.oom_control", "oom_kill"); }
  std::int64_t peak_bytes() const { return number(is_unified_ ? "/memory.peak" : "/memory.max_usage_in_bytes"); }

 private:
  LimitedGroup() = default;
  std::int64_t number(const std::string& name) const {
    std::ifstream file(folder_ + name);
    std::int64_t value = -1;
    file >> value;
    return value;
  }
  std::int64_t field(const std::string& name, const std::string& wanted) const {
    std::ifstream file(folder_ + name);
    std::string key;
    for (std::int64_t value = 0; file >> key >> value;) {
      if (key == wanted) return value;
    }
    return -1;
  }
  std::string folder_;
  bool is_unified_ = false, is_made_ = false;
};

/// 20 steps under the limit. `clipping`: gradient_clipping.
void train_three_times_the_limit(const std::string& clipping) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer's own memory is beyond the limit";
  const std::optional<LimitedGroup> group = LimitedGroup::make(kLimit);
  if (!group) GTEST_SKIP() << "a cgroup with a limit of memory can't be made here (needs root or a delegated one)";
  const RunArea area;
  fs::create_directories(area / "disk");
  area.write("large/config.json", json{{"model_type", "gpt2"},
                                       {"activation_function", "gelu_new"},
                                       {"vocab_size", kVocabulary},
                                       {"n_positions", kContext},
                                       {"n_embd", kHidden},
                                       {"n_layer", kLayers},
                                       {"n_head", 8},
                                       {"embd_pdrop", 0.0},
                                       {"attn_pdrop", 0.0},
                                       {"resid_pdrop", 0.0},
                                       {"layer_norm_epsilon", 1e-5},
                                       {"initializer_range", 0.02},
                                       {"tie_word_embeddings", true}}
                                      .dump());
  ProgramCommand command = area.train(0, "run", {"--model",     area / "large",
                                                 "--init",      "scratch",
                                                 "--steps",     "20",
                                                 "--nvme-path", area / "disk",
                                                 "--threads",   "2",
                                                 "--set",       "optimizer.params.lr=0.0005",
                                                 "--set",       "gradient_clipping=" + clipping,
                                                 "--set",       "train_batch_size=2",
                                                 "--set",       "sluice.checkpoint.interval=0",
                                                 "--set",       "sluice.export=false"});
  group->take_in(command);
  Program program(command);
  std::int64_t peak = -1;
  program.wait_until([&] {
    const bool is_over = last_step(area / "run") >= 20;
    if (!is_over) peak = group->peak_bytes();
    return is_over;
  });
  const ProgramOutcome outcome = program.wait();
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_LT(outcome.seconds, 90);
  ASSERT_TRUE(has_each_step_once(area / "run", 20));
  const std::vector<StepRecord> steps = read_records(area / "run").steps;
  const auto mean = [&](std::size_t first) {
    return (steps[first].loss_value() + steps[first + 1].loss_value() + steps[first + 2].loss_value()) / 3;
  };
  EXPECT_LT(mean(17), mean(0) - 0.5);
  EXPECT_EQ(group->kills(), 0);
  EXPECT_EQ(group->hits(), 0) << "the checkpoint included, whose pages leave the cache as it is written";
  EXPECT_LE(peak, kLimit);
  const std::size_t at = outcome.output.find("swap: writing");
  ASSERT_NE(at, std::string::npos) << outcome.output;
  std::printf(
      "limit %.0f MiB, states %.0f MiB; peak while training %.0f MiB, limit hit %lld times; %.0f s; "
      "loss %.3f to %.3f\n",
      static_cast<double>(kLimit) / (1 << 20), static_cast<double>(kStates) / (1 << 20), static_cast<double>(peak) / (1 << 20),
      static_cast<long long>(group->hits()), outcome.seconds, mean(0), mean(17));
}

/// 1.56 billion parameters: 25 GB of f32 states and gradients.
TEST(SlowMemoryLimit, Gpt2Of1500MillionParametersIn6GiB) {
  constexpr std::int64_t kDiskBytes = 65'000'000'000;  // two halves of the states, and a checkpoint
  const std::optional<LimitedGroup> group = LimitedGroup::make(std::int64_t{6} << 30);
  if (!group) GTEST_SKIP() << "a cgroup with a limit of memory can't be made here (needs root or a delegated one)";
  const RunArea area;
  fs::create_directories(area / "disk");
  const auto free_bytes = static_cast<std::int64_t>(fs::space(area / "disk").available);
  if (free_bytes < kDiskBytes)
    GTEST_SKIP() << "gpt2-1.5b needs " << kDiskBytes << " bytes of disk, " << free_bytes << " are free at " << (area / "disk");
  ProgramCommand command = area.train(0, "run", {"--model",     "gpt2-1.5b",
                                                 "--init",      "scratch",
                                                 "--steps",     "3",
                                                 "--nvme-path", area / "disk",
                                                 "--threads",   "2",
                                                 "--set",       "gradient_clipping=0",
                                                 "--set",       "train_batch_size=1",
                                                 "--set",       "sluice.sequence_length=64",
                                                 "--set",       "sluice.checkpoint.interval=0",
                                                 "--set",       "sluice.export=false"});
  command.limit_seconds = 1500;  // 100 GB to write and 90 GB to read
  group->take_in(command);
  const ProgramOutcome outcome = run_program(command);
  ASSERT_TRUE(ended_with(outcome, 0));
  ASSERT_TRUE(has_each_step_once(area / "run", 3));
  EXPECT_EQ(group->kills(), 0);
  EXPECT_EQ(group->hits(), 0);
  EXPECT_TRUE(fs::exists(area / "run/checkpoints/step-00000003/manifest.json"));
  std::printf("limit 6 GiB, limit hit %lld times; %.0f s\n%s", static_cast<long long>(group->hits()), outcome.seconds,
              outcome.output.c_str());
}

/// Each gradient is used up in the backward pass that makes it.
TEST(MemoryLimit, AModelOfThreeTimesTheLimitTrainsFromDisk) {
  train_three_times_the_limit("0");
}

/// All gradients, a quarter of the states, wait for their norm, for which the limit has no room: they wait on disk, too.
TEST(MemoryLimit, AModelOfThreeTimesTheLimitTrainsFromDiskWithClipping) {
  train_three_times_the_limit("1");
}

}  // namespace
}  // namespace sluice::testing
