// Where things are kept: DeepSpeed's hints to the planner, and the budgets, pins and plan of sluice.

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/configuration_parts.hpp"
#include "app/placement_choices.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

constexpr std::int64_t kMostQueueDepth = 65536;  // the kernel's usual limit for all programs together
constexpr std::int64_t kMostBlockBytes = std::int64_t{1} << 30;

/// Hints that the planner weighs. The others tune how another engine does what the planner works out by itself.
bool is_weighed(const std::string& path) {
  constexpr auto kWeighed = std::to_array<std::string_view>(
      {"zero_optimization.stage", "zero_optimization.offload_param.device", "zero_optimization.offload_param.nvme_path",
       "zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.cpu_offload",
       "zero_optimization.cpu_offload_param", "zero_optimization.cpu_offload_params", "activation_checkpointing.cpu_checkpointing",
       "aio.block_size", "aio.queue_depth"});
  return std::find(kWeighed.begin(), kWeighed.end(), path) != kWeighed.end();
}

OffloadHint read_offload(KeyTree& keys, const std::string& block, const std::string& old_name) {
  OffloadHint hint;
  if (keys.is_auto(block + ".device") || !keys.has(block + ".device")) {
    if (keys.hinted_flag(old_name).value_or(false)) hint.device = "cpu";
  } else {
    hint.device = keys.one_of(block + ".device", {"none", "cpu", "nvme"}).value_or("");
  }
  if (!keys.is_auto(block + ".nvme_path")) hint.nvme_path = keys.text(block + ".nvme_path").value_or("");
  hint.pin_memory = keys.hinted_flag(block + ".pin_memory");
  if (!hint.pin_memory && !hint.device.empty()) hint.pin_memory = keys.hinted_flag("zero_optimization.cpu_offload_use_pin_memory");
  hint.buffer_count = keys.hinted_whole(block + ".buffer_count");
  hint.buffer_elements = keys.hinted_whole(block + ".buffer_size");
  hint.max_host_elements = keys.hinted_whole(block + ".max_in_cpu");
  if (!keys.is_auto(block + ".ratio")) hint.ratio = keys.number(block + ".ratio", 0, 1);
  hint.pipeline_read = keys.hinted_flag(block + ".pipeline_read");
  hint.pipeline_write = keys.hinted_flag(block + ".pipeline_write");
  return hint;
}

void refuse_both(KeyTree& keys, const std::string& old_name, const std::string& name) {
  if (keys.has(old_name) && keys.has(name)) keys.problem(old_name, cat("is the old name of ", name, ", which stands beside it; remove it"));
}

void read_zero(KeyTree& keys, Hints& hints) {
  const std::string zero = "zero_optimization.";
  hints.zero_stage = keys.hinted_whole(zero + "stage", 0, 3);
  hints.offload_optimizer = read_offload(keys, zero + "offload_optimizer", zero + "cpu_offload");
  const std::string old_param = zero + (keys.has(zero + "cpu_offload_params") ? "cpu_offload_params" : "cpu_offload_param");
  hints.offload_param = read_offload(keys, zero + "offload_param", old_param);
  refuse_both(keys, zero + "cpu_offload", zero + "offload_optimizer");
  refuse_both(keys, old_param, zero + "offload_param");
  hints.prefetch_elements = keys.hinted_whole(zero + "stage3_prefetch_bucket_size");
  hints.max_live_elements = keys.hinted_whole(zero + "stage3_max_live_parameters");
  hints.reduce_elements = keys.hinted_whole(zero + "reduce_bucket_size", 1);
  hints.sub_group_elements = keys.hinted_whole(zero + "sub_group_size");
}

void read_activations(KeyTree& keys, ActivationHint& hint) {
  hint.recompute = keys.trainer_flag(keys.trainer_has("activation_checkpointing") ? "activation_checkpointing" : "gradient_checkpointing");
  hint.partition = keys.hinted_flag("activation_checkpointing.partition_activations");
  hint.on_host = keys.hinted_flag("activation_checkpointing.cpu_checkpointing");
  hint.number_checkpoints = keys.hinted_whole("activation_checkpointing.number_checkpoints");
}

void read_aio(KeyTree& keys, AioHint& hint) {
  hint.block_bytes = keys.hinted_whole("aio.block_size", 1, kMostBlockBytes);
  hint.queue_depth = keys.hinted_whole("aio.queue_depth", 1, kMostQueueDepth);
  refuse_both(keys, "aio.thread_count", "aio.intra_op_parallelism");
  hint.threads = keys.hinted_whole(keys.has("aio.thread_count") ? "aio.thread_count" : "aio.intra_op_parallelism", 1);
  hint.single_submit = keys.hinted_flag("aio.single_submit");
  hint.overlap_events = keys.hinted_flag("aio.overlap_events");
}

void read_pin(Reading& reading, const std::string& pin) {
  KeyTree& keys = reading.keys;
  const Key* key = find_key(pin);
  if (key == nullptr) {
    keys.problem("sluice.pin", cat("\"", pin, "\" is no key that is known", keys.suggestion(pin)));
  } else if (key->rule != KeyRule::kHint) {
    keys.problem("sluice.pin", cat("\"", pin,
                                   "\" is not about placement; what can be pinned is zero_optimization, activation_checkpointing, aio and "
                                   "keys in them"));
  } else if (!keys.has(pin)) {
    keys.problem("sluice.pin", cat("\"", pin, "\" is not written, so there is nothing to keep; write it or remove the pin"));
  } else if (const std::string problem = pin_problem(reading.config, pin); !problem.empty()) {
    keys.problem("sluice.pin", cat("\"", pin, "\": ", problem));
  } else {
    reading.config.pins.push_back(pin);
  }
}

/// The path without links, dots and a last slash, as far as that is known.
std::string directory_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  if (error) return path;
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

/// The paths to swap to: sluice.nvme_path, else those of offloading to NVMe, as DeepSpeed has them.
void read_swap(KeyTree& keys, Configuration& config) {
  config.nvme_paths = keys.texts("sluice.nvme_path");
  config.nvme_keys.assign(config.nvme_paths.size(), keys.where("sluice.nvme_path"));
  config.nvme_network = keys.flag("sluice.nvme_network").value_or(false);
  config.nvme_space_bytes = keys.bytes("sluice.memory.nvme");
  const std::string zero = "zero_optimization.";
  std::vector<std::string> without_path;
  for (const auto& [block, hint] : {std::pair{zero + "offload_optimizer", &config.hints.offload_optimizer},
                                    std::pair{zero + "offload_param", &config.hints.offload_param}}) {
    if (hint->device != "nvme") continue;
    if (hint->nvme_path.empty()) without_path.push_back(block);
    if (keys.has("sluice.nvme_path") || hint->nvme_path.empty()) continue;
    const auto& paths = config.nvme_paths;
    const auto is_same = [directory = directory_of(hint->nvme_path)](const std::string& path) { return directory_of(path) == directory; };
    if (std::any_of(paths.begin(), paths.end(), is_same)) continue;
    config.nvme_paths.push_back(hint->nvme_path);
    config.nvme_keys.push_back(keys.where(block + ".nvme_path"));
    keys.note(cat(block, ".nvme_path is taken for --nvme-path: ", hint->nvme_path));
  }
  std::vector<std::string> directories;
  for (const std::string& path : config.nvme_paths) {
    directories.push_back(directory_of(path));
    const auto same = std::find(directories.begin(), directories.end() - 1, directories.back());
    if (same != directories.end() - 1) {
      keys.problem("sluice.nvme_path", cat(path, " is the same directory as ", config.nvme_paths[same - directories.begin()],
                                           "; give each disk once, since they share the bytes evenly"));
    }
  }
  if (!config.nvme_paths.empty()) return;
  for (const std::string& block : without_path)
    keys.note(cat(block, ".device is nvme, but ", block, ".nvme_path is not given: nothing goes to disk without it or --nvme-path DIR"));
  for (const char* key : {"sluice.memory.nvme", "sluice.nvme_network"}) {
    if (keys.has(key)) keys.problem(key, "is about swapping to disk, but no path is given; give --nvme-path DIR");
  }
}

void note_hints(KeyTree& keys, const Configuration& config) {
  std::vector<std::string> weighed, kept;
  for (const KeyReport& key : config.keys) {
    if (key.key_class != KeyClass::kHint) continue;
    const bool is_pinned = std::any_of(config.pins.begin(), config.pins.end(), [&](const std::string& pin) {
      return key.path.starts_with(pin) && (key.path.size() == pin.size() || key.path[pin.size()] == '.');
    });
    if (!is_weighed(key.path)) {
      kept.push_back(key.path);
    } else if (!is_pinned) {
      weighed.push_back(key.path);
    }
  }
  if (!weighed.empty()) {
    keys.note(cat("taken as hints about placement, which the plan may beat (--pin KEY keeps them): ", joined(weighed)));
  }
  if (!kept.empty()) keys.note(cat("hints about placement that this version's plan has no use for; no result changes: ", joined(kept)));
}

}  // namespace

void read_placement(Reading& reading) {
  KeyTree& keys = reading.keys;
  Configuration& config = reading.config;
  read_zero(keys, config.hints);
  read_activations(keys, config.hints.activations);
  read_aio(keys, config.hints.aio);
  read_swap(keys, config);
  if (const auto device = keys.text("sluice.device")) config.device = *device;
  config.device_memory_bytes = keys.bytes("sluice.memory.device");
  config.host_memory_bytes = keys.bytes("sluice.memory.host");
  if (const auto threads = keys.whole("sluice.threads", 1, 4096)) config.threads = *threads;
  if (const auto plan = keys.text("sluice.plan")) config.plan_file = *plan;
  config.plan_key = keys.where("sluice.plan");
  for (const std::string& pin : keys.texts("sluice.pin")) read_pin(reading, with_underscores(pin));
  note_hints(keys, config);
}

}  // namespace sluice::app
