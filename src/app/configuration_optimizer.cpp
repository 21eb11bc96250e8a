// The optimizer, as DeepSpeed's block says or the Trainer's names; clipping and decay with it.

#include <algorithm>
#include <array>
#include <utility>

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

using spec::OptimizerKind;

/// Names of the parameters that each type has in DeepSpeed and PyTorch; another one is an error there as well.
struct OptimizerType {
  std::string_view name;  // in lower case
  OptimizerKind kind;
  std::string_view params;  // separated by spaces
};
constexpr std::string_view kAdamParams =
    "lr betas eps weight_decay adam_w_mode bias_correction amsgrad torch_adam fp32_optimizer_states set_grad_none foreach fused capturable "
    "differentiable maximize max_grad_norm";
constexpr auto kTypes = std::to_array<OptimizerType>({
    {"adamw", OptimizerKind::kAdamW, kAdamParams},
    {"adam", OptimizerKind::kAdamW, kAdamParams},
    {"sgd", OptimizerKind::kSgd, "lr momentum dampening weight_decay nesterov maximize foreach fused differentiable max_grad_norm"},
    {"lion", OptimizerKind::kLion, "lr betas weight_decay set_grad_none fp32_optimizer_states max_grad_norm"},
});

/// What DeepSpeed and PyTorch have beside those, and what to write instead.
constexpr auto kOtherTypes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"lamb", "AdamW"},  {"adagrad", "AdamW"},    {"muon", "AdamW"},       {"muadam", "Adam"},       {"muadamw", "AdamW"},
    {"musgd", "SGD"},   {"onebitadam", "AdamW"}, {"onebitlamb", "AdamW"}, {"zerooneadam", "AdamW"}, {"adamax", "AdamW"},
    {"nadam", "AdamW"}, {"radam", "AdamW"},      {"rmsprop", "AdamW"},    {"adadelta", "AdamW"},    {"rprop", "SGD"},
    {"asgd", "SGD"},    {"lbfgs", "SGD"},        {"sparseadam", "AdamW"}, {"adafactor", "AdamW"},
});

/// The Trainer's --optim. Paged ones keep their states elsewhere; the arithmetic is the same.
constexpr auto kTrainerTypes = std::to_array<std::pair<std::string_view, OptimizerKind>>({
    {"adamw_torch", OptimizerKind::kAdamW},
    {"adamw_torch_fused", OptimizerKind::kAdamW},
    {"adamw_torch_xla", OptimizerKind::kAdamW},
    {"adamw_torch_npu_fused", OptimizerKind::kAdamW},
    {"adamw_apex_fused", OptimizerKind::kAdamW},
    {"adamw_hf", OptimizerKind::kAdamW},
    {"paged_adamw_32bit", OptimizerKind::kAdamW},
    {"sgd", OptimizerKind::kSgd},
    {"lion_32bit", OptimizerKind::kLion},
    {"paged_lion_32bit", OptimizerKind::kLion},
});

const OptimizerType* find_type(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const OptimizerType& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : &*found;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void refuse_other_params(KeyTree& keys, const OptimizerType& type, const std::string& written_name) {
  const std::vector<std::string> known = words_of(type.params);
  for (const std::string& name : keys.names_in("optimizer.params")) {
    const std::string path = "optimizer.params." + name;
    if (find_key(path) == nullptr || !keys.has(path) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    keys.problem(path, cat("is no parameter of ", written_name, "; known: ", joined(known)));
  }
}

/// The type of the written block; AdamW where there is none or it is refused.
OptimizerKind read_written_type(Reading& reading) {
  KeyTree& keys = reading.keys;
  const std::string path = "optimizer.type";
  if (!keys.is_block("optimizer")) return OptimizerKind::kAdamW;  // already refused
  const std::optional<std::string> written = keys.text(path);
  if (!written) {
    if (!keys.has(path) && !keys.was_ignored(path)) keys.problem("optimizer", "has no type; write \"type\": \"AdamW\"");
    return OptimizerKind::kAdamW;
  }
  const std::string name = lower(*written);
  const OptimizerType* type = find_type(name);
  if (type == nullptr) {
    const auto other = std::find_if(kOtherTypes.begin(), kOtherTypes.end(), [&](const auto& each) { return each.first == name; });
    keys.problem(path, cat("\"", *written, "\" is ", other == kOtherTypes.end() ? "no optimizer that is known" : "not supported",
                           "; write one of AdamW, Adam, SGD, Lion",
                           other == kOtherTypes.end() ? std::string() : cat(" (", other->second, " is the nearest)")));
    return OptimizerKind::kAdamW;
  }
  refuse_other_params(keys, *type, *written);
  // "AdamW" is decoupled whatever adam_w_mode says.
  const bool in_gradient = keys.hinted_flag("optimizer.params.adam_w_mode") == false && name == "adam";
  return in_gradient ? OptimizerKind::kAdam : type->kind;
}

/// The Trainer's --optim; nothing where it is not given or refused.
std::optional<OptimizerKind> read_trainer_type(KeyTree& keys) {
  const std::optional<std::string> given = keys.trainer_text("optim");
  if (!given) return std::nullopt;
  const auto found = std::find_if(kTrainerTypes.begin(), kTrainerTypes.end(), [&](const auto& each) { return each.first == *given; });
  if (found != kTrainerTypes.end()) return found->second;
  keys.trainer_problem("optim", cat("found ", *given, ", which is not supported; give adamw_torch, sgd or lion_32bit"));
  return std::nullopt;
}

void read_betas(Reading& reading) {
  KeyTree& keys = reading.keys;
  spec::OptimizerSpec& optimizer = reading.config.training.optimizer;
  const std::string path = "optimizer.params.betas";
  const std::optional<double> given1 = keys.trainer_number("adam_beta1", 0, 1), given2 = keys.trainer_number("adam_beta2", 0, 1);
  if (!keys.has(path) || keys.is_auto(path)) {
    const bool is_open = keys.is_auto(path) && (!given1 || !given2);
    if (is_open && keys.trainer().empty()) {
      reading.result.missing_for_training.push_back(
          cat(keys.where(path), " is \"auto\" and nothing fills it; give --adam_beta1 and --adam_beta2 or write two numbers"));
    } else if (is_open) {
      optimizer.beta2 = 0.999;  // the Trainer's, also of Lion
    }
    optimizer.beta1 = given1.value_or(optimizer.beta1);
    optimizer.beta2 = given2.value_or(optimizer.beta2);
    if (is_open && !keys.trainer().empty()) {
      keys.moved_default(path, cat("[", optimizer.beta1, ", ", optimizer.beta2, "]"), "the Trainer's defaults where no flag says otherwise",
                         "\"auto\"");
    }
  } else if (const auto betas = keys.numbers(path, 2, 0, 1)) {
    optimizer.beta1 = (*betas)[0];
    optimizer.beta2 = (*betas)[1];
    if (given1 && *given1 != optimizer.beta1) keys.mismatch(path, "adam_beta1");
    if (given2 && *given2 != optimizer.beta2) keys.mismatch(path, "adam_beta2");
  }
  if (optimizer.beta1 >= 1 || optimizer.beta2 >= 1) {
    reading.result.problems.push_back(
        cat("the optimizer's betas are ", optimizer.beta1, " and ", optimizer.beta2, ", expected numbers below 1"));
  }
}

void read_sgd(KeyTree& keys, spec::OptimizerSpec& optimizer) {
  optimizer.momentum = keys.number("optimizer.params.momentum").value_or(0);
  optimizer.dampening = keys.number("optimizer.params.dampening", -kNoLimit).value_or(0);
  optimizer.nesterov = keys.flag("optimizer.params.nesterov").value_or(false);
  if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
    keys.problem("optimizer.params.nesterov", "needs a momentum above 0 and no dampening");
  }
}

void read_weight_decay(KeyTree& keys, spec::OptimizerSpec& optimizer) {
  const std::string path = "optimizer.params.weight_decay";
  const bool torch_adamw = keys.hinted_flag("optimizer.params.torch_adam") == true && optimizer.kind == OptimizerKind::kAdamW;
  if (torch_adamw && !keys.has(path) && !keys.trainer_has("weight_decay")) {
    optimizer.weight_decay = 0.01;
    keys.moved_default(path, "0.01", "as PyTorch's own AdamW has, which torch_adam asks for");
  } else if (const auto decay = keys.number_or_trainer(path, "weight_decay")) {
    optimizer.weight_decay = *decay;
  }
}

void read_decay_on(Reading& reading) {
  KeyTree& keys = reading.keys;
  spec::OptimizerSpec& optimizer = reading.config.training.optimizer;
  optimizer.decay_on = reading.has_optimizer_block() ? spec::DecayOn::kAll : spec::DecayOn::kMatrices;
  if (const auto asked = keys.one_of("sluice.weight_decay_on", {"matrices", "all"})) {
    optimizer.decay_on = *asked == "all" ? spec::DecayOn::kAll : spec::DecayOn::kMatrices;
  } else if (optimizer.weight_decay > 0 && reading.has_optimizer_block()) {
    keys.moved_default("sluice.weight_decay_on", "\"all\"", "as DeepSpeed does for a written optimizer block");
  } else if (optimizer.weight_decay > 0) {
    keys.moved_default("sluice.weight_decay_on", "\"matrices\"", "as the Trainer does for flags alone");
  }
}

}  // namespace

void read_optimizer(Reading& reading) {
  KeyTree& keys = reading.keys;
  spec::OptimizerSpec& optimizer = reading.config.training.optimizer;
  const std::optional<OptimizerKind> given = read_trainer_type(keys);
  if (reading.has_optimizer_block()) {
    optimizer.kind = read_written_type(reading);
    if (given && *given != optimizer.kind) keys.mismatch("optimizer.type", "optim");
    if (optimizer.kind == OptimizerKind::kLion) optimizer.beta2 = 0.99;
  } else {
    optimizer.kind = given.value_or(OptimizerKind::kAdamW);
  }
  if (optimizer.kind == OptimizerKind::kSgd) {
    read_sgd(keys, optimizer);
  } else {
    read_betas(reading);
    if (const auto eps = keys.number_or_trainer("optimizer.params.eps", "adam_epsilon")) optimizer.eps = *eps;
  }
  read_weight_decay(keys, optimizer);
  read_decay_on(reading);
  if (!keys.has("gradient_clipping") && !keys.trainer_has("max_grad_norm")) {
    optimizer.gradient_clipping = 1.0;
    keys.moved_default("gradient_clipping", "1.0", "DeepSpeed's newer default (before mid-2026: 0, no clipping)");
  } else if (const auto clipping = keys.number_or_trainer("gradient_clipping", "max_grad_norm")) {
    optimizer.gradient_clipping = *clipping;
  }
}

}  // namespace sluice::app
