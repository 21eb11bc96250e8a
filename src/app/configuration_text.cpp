#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "app/configuration.hpp"
#include "app/key_rules.hpp"
#include "base/check.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json model_json(const Configuration& configuration) {
  Json model = Json::object();
  if (!configuration.preset.empty()) model["preset"] = configuration.preset;
  if (!configuration.model_path.empty()) model["path"] = configuration.model_path;
  model["init"] = configuration.init == Init::kWeights ? "weights" : "scratch";
  return model;
}

Json data_json(const Configuration& configuration) {
  constexpr std::array<const char*, 2> kPackings{"stream", "pad"};
  constexpr std::array<const char*, 3> kOverlong{"error", "truncate", "skip"}, kInvalid{"error", "replace", "skip"};
  return {{"train", configuration.train_data},
          {"valid", configuration.valid_data},
          {"valid_fraction", configuration.valid_fraction},
          {"order", configuration.order == DataOrder::kSequential ? "sequential" : "shuffled"},
          {"tokenizer", configuration.tokenizer},
          {"chat_template", configuration.chat_template},
          {"text_key", configuration.text_key},
          {"packing", kPackings.at(static_cast<std::size_t>(configuration.packing))},
          {"document_attention", configuration.training.document_attention},
          {"overlong", kOverlong.at(static_cast<std::size_t>(configuration.overlong))},
          {"invalid_utf8", kInvalid.at(static_cast<std::size_t>(configuration.invalid_utf8))}};
}

Json offload_json(const OffloadHint& hint) {
  return {{"device", hint.device},
          {"nvme_path", hint.nvme_path},
          {"pin_memory", optional_json(hint.pin_memory)},
          {"buffer_count", optional_json(hint.buffer_count)},
          {"buffer_elements", optional_json(hint.buffer_elements)},
          {"max_host_elements", optional_json(hint.max_host_elements)},
          {"ratio", optional_json(hint.ratio)},
          {"pipeline_read", optional_json(hint.pipeline_read)},
          {"pipeline_write", optional_json(hint.pipeline_write)}};
}

Json hints_json(const Hints& hints) {
  return {{"zero_stage", optional_json(hints.zero_stage)},
          {"offload_optimizer", offload_json(hints.offload_optimizer)},
          {"offload_param", offload_json(hints.offload_param)},
          {"prefetch_elements", optional_json(hints.prefetch_elements)},
          {"max_live_elements", optional_json(hints.max_live_elements)},
          {"reduce_elements", optional_json(hints.reduce_elements)},
          {"sub_group_elements", optional_json(hints.sub_group_elements)},
          {"activations",
           {{"recompute", optional_json(hints.activations.recompute)},
            {"partition", optional_json(hints.activations.partition)},
            {"on_host", optional_json(hints.activations.on_host)},
            {"number_checkpoints", optional_json(hints.activations.number_checkpoints)}}},
          {"aio",
           {{"block_bytes", optional_json(hints.aio.block_bytes)},
            {"queue_depth", optional_json(hints.aio.queue_depth)},
            {"threads", optional_json(hints.aio.threads)},
            {"single_submit", optional_json(hints.aio.single_submit)},
            {"overlap_events", optional_json(hints.aio.overlap_events)}}}};
}

std::string resume_text(const Configuration& configuration) {
  switch (configuration.resume) {
    case ResumeMode::kAuto:
      return "auto";
    case ResumeMode::kNever:
      return "never";
    case ResumeMode::kPath:
      return configuration.resume_path;
  }
  SLUICE_CHECK(false, "resume mode ", static_cast<int>(configuration.resume));
}

}  // namespace

std::string name_of(KeyClass key_class) {
  switch (key_class) {
    case KeyClass::kHonoured:
      return "honoured";
    case KeyClass::kHint:
      return "hint";
    case KeyClass::kPerformanceOnly:
      return "performance only";
    case KeyClass::kIgnored:
      return "ignored";
    case KeyClass::kRefused:
      return "refused";
    case KeyClass::kMovedDefault:
      return "moved default";
  }
  SLUICE_CHECK(false, "key class ", static_cast<int>(key_class));
}

std::string to_json(const Configuration& configuration) {
  Json json;
  json["source"] = configuration.source;
  json["model"] = model_json(configuration);
  json["data"] = data_json(configuration);
  json["steps"] = optional_json(configuration.steps);
  json["epochs"] = optional_json(configuration.epochs);
  json["training"] = Json::parse(spec::to_json(configuration.training));
  json["mesh"] = Json::parse(spec::to_json(configuration.mesh));
  json["output"] = configuration.output;
  json["device"] = configuration.device;
  json["threads"] = configuration.threads;
  json["memory"] = {{"device", optional_json(configuration.device_memory_bytes)},
                    {"host", optional_json(configuration.host_memory_bytes)},
                    {"nvme", optional_json(configuration.nvme_space_bytes)}};
  json["nvme_path"] = configuration.nvme_paths;
  json["nvme_network"] = configuration.nvme_network;
  json["checkpoint"] = {
      {"interval", configuration.checkpoint_interval}, {"keep", configuration.checkpoint_keep}, {"best", configuration.checkpoint_best}};
  json["evaluate"] = {{"interval", configuration.evaluate_interval}};
  json["print_interval"] = configuration.print_interval;
  json["export"] = configuration.export_best ? Json("best") : Json(configuration.export_model);
  json["resume"] = resume_text(configuration);
  json["plan"] = configuration.plan_file;
  json["pin"] = configuration.pins;
  json["hints"] = hints_json(configuration.hints);
  json["notes"] = configuration.notes;
  return dumped(json);
}

std::string describe(const Examination& examination) {
  std::size_t width = 0;
  for (const KeyReport& key : examination.configuration.keys) width = std::max(width, name_of(key.key_class).size());
  std::string text;
  for (const KeyReport& key : examination.configuration.keys) {
    std::string name = name_of(key.key_class);
    name.resize(width, ' ');
    text += cat(name, "  ", key.path, " = ", key.value, key.note.empty() ? std::string() : cat("  (", key.note, ")"), "\n");
  }
  for (const std::string& problem : examination.problems) text += cat("error: ", problem, "\n");
  for (const std::string& missing : examination.missing_for_plan) text += cat("asked for: ", missing, "\n");
  for (const std::string& missing : examination.missing_for_training) text += cat("asked for: ", missing, "\n");
  const std::size_t asked = examination.missing_for_plan.size() + examination.missing_for_training.size();
  text += cat(examination.problems.size(), examination.problems.size() == 1 ? " error" : " errors", ", ", asked,
              asked == 1 ? " thing" : " things", " left to give on the command line or in the file\n");
  return text;
}

std::string to_json(const Examination& examination) {
  Json json;
  json["source"] = examination.configuration.source;
  json["keys"] = Json::array();
  for (const KeyReport& key : examination.configuration.keys) {
    const Key* known = find_key(key.path);
    const bool has_default = known != nullptr && !known->fallback.empty();
    json["keys"].push_back({{"key", key.path},
                            {"value", key.value},
                            {"class", name_of(key.key_class)},
                            {"note", key.note},
                            {"default", has_default ? Json(std::string(known->fallback)) : Json(nullptr)}});
  }
  json["problems"] = examination.problems;
  std::vector<std::string> missing = examination.missing_for_plan;
  missing.insert(missing.end(), examination.missing_for_training.begin(), examination.missing_for_training.end());
  json["missing"] = missing;
  json["notes"] = examination.configuration.notes;
  return dumped(json);
}

}  // namespace sluice::app
