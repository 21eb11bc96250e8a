// The block "sluice": what DeepSpeed leaves to the script. Absent means automatic; the defaults are those of Configuration.

#include <array>

#include "app/key_rules.hpp"

namespace sluice::app {
namespace {

using enum KeyRule;
using enum ValueType;

constexpr std::string_view kDataParallel = "remove it: all ranks are data-parallel";

constexpr auto kKeys = std::to_array<Key>({
    {"sluice", kHonoured, kObject},
    {"sluice.model", kHonoured, kObject},
    {"sluice.model.preset", kHonoured, kText},
    {"sluice.model.path", kHonoured, kText},
    {"sluice.init", kHonoured, kText},
    {"sluice.trainable", kHonoured, kTexts},
    {"sluice.sequence_length", kHonoured, kWhole},
    {"sluice.data", kHonoured, kObject},
    {"sluice.data.train", kHonoured, kTexts},
    {"sluice.data.valid", kHonoured, kTexts},
    {"sluice.data.valid_fraction", kHonoured, kNumber, "0.0"},
    {"sluice.data.order", kHonoured, kText, "\"shuffled\""},
    {"sluice.data.tokenizer", kHonoured, kText},
    {"sluice.data.chat_template", kHonoured, kText},
    {"sluice.data.text_key", kHonoured, kText, "\"text\""},
    {"sluice.data.packing", kHonoured, kText, "\"stream\""},
    {"sluice.data.document_attention", kHonoured, kFlag, "false"},
    {"sluice.data.overlong", kHonoured, kText, "\"error\""},
    {"sluice.data.invalid_utf8", kHonoured, kText, "\"error\""},
    {"sluice.steps", kHonoured, kWhole},
    {"sluice.epochs", kHonoured, kNumber},
    {"sluice.seed", kHonoured, kWhole, "1"},
    {"sluice.schedule", kHonoured, kObject},
    {"sluice.schedule.kind", kHonoured, kText},
    {"sluice.schedule.warmup_start", kHonoured, kNumber, "0.0"},
    {"sluice.schedule.warmup_steps", kHonoured, kWhole, "0"},
    {"sluice.schedule.warmup_ratio", kHonoured, kNumber, "0.0"},
    {"sluice.schedule.total_steps", kHonoured, kWhole},
    {"sluice.schedule.final_ratio", kHonoured, kNumber, "0.0"},
    {"sluice.schedule.power", kHonoured, kNumber, "1.0"},
    {"sluice.weight_decay_on", kHonoured, kText},
    {"sluice.output", kHonoured, kText},
    {"sluice.resume", kHonoured, kText},
    {"sluice.checkpoint", kHonoured, kObject},
    {"sluice.checkpoint.interval", kHonoured, kWhole, "100"},
    {"sluice.checkpoint.keep", kHonoured, kWhole, "3"},
    {"sluice.checkpoint.best", kHonoured, kFlag, "true"},
    {"sluice.evaluate", kHonoured, kObject},
    {"sluice.evaluate.interval", kHonoured, kWhole, "0"},
    {"sluice.export", kHonoured, kAny, "true"},
    {"sluice.device", kAbsent, kText, "\"cpu\"", "\"cpu\"", "write \"cpu\""},
    {"sluice.threads", kHonoured, kWhole},
    {"sluice.memory", kHonoured, kObject},
    {"sluice.memory.device", kHonoured, kSize},
    {"sluice.memory.host", kHonoured, kSize},
    {"sluice.memory.nvme", kHonoured, kSize},
    {"sluice.nvme_path", kHonoured, kTexts},
    {"sluice.nvme_network", kHonoured, kFlag, "false"},
    {"sluice.mesh", kHonoured, kObject},
    {"sluice.mesh.tensor", kAbsent, kWhole, "1", "1", kDataParallel},
    {"sluice.mesh.tensor_mode", kAbsent, kText, "\"1d\"", "\"1d\"", kDataParallel},
    {"sluice.mesh.sequence", kAbsent, kWhole, "1", "1", kDataParallel},
    {"sluice.mesh.pipeline", kAbsent, kWhole, "1", "1", kDataParallel},
    {"sluice.plan", kHonoured, kText},
    {"sluice.pin", kHonoured, kTexts},
    {"sluice.ignore", kHonoured, kTexts},
    {"sluice.dry_run", kHonoured, kFlag, "false"},
    {"sluice.reprofile", kHonoured, kFlag, "false"},
    {"sluice.dump_graph", kHonoured, kFlag, "false"},
});

}  // namespace

std::span<const Key> sluice_keys() {
  return kKeys;
}

}  // namespace sluice::app
