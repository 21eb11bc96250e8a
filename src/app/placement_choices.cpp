#include "app/placement_choices.hpp"

#include <algorithm>
#include <optional>

#include "base/text.hpp"

namespace sluice::app {
namespace {

std::optional<spec::Tier> tier_of(const OffloadHint& hint) {
  if (hint.device == "none") return spec::Tier::kDevice;
  if (hint.device == "cpu") return spec::Tier::kHost;
  if (hint.device == "nvme") return spec::Tier::kDisk;
  return std::nullopt;
}

plan::Choices written_choices(const Configuration& configuration) {
  const Hints& hints = configuration.hints;
  plan::Choices choices;
  if (hints.zero_stage) choices.zero_stage = static_cast<int>(*hints.zero_stage);
  choices.working = tier_of(hints.offload_param);
  choices.states = tier_of(hints.offload_optimizer);
  choices.host_activations = hints.activations.on_host;
  choices.recompute = hints.activations.recompute;
  return choices;
}

/// States never stand nearer than their parameters, which DeepSpeed would allow.
plan::Choices consistent(plan::Choices choices) {
  if (choices.working && choices.states) choices.states = std::max(*choices.states, *choices.working);
  return choices;
}

bool is_of_aio(std::string_view pin) {
  return pin == "aio" || pin == "aio.block_size" || pin == "aio.queue_depth";
}

/// What the file says under that key; none: it isn't one that can be pinned.
std::optional<plan::Choices> written_under(const Configuration& configuration, std::string_view pin) {
  const plan::Choices written = written_choices(configuration);
  const bool whole = pin == "zero_optimization", stage = pin == "zero_optimization.stage";
  const bool optimizer = pin.starts_with("zero_optimization.offload_optimizer") || pin == "zero_optimization.cpu_offload";
  const bool param = pin.starts_with("zero_optimization.offload_param") || pin.starts_with("zero_optimization.cpu_offload_param");
  const bool activations = pin == "activation_checkpointing" || pin == "activation_checkpointing.cpu_checkpointing";
  if (!whole && !stage && !optimizer && !param && !activations && !is_of_aio(pin)) return std::nullopt;
  plan::Choices kept;
  if (whole || stage) kept.zero_stage = written.zero_stage;
  if (whole || optimizer) kept.states = written.states;
  if (whole || param) kept.working = written.working;
  if (activations) kept.host_activations = written.host_activations;
  return kept;
}

}  // namespace

plan::Choices hinted_choices(const Configuration& configuration) {
  plan::Choices choices = written_choices(configuration);
  // Said at start: without a path nothing goes to disk.
  if (configuration.nvme_paths.empty()) {
    for (std::optional<spec::Tier>* tier : {&choices.working, &choices.states}) {
      if (*tier == spec::Tier::kDisk) tier->reset();
    }
  }
  return consistent(choices);
}

plan::Choices pinned_choices(const Configuration& configuration) {
  plan::Choices choices;
  for (const std::string& pin : configuration.pins) {
    const plan::Choices kept = written_under(configuration, pin).value_or(plan::Choices{});
    if (kept.zero_stage) choices.zero_stage = kept.zero_stage;
    if (kept.states) choices.states = kept.states;
    if (kept.working) choices.working = kept.working;
    if (kept.host_activations) choices.host_activations = kept.host_activations;
  }
  return consistent(choices);
}

std::string pin_problem(const Configuration& configuration, std::string_view pin) {
  const std::optional<plan::Choices> kept = written_under(configuration, pin);
  if (!kept) {
    return "can't be pinned; known: zero_optimization, its stage, offload_param and offload_optimizer, "
           "activation_checkpointing.cpu_checkpointing, aio. A whole plan is kept with --plan FILE";
  }
  const AioHint& aio = configuration.hints.aio;
  if (is_of_aio(pin) ? !aio.block_bytes && !aio.queue_depth : kept->empty())
    return "the configuration says nothing there that could be kept";
  if ((kept->states == spec::Tier::kDisk || kept->working == spec::Tier::kDisk) && configuration.nvme_paths.empty()) {
    const char* block = kept->states == spec::Tier::kDisk ? "zero_optimization.offload_optimizer" : "zero_optimization.offload_param";
    return cat(block, ".device is nvme, but no path is given; give ", block, ".nvme_path or --nvme-path DIR");
  }
  return {};
}

bool has_pin(const Configuration& configuration, std::initializer_list<std::string_view> keys) {
  return std::any_of(configuration.pins.begin(), configuration.pins.end(),
                     [&](const std::string& pin) { return std::find(keys.begin(), keys.end(), pin) != keys.end(); });
}

}  // namespace sluice::app
