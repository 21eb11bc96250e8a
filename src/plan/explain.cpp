#include "plan/explain.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "optim/policy.hpp"
#include "plan/workbench.hpp"
#include "schedule/price.hpp"
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
    static constexpr const char* kLeaves[] = {"states may leave the device", "states may leave the device",
                                              "states and gradients may leave the device", "all of its state may leave the device"};
    text = plan.homes.empty() ? "  one rank holds everything\n"
                              : cat("  one rank; zero_stage ", plan.zero_stage, ": ", kLeaves[plan.zero_stage], "\n");
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
              plan.threads == 1 ? " thread" : " threads", " a rank",
              plan.order == spec::MicroBatchOrder::kLayerByLayer ? "; each half-layer for all of them before the next\n" : "\n");
  text += cat("  chunks of ", format_count(plan.chunk_elements), " parameters");
  if (plan.zero_stage == 3)
    text += cat("; ", format_count(plan.rcache_elements), " gathered at once, fetched ", plan.prefetch_segments,
                plan.prefetch_segments == 1 ? " half-layer ahead" : " half-layers ahead");
  const auto segments = [&](spec::Activation activation) {
    return std::count(plan.activations.begin(), plan.activations.end(), activation);
  };
  const auto recomputed = segments(spec::Activation::kRecompute);
  text += recomputed == 0 ? "; nothing recomputed\n"
                          : cat("; ", recomputed, " of ", plan.activations.size() - 2, " half-layers recomputed in backward\n");
  for (const spec::Activation activation : {spec::Activation::kHost, spec::Activation::kDisk}) {
    if (const auto moved = segments(activation); moved > 0) {
      text += cat("  what ", moved, " of ", plan.activations.size() - 2, " half-layers save for backward waits ",
                  activation == spec::Activation::kHost ? "in host memory\n" : "on disk\n");
    }
  }
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

int ranks_per_node(const PlanRequest& request) {
  return static_cast<int>(std::min<std::int64_t>(std::max(1, request.machine.ranks_per_node), request.mesh.data));
}

std::string tiers_text(const PlanRequest& request, const Prediction& p) {
  std::string text;
  const int ranks = ranks_per_node(request);
  for (int t = 0; t < spec::kTierCount; ++t) {
    const auto tier = static_cast<spec::Tier>(t);
    const std::int64_t bytes = p.arena_bytes[static_cast<std::size_t>(t)];
    if (bytes == 0) continue;
    text += cat("  ", spec::name_of(tier), tier == spec::Tier::kDisk ? "" : " memory", " per rank: ", format_bytes(bytes));
    const std::int64_t given = tier == spec::Tier::kHost ? request.budget.host_bytes : request.budget.disk_bytes;
    if (tier == spec::Tier::kDevice) {
      text += cat(" of ", format_bytes(request.budget.device_bytes));
      if (p.unplanned_bytes > 0) text += cat(", and ", format_bytes(p.unplanned_bytes), " outside the arenas");
    } else if (given > 0) {
      text += cat(", a node ", format_bytes(bytes * ranks), " of ", format_bytes(given));
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
  if (p.disk_read_bytes + p.disk_write_bytes > 0) {
    const std::int64_t a_day = schedule::bytes_a_day(p.disk_write_bytes * ranks, p.seconds);
    text +=
        cat("  disk traffic per rank and step: ", format_bytes(p.disk_read_bytes), " read, ", format_bytes(p.disk_write_bytes),
            " written; a node writes ", format_bytes(a_day), " a day, which wears its drives (two copies of every state stand there)\n");
  }
  return text;
}

std::int64_t chunks_in(const spec::Plan& plan, spec::Tier spec::ChunkHomes::*plane, spec::Tier tier) {
  return std::count_if(plan.homes.begin(), plan.homes.end(), [&](const spec::ChunkHomes& home) { return home.*plane == tier; });
}

/// What leaves the device, and why.
std::string homes_text(const PlanRequest& request, const PlanResult& result) {
  const spec::Plan& plan = result.plan;
  if (plan.homes.empty()) return {};
  std::string text;
  const auto line = [&](const char* what, spec::Tier spec::ChunkHomes::*plane, const std::string& why) {
    const std::int64_t on_host = chunks_in(plan, plane, spec::Tier::kHost), on_disk = chunks_in(plan, plane, spec::Tier::kDisk);
    if (on_host + on_disk == 0) return;
    text += cat("  ", what, " of ");
    if (on_host > 0) text += cat(on_host, " of ", plan.homes.size(), " chunks in host memory");
    if (on_disk > 0)
      text += cat(on_host > 0 ? ", of " : "", on_disk, on_host > 0 ? "" : cat(" of ", plan.homes.size(), " chunks"), " on disk");
    text += cat(why, "\n");
  };
  std::string why;
  if (request.pins.states && *request.pins.states != spec::Tier::kDevice) {
    why = ": pinned";
  } else if (result.device_bytes_for_states >= result.state_bytes) {
    why = ": with their parameters";
  } else {
    const bool uses_disk = chunks_in(plan, &spec::ChunkHomes::states, spec::Tier::kDisk) > 0;
    why = cat(": all of them need ", format_bytes(result.state_bytes), " a rank, the device has ",
              format_bytes(result.device_bytes_for_states), " left for them",
              uses_disk ? cat(", host memory ", format_bytes(request.budget.host_bytes / ranks_per_node(request)), " for everything") : "");
  }
  line("states", &spec::ChunkHomes::states, why);
  const char* no_room = ": what passes through the device leaves no room for all of them";
  const bool gradients_on_disk = chunks_in(plan, &spec::ChunkHomes::gradient, spec::Tier::kDisk) > 0;
  line("gradients", &spec::ChunkHomes::gradient,
       gradients_on_disk ? ": those wait there for the norm, host memory has no room for them" : no_room);
  line("working parameters", &spec::ChunkHomes::working, request.pins.working ? ": pinned" : no_room);
  return text;
}

/// The prices behind a decision about tiers: bytes a second of one rank.
struct Rates {
  double upload, download, host_update, device_update, disk_read, disk_write;
};
Rates rates_of(const PlanRequest& request, const spec::Plan& plan) {
  const schedule::PriceList list(request.machine, static_cast<int>(request.mesh.data), plan.threads);
  const auto rate = [&](const schedule::Price& price, double bytes) { return bytes / list.alone_seconds(price); };
  constexpr double kBytes = 1 << 30;
  const optim::Grouping adam;
  constexpr double kUpdateBytes = 28;  // an element
  const auto elements = static_cast<std::int64_t>(kBytes / kUpdateBytes);
  return {rate(list.move(schedule::Lane::kUpload, std::int64_t{1} << 30, false), kBytes),
          rate(list.move(schedule::Lane::kDownload, std::int64_t{1} << 30, false), kBytes),
          rate(list.update(elements, adam, true), kBytes),
          rate(list.update(elements, adam, false), kBytes),
          request.machine.disk.read_bytes_per_second / ranks_per_node(request),
          request.machine.disk.write_bytes_per_second / ranks_per_node(request)};
}

std::string cache_text(const PlanRequest& request, const PlanResult& result) {
  if (!result.cache) return {};
  const CacheDecision& cache = *result.cache;
  const Rates rates = rates_of(request, result.plan);
  const auto rate = [](double bytes) { return cat(format_bytes(static_cast<std::int64_t>(bytes)), "/s"); };
  const double gain = (cache.states_first_seconds - cache.rcache_first_seconds) * (cache.takes_rcache ? 1 : -1);
  return cat(
      "  gathered parameters before states: ", format_seconds(cache.rcache_first_seconds), " a step (",
      format_count(cache.rcache_first.rcache_elements), " gathered); states before them: ", format_seconds(cache.states_first_seconds),
      " (", format_count(cache.states_first.rcache_elements), gain > 0 ? "); so " : "), as good as equal; ",
      cache.takes_rcache ? "the parameters" : "the states", " come first here, where a rank uploads ", rate(rates.upload), ", downloads ",
      rate(rates.download), " and updates ", rate(rates.host_update), " on the host, ", rate(rates.device_update), " on the device\n");
}

/// The pins that keep what the file says about placement and the plan beat.
std::string pins_text(const PlanRequest& request) {
  const Choices &hints = request.hints, &pins = request.pins;
  const auto is_open = [](const auto& hint, const auto& pin) { return hint && !pin; };
  std::string text;
  if (is_open(hints.zero_stage, pins.zero_stage) || is_open(hints.states, pins.states) || is_open(hints.working, pins.working))
    text = "--pin zero_optimization";
  if (is_open(hints.host_activations, pins.host_activations))
    text += cat(text.empty() ? "" : " ", "--pin activation_checkpointing.cpu_checkpointing");
  return text;
}

std::string hint_text(const PlanRequest& request, const PlanResult& result) {
  if (!result.hint) return {};
  const HintOutcome& hint = *result.hint;
  const std::string chosen = format_seconds(result.prediction.seconds);
  if (hint.followed) return cat("  your file's placement is the plan's\n");
  if (!hint.plan) return cat("  your file: can't be followed, ", hint.reason, "; chosen: ", chosen, " a step\n");
  if (!hint.fits) return cat("  your file: does not fit, ", hint.reason, "; chosen: ", chosen, " a step\n");
  const std::string pins = pins_text(request);
  return cat("  your file: ", format_seconds(hint.seconds), " a step; chosen: ", chosen,
             pins.empty() ? "" : cat("; ", pins, " keeps yours"), "\n");
}

/// Those tiers that have some.
Json by_tier(const std::array<std::int64_t, spec::kTierCount>& bytes) {
  Json tiers = Json::object();
  for (int t = 0; t < spec::kTierCount; ++t) {
    const std::int64_t of_tier = bytes[static_cast<std::size_t>(t)];
    if (of_tier > 0) tiers[std::string(spec::name_of(static_cast<spec::Tier>(t)))] = of_tier;
  }
  return tiers;
}

}  // namespace

std::string explain(const PlanRequest& request, const PlanResult& result) {
  const Prediction& p = result.prediction;
  std::string text = cat("plan for ", request.model.name, " on ", request.machine.name, "\n", plain_words(request, result.plan, p),
                         tiers_text(request, p), homes_text(request, result), cache_text(request, result));
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
    tiers[std::string(spec::name_of(tier))] = {{"arena_bytes", bytes}, {"node_bytes", bytes * ranks_per_node(request)}, {"tags", tags}};
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
                        {"disk", {{"read_bytes", p.disk_read_bytes}, {"write_bytes", p.disk_write_bytes}}},
                        {"unplanned_bytes", p.unplanned_bytes},
                        {"tasks", p.tasks}};
  if (result.hint) {
    const HintOutcome& hint = *result.hint;
    json["hint"] = {
        {"followed", hint.followed}, {"fits", hint.fits}, {"seconds", hint.seconds}, {"missing_bytes", by_tier(hint.missing_bytes)}};
    if (!hint.reason.empty()) json["hint"]["reason"] = hint.reason;
    if (hint.plan) json["hint"]["plan"] = Json::parse(spec::to_json(*hint.plan));
  }
  if (!result.plan.homes.empty()) {
    Json homes = Json::object();
    for (const auto& [kind, plane] : {std::pair{"states", &spec::ChunkHomes::states}, std::pair{"gradients", &spec::ChunkHomes::gradient},
                                      std::pair{"parameters", &spec::ChunkHomes::working}}) {
      for (int t = 0; t < spec::kTierCount; ++t) {
        const auto tier = static_cast<spec::Tier>(t);
        homes[kind][std::string(spec::name_of(tier))] = chunks_in(result.plan, plane, tier);
      }
    }
    const Rates rates = rates_of(request, result.plan);
    json["moves"] = {{"chunks", homes},
                     {"state_bytes", result.state_bytes},
                     {"device_bytes_for_states", result.device_bytes_for_states},
                     {"bytes_per_second",
                      {{"upload", rates.upload},
                       {"download", rates.download},
                       {"host_update", rates.host_update},
                       {"device_update", rates.device_update},
                       {"disk_read", rates.disk_read},
                       {"disk_write", rates.disk_write}}}};
  }
  if (result.cache) {
    json["cache"] = {
        {"parameters_first", {{"seconds", result.cache->rcache_first_seconds}, {"plan", describe(result.cache->rcache_first)}}},
        {"states_first", {{"seconds", result.cache->states_first_seconds}, {"plan", describe(result.cache->states_first)}}}};
  }
  Json refused = Json::array();
  for (const Refusal& refusal : result.refused) {
    refused.push_back({{"plan", describe(refusal.plan)},
                       {"reason", refusal.reason},
                       {"missing_bytes", by_tier(refusal.missing_bytes)},
                       {"seconds", refusal.seconds}});
  }
  json["refused"] = refused;
  json["search"] = {{"considered", result.considered},
                    {"too_large", result.too_large},
                    {"bounded", result.bounded},
                    {"reduced", result.reduced},
                    {"simulated", result.simulated}};
  json["machine"] = request.machine.name;
  json["budget"] = {
      {"device_bytes", request.budget.device_bytes}, {"host_bytes", request.budget.host_bytes}, {"disk_bytes", request.budget.disk_bytes}};
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
  if (!json.is_object() || !json.contains("plan")) {
    throw FormatError(source,
                      "key \"plan\" is missing, so this is no plan; give the plan.json of a run, or what sluice plan --json printed");
  }
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
  // Plans of before there was a disk tier say nothing of it.
  if (const Json& prediction = json.at("prediction"); prediction.contains("disk")) {
    const Json& disk = prediction.at("disk");
    const Json &read = member(disk, "read_bytes"), &written = member(disk, "write_bytes");
    if (!read.is_number_integer() || !written.is_number_integer()) refuse("prediction.disk", "whole numbers of bytes");
    record.disk_read_bytes = read.get<std::int64_t>();
    record.disk_write_bytes = written.get<std::int64_t>();
  }
  if (const Json& prediction = json.at("prediction"); prediction.contains("unplanned_bytes")) {
    const Json& unplanned = prediction.at("unplanned_bytes");
    if (!unplanned.is_number_integer() || unplanned.get<std::int64_t>() < 0)
      refuse("prediction.unplanned_bytes", "a whole number of bytes");
    record.unplanned_bytes = unplanned.get<std::int64_t>();
  }
  const Json& hash = member(json, "graph_hash");
  if (!hash.is_string()) refuse("graph_hash", "a text");
  record.graph_hash = hash.get<std::string>();
  record.signature = spec::signature_from_json(member(json, "signature").dump(), source);
  return record;
}

std::string plan_problem(const spec::Plan& plan, const PlanRequest& request) {
  Workbench bench(request);
  const std::size_t segments = bench.model().segments.size();
  if (plan.activations.size() != segments)
    return cat("\"activations\" has ", plan.activations.size(), " entries, the model ", segments, " segments");
  if (plan.zero_stage < 0 || plan.zero_stage > 3) return cat("\"zero_stage\" is ", plan.zero_stage, ", expected 0 to 3");
  if (plan.chunk_elements <= 0 || plan.chunk_elements % chunks::kBlock != 0)
    return cat("\"chunk_elements\" is ", plan.chunk_elements, ", expected a multiple of ", chunks::kBlock);
  if (plan.prefetch_segments < 0) return cat("\"prefetch_segments\" is ", plan.prefetch_segments, ", expected 0 or more");
  if (plan.state_prefetch < 0) return cat("\"state_prefetch\" is ", plan.state_prefetch, ", expected 0 or more");
  if (plan.order == spec::MicroBatchOrder::kLayerByLayer && plan.zero_stage < 2)
    return cat("\"order\" is layer_by_layer with zero_stage ", plan.zero_stage,
               ", which adds up gradients in another order; expected stage 2 or 3");
  if (plan.update_mode == spec::UpdateMode::kInBackward && optim::needs_norm(request.training))
    return "it updates in backward, which can neither clip nor skip an overflow";
  if (!bench.agrees(plan, request.pins)) return "it differs from what is pinned; unpin that or leave the plan out";
  const chunks::ChunkLayout& layout = bench.layout(plan.chunk_elements);
  if (!plan.homes.empty() && plan.homes.size() != layout.chunks().size())
    return cat("\"homes\" has ", plan.homes.size(), " entries, chunks of ", plan.chunk_elements, " elements are ", layout.chunks().size());
  for (std::size_t c = 0; c < plan.homes.size(); ++c) {
    const spec::ChunkHomes& home = plan.homes[c];
    const auto refuse = [&](const char* what, spec::Tier tier, const std::string& rule) {
      return cat("\"homes\": chunk ", c, " has its ", what, " on ", spec::name_of(tier), ", ", rule);
    };
    if (home.working != spec::Tier::kDevice && plan.zero_stage != 3)
      return refuse("working parameters", home.working, cat("which needs zero_stage 3, not ", plan.zero_stage));
    if (!layout.trains(layout.chunks()[c])) continue;
    if (home.gradient == spec::Tier::kDisk && plan.update_mode == spec::UpdateMode::kInBackward)
      return refuse("gradient", home.gradient, "where updates in backward use it up before it would get there");
    if (home.gradient != spec::Tier::kDevice && plan.zero_stage < 2)
      return refuse("gradient", home.gradient, cat("which needs zero_stage 2 or 3, not ", plan.zero_stage));
    if (home.states < home.working || home.states < home.gradient)
      return refuse("states", home.states, "a faster tier than its working parameters or gradient");
  }
  return {};
}

}  // namespace sluice::plan
