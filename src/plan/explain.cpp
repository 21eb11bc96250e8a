#include "plan/explain.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "optim/policy.hpp"
#include "spec/json_text.hpp"

namespace sluice::plan {
namespace {

using Json = nlohmann::ordered_json;

std::string plain_words(const PlanRequest& request, const spec::Plan& plan, const Prediction& prediction) {
  static constexpr const char* kShards[] = {"every rank holds everything", "ranks share the optimizer state",
                                            "ranks share gradients and optimizer state",
                                            "ranks share parameters, gradients and optimizer state"};
  std::string text;
  if (request.mesh.data == 1) {
    text = "  one rank holds everything\n";
  } else {
    text = cat("  ", request.mesh.data, " ranks; zero_stage ", plan.zero_stage, ": ", kShards[plan.zero_stage], "\n");
  }
  if (prediction.frozen_parameters > 0) {
    text += cat("  trains ", format_count(prediction.parameters - prediction.frozen_parameters), " of ",
                format_count(prediction.parameters), " parameters; the others are frozen\n");
  }
  if (const spec::Precision precision = request.training.precision; precision != spec::Precision::kFp32) {
    text += cat("  ", spec::name_of(precision), ": working parameters, activations and saved tensors in ",
                size_of(spec::dtype_of(precision)), " bytes a number; master parameters",
                optim::moments_of(request.training.optimizer) > 0 ? ", gradients and moments" : " and gradients", " in f32\n");
  }
  text += cat("  ", plan.accumulation, plan.accumulation == 1 ? " micro-batch of " : " micro-batches of ", plan.micro_batch,
              plan.micro_batch == 1 ? " sequence" : " sequences", " a rank and step; ", plan.threads,
              plan.threads == 1 ? " thread" : " threads", " a rank\n");
  text += cat("  chunks of ", format_count(plan.chunk_elements), " parameters");
  if (plan.zero_stage == 3)
    text += cat("; ", format_count(plan.rcache_elements), " gathered at once, fetched ", plan.prefetch_segments, " half-layers ahead");
  const auto recomputed = std::count(plan.activations.begin(), plan.activations.end(), spec::Activation::kRecompute);
  text += recomputed == 0 ? "; nothing recomputed\n"
                          : cat("; ", recomputed, " of ", plan.activations.size() - 2, " half-layers recomputed in backward\n");
  switch (plan.update_mode) {
    case spec::UpdateMode::kAtEnd:
      text += "  parameters updated after the backward pass\n";
      break;
    case spec::UpdateMode::kNextForward:
      text += "  each chunk updated just before the next step needs it\n";
      break;
    case spec::UpdateMode::kInBackward:
      text += "  each chunk updated as soon as its gradient is complete\n";
      break;
  }
  return text;
}

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string tiers_text(const PlanRequest& request, const Prediction& p) {
  std::string text;
  for (int t = 0; t < spec::kTierCount; ++t) {
    const auto tier = static_cast<spec::Tier>(t);
    const std::int64_t bytes = p.arena_bytes[static_cast<std::size_t>(t)];
    if (bytes == 0) continue;
    text += cat("  ", spec::name_of(tier), " memory per rank: ", format_bytes(bytes));
    if (tier == spec::Tier::kDevice) {
      text += cat(" of ", format_bytes(request.budget.device_bytes));
      if (p.unplanned_bytes > 0) text += cat(", and ", format_bytes(p.unplanned_bytes), " outside the plan");
    }
    const char* separator = " (";
    for (const TagBytes& tag : p.tags) {
      if (tag.tier != tier) continue;
      text += cat(separator, schedule::name_of(tag.tag), " ", format_bytes(tag.bytes));
      separator = ", ";
    }
    if (tier == spec::Tier::kDevice && p.gap_bytes > 0) text += cat(separator, "between buffers ", format_bytes(p.gap_bytes));
    text += ")\n";
  }
  return text;
}

std::string hint_text(const PlanRequest& request, const PlanResult& result) {
  if (!result.hint) return {};
  const HintOutcome& hint = *result.hint;
  const std::string chosen = format_seconds(result.prediction.seconds);
  if (hint.followed) return cat("  your file's placement is the plan's\n");
  if (!hint.fits) {
    return cat("  your file: does not fit, ", format_bytes(hint.missing_bytes), " more than the ",
               format_bytes(request.budget.device_bytes), " given; chosen: ", chosen, " a step\n");
  }
  return cat("  your file: ", format_seconds(hint.seconds), " a step; chosen: ", chosen, "; --pin zero_optimization keeps yours\n");
}

}  // namespace

std::string explain(const PlanRequest& request, const PlanResult& result) {
  const Prediction& p = result.prediction;
  std::string text = cat("plan for ", request.model.name, " on ", request.machine.name, "\n", plain_words(request, result.plan, p),
                         tiers_text(request, p));
  text += cat("  predicted: ", format_seconds(p.seconds), " a step, ", number(p.tokens_per_second, p.tokens_per_second < 100 ? 1 : 0),
              " tokens a second; bound by ", schedule::name_of(p.bound), " (",
              number(100 * p.critical_seconds[static_cast<std::size_t>(p.bound)] / p.seconds, 0), " % of the step)\n");
  text += hint_text(request, result);
  if (!result.refused.empty()) text += "  not taken:\n";
  for (const Refusal& refusal : result.refused) text += cat("    ", describe(refusal.plan), ": ", refusal.reason, "\n");
  text += cat("  ", result.considered, " plans considered: ", result.too_large, " too large, ", result.bounded, " slower by their bound, ",
              result.reduced, " by a reduced graph, ", result.simulated, " simulated whole\n");
  return text;
}

std::string to_json(const PlanRequest& request, const PlanResult& result, const std::string& signature_json) {
  const Prediction& p = result.prediction;
  Json tiers = Json::object();
  for (int t = 0; t < spec::kTierCount; ++t) {
    const auto tier = static_cast<spec::Tier>(t);
    const std::int64_t bytes = p.arena_bytes[static_cast<std::size_t>(t)];
    if (bytes == 0) continue;
    Json tags = Json::object();
    for (const TagBytes& tag : p.tags) {
      if (tag.tier == tier) tags[std::string(schedule::name_of(tag.tag))] = tag.bytes;
    }
    tiers[std::string(spec::name_of(tier))] = {{"arena_bytes", bytes}, {"tags", tags}};
  }
  Json critical = Json::object(), busy = Json::object();
  for (int r = 0; r < schedule::kResourceCount; ++r)
    critical[std::string(schedule::name_of(static_cast<schedule::Resource>(r)))] = p.critical_seconds[static_cast<std::size_t>(r)];
  for (int l = 0; l < schedule::kLaneCount; ++l) {
    if (p.busy_seconds[static_cast<std::size_t>(l)] > 0)
      busy[std::string(schedule::name_of(static_cast<schedule::Lane>(l)))] = p.busy_seconds[static_cast<std::size_t>(l)];
  }
  Json json;
  json["plan"] = Json::parse(spec::to_json(result.plan));
  json["segments_between_agrees"] = result.segments_between_agrees;
  json["prediction"] = {{"seconds", p.seconds},
                        {"tokens_per_second", p.tokens_per_second},
                        {"bound", std::string(schedule::name_of(p.bound))},
                        {"critical_seconds", critical},
                        {"busy_seconds", busy},
                        {"tiers", tiers},
                        {"unplanned_bytes", p.unplanned_bytes},
                        {"tasks", p.tasks}};
  if (result.hint) {
    const HintOutcome& hint = *result.hint;
    json["hint"] = {{"followed", hint.followed}, {"fits", hint.fits}, {"seconds", hint.seconds}, {"missing_bytes", hint.missing_bytes}};
    if (hint.plan) json["hint"]["plan"] = Json::parse(spec::to_json(*hint.plan));
  }
  Json refused = Json::array();
  for (const Refusal& refusal : result.refused) {
    refused.push_back({{"plan", describe(refusal.plan)},
                       {"reason", refusal.reason},
                       {"missing_bytes", refusal.missing_bytes},
                       {"seconds", refusal.seconds}});
  }
  json["refused"] = refused;
  json["search"] = {{"considered", result.considered},
                    {"too_large", result.too_large},
                    {"bounded", result.bounded},
                    {"reduced", result.reduced},
                    {"simulated", result.simulated}};
  json["machine"] = request.machine.name;
  json["budget"] = {{"device_bytes", request.budget.device_bytes}, {"host_bytes", request.budget.host_bytes}};
  json["graph_hash"] = Hash::hex_of(p.graph_hash);
  json["signature"] = Json::parse(signature_json);
  return json.dump(2) + "\n";
}

PlanRecord plan_record_from_json(const std::string& text, const std::string& source) {
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(source, problem);
  const Json json = Json::parse(text);
  const auto member = [&](const Json& object, const char* key) -> const Json& {
    if (!object.is_object() || !object.contains(key)) throw FormatError(source, cat("key \"", key, "\" is missing"));
    return object.at(key);
  };
  const auto refuse = [&](const char* key, const char* expected) {
    throw FormatError(source, cat("key \"", key, "\": expected ", expected));
  };
  PlanRecord record;
  record.plan = spec::plan_from_json(member(json, "plan").dump(), source);
  const Json& between = member(json, "segments_between_agrees");
  if (!between.is_number_integer() || between.get<std::int64_t>() < 0 || between.get<std::int64_t>() > 1'000'000) {
    refuse("segments_between_agrees", "a whole number from 0 to 1000000");
  }
  record.segments_between_agrees = between.get<int>();
  const Json& seconds = member(member(json, "prediction"), "seconds");
  if (!seconds.is_number()) refuse("prediction.seconds", "a number");
  record.predicted_seconds = seconds.get<double>();
  const Json& hash = member(json, "graph_hash");
  if (!hash.is_string()) refuse("graph_hash", "a text");
  record.graph_hash = hash.get<std::string>();
  record.signature = spec::signature_from_json(member(json, "signature").dump(), source);
  return record;
}

}  // namespace sluice::plan
