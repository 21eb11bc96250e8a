// How numbers are stored: fp16, bf16 and what goes with them.

#include <limits>

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

/// Whether the block is on, by the file, or by the flag where the file leaves it open.
bool is_on(KeyTree& keys, const std::string& block) {
  const std::string path = block + ".enabled";
  const std::optional<bool> given = keys.trainer_flag(block);
  if (!keys.has(path) || keys.is_auto(path)) return given.value_or(false) && !keys.was_ignored(block);
  const std::optional<bool> written = keys.flag(path);
  if (written && given && *written != *given) keys.mismatch(path, block);
  return written.value_or(false);
}

void read_loss_scale(KeyTree& keys, spec::LossScaleSpec& scale) {
  const auto open = [&](const std::string& name) { return keys.is_auto("fp16." + name); };
  if (!open("loss_scale")) scale.fixed = keys.number("fp16.loss_scale", 0, std::numeric_limits<float>::max()).value_or(scale.fixed);
  // A scale beyond an f32's range would be infinite at once.
  if (!open("initial_scale_power")) {
    scale.initial_power = static_cast<int>(keys.whole("fp16.initial_scale_power", 0, 127).value_or(scale.initial_power));
  }
  if (!open("loss_scale_window")) scale.window = keys.whole("fp16.loss_scale_window", 1).value_or(scale.window);
  if (!open("hysteresis")) scale.hysteresis = static_cast<int>(keys.whole("fp16.hysteresis", 1, 1000000).value_or(scale.hysteresis));
  if (!open("min_loss_scale")) {
    scale.min_scale = static_cast<double>(keys.whole("fp16.min_loss_scale", 1).value_or(static_cast<std::int64_t>(scale.min_scale)));
  }
  scale.consecutive_hysteresis = keys.hinted_flag("fp16.consecutive_hysteresis").value_or(scale.consecutive_hysteresis);
}

}  // namespace

void read_precision(Reading& reading) {
  KeyTree& keys = reading.keys;
  spec::TrainingSpec& training = reading.config.training;
  const bool fp16 = is_on(keys, "fp16"), bf16 = is_on(keys, "bf16");
  const bool checks_bf16 = keys.flag("bf16.check_grad_overflow").value_or(true);
  if (fp16 && bf16) {
    keys.problem("bf16.enabled", "is true beside fp16.enabled; keep one of them");
  } else if (fp16) {
    training.precision = spec::Precision::kFp16;
    keys.note("precision: fp16 storage with fp32 master parameters, as fp16.enabled says");
  } else if (bf16) {
    training.precision = spec::Precision::kBf16;
    training.skips_overflow = checks_bf16;
    keys.note(cat("precision: bf16 storage with fp32 master parameters, as bf16.enabled says",
                  training.skips_overflow ? "" : "; a gradient that isn't finite ends the run, as bf16.check_grad_overflow is false"));
  } else {
    keys.note("precision: fp32, since neither bf16 nor fp16 is enabled");
  }
  read_loss_scale(keys, training.loss_scale);
  const std::string path = "data_types.param_dtype";
  if (!keys.has(path) || keys.is_auto(path)) return;
  const std::string name(spec::name_of(training.precision));
  const std::optional<std::string> dtype = keys.text(path);
  if (dtype && *dtype != name) {
    keys.problem(path, cat("found ", keys.shown(path), ", but parameters are ", name, " by fp16 and bf16; remove it or enable the block"));
  }
}

}  // namespace sluice::app
