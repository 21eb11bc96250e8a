#include "optim/policy.hpp"

#include <array>
#include <regex>

#include "base/check.hpp"
#include "model/family.hpp"

namespace sluice::optim {

namespace {

/// Whether each parameter is trained.
std::vector<bool> find_trained(const model::Model& model, const std::vector<std::string>& expressions) {
  std::vector<bool> trained(model.params.size(), expressions.empty());
  const model::Family* const family = model::find_family(model.spec.family);
  const std::string prefix(family != nullptr ? family->prefix : std::string_view());
  for (const std::string& text : expressions) {
    std::regex expression;
    try {
      expression.assign(text, std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
      throw RequestError(cat("sluice.trainable: \"", text, "\" is no regular expression: ", error.what()));
    }
    bool finds_any = false;
    for (std::size_t p = 0; p < model.params.size(); ++p) {
      const std::string& name = model.params[p].name;
      if (!std::regex_search(name, expression) && !std::regex_search(prefix + name, expression)) continue;
      trained[p] = finds_any = true;
    }
    if (finds_any) continue;
    const std::size_t middle = model.params.size() / 2;
    throw RequestError(cat("sluice.trainable: \"", text, "\" finds none of the ", model.params.size(), " parameters of ", model.spec.name,
                           ", which are named as ", model.params.front().name, ", ", model.params[middle].name, ", ",
                           model.params.back().name, prefix.empty() ? "" : cat(" (or with ", prefix, " before it)"),
                           "; correct or remove it"));
  }
  return trained;
}

}  // namespace

Grouping group_parameters(const model::Model& model, const spec::TrainingSpec& training) {
  const spec::OptimizerSpec& optimizer = training.optimizer;
  const std::vector<bool> trained = find_trained(model, training.trainable);
  enum Class { kDecays, kPlain, kFrozen };
  const auto class_of = [&](std::size_t p) {
    if (!trained[p]) return kFrozen;
    return optimizer.weight_decay != 0 && (optimizer.decay_on == spec::DecayOn::kAll || model.params[p].matrix) ? kDecays : kPlain;
  };
  Grouping grouping;
  grouping.storage = spec::dtype_of(training.precision);
  grouping.moments = moments_of(optimizer);
  std::array<int, 3> index_of{-1, -1, -1};
  for (const Class each : {kDecays, kPlain, kFrozen}) {
    for (std::size_t p = 0; p < trained.size() && index_of[each] < 0; ++p) {
      if (class_of(p) != each) continue;
      index_of[each] = static_cast<int>(grouping.groups.size());
      grouping.groups.push_back({each == kDecays ? optimizer.weight_decay : 0.0, each != kFrozen});
    }
  }
  for (std::size_t p = 0; p < trained.size(); ++p) grouping.group_of.push_back(index_of[class_of(p)]);
  return grouping;
}

Grouping freeze_parameters(const model::Model& model, spec::Precision precision) {
  return {
      .groups = {{0.0, false}}, .group_of = std::vector<int>(model.params.size(), 0), .storage = spec::dtype_of(precision), .moments = 0};
}

int moments_of(const spec::OptimizerSpec& optimizer) {
  switch (optimizer.kind) {
    case spec::OptimizerKind::kAdamW:
    case spec::OptimizerKind::kAdam:
      return 2;
    case spec::OptimizerKind::kSgd:
      return optimizer.momentum > 0 ? 1 : 0;
    case spec::OptimizerKind::kLion:
      return 1;
  }
  SLUICE_CHECK(false, "optimizer kind ", static_cast<int>(optimizer.kind));
}

bool skips_overflow(const spec::TrainingSpec& training) {
  return training.precision == spec::Precision::kFp16 || (training.precision == spec::Precision::kBf16 && training.skips_overflow);
}

bool needs_norm(const spec::TrainingSpec& training) {
  return training.optimizer.gradient_clipping > 0 || skips_overflow(training);
}

float clip_factor(double norm, double max_norm) {
  SLUICE_CHECK(max_norm >= 0, "max norm ", max_norm);
  if (max_norm == 0) return 1.0f;
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1.0f : static_cast<float>(factor);  // a NaN norm stays NaN, never a factor of 1
}

}  // namespace sluice::optim
