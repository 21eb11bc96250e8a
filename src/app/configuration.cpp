#include "app/configuration.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "app/key_rules.hpp"
#include "app/tolerant_json.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "spec/json_text.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLoadedLearningRate = 5e-5;  // transformers' TrainingArguments.learning_rate
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kAnyWhole = std::numeric_limits<std::int64_t>::max();

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

std::string joined(const std::vector<std::string>& words, const std::string& between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = path.find('.', begin);
    parts.push_back(path.substr(begin, dot - begin));
    if (dot == std::string::npos) return parts;
    begin = dot + 1;
  }
}

bool is_below(const std::string& path, const std::string& block) {
  return path == block || (path.size() > block.size() && path.starts_with(block) && path[block.size()] == '.');
}

/// Whether `value` is one of the JSON texts in `allowed`.
bool is_allowed(const Json& value, std::string_view allowed) {
  std::size_t begin = 0;
  while (begin < allowed.size()) {
    const std::size_t end = std::min(allowed.find('|', begin), allowed.size());
    const Json candidate = Json::parse(allowed.substr(begin, end - begin));
    if (value == candidate) return true;
    if (value.is_string() && candidate.is_string() && lower(value.get<std::string>()) == candidate.get<std::string>()) return true;
    begin = end + 1;
  }
  return false;
}

bool is_auto(const Json& value) {
  return value.is_string() && value.get<std::string>() == "auto";
}

/// A whole number however it is written: 5, 5.0 and 5e8, as DeepSpeed takes them.
std::optional<std::int64_t> whole_of(const Json& value) {
  if (value.is_number_unsigned()) {
    if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(kAnyWhole)) return std::nullopt;
    return static_cast<std::int64_t>(value.get<std::uint64_t>());
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) < 9e18) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::string range_text(double low, double high) {
  if (low == -kInfinity && high == kInfinity) return "a number";
  if (high == kInfinity) return cat("a number of at least ", low);
  return cat("a number from ", low, " to ", high);
}

class Examiner {
 public:
  Examiner(const ConfigurationRequest& request, std::optional<std::int64_t> ranks) : request_(request), ranks_(ranks) {}

  Examination run() {
    read_file();
    apply_settings();
    open_zero_block();
    apply_ignores();
    fill_precision();
    if (root_.is_object()) walk(root_, "");
    read_model();
    read_data();
    read_length();
    read_batch();
    read_optimizer();
    read_schedule();
    read_hints();
    read_rest();
    finish();
    return std::move(result_);
  }

 private:
  // ---- the tree of keys

  void read_file() {
    config_.source = request_.file;
    if (request_.file.empty()) return;
    std::ifstream file(request_.file, std::ios::binary);
    if (!file || std::filesystem::is_directory(request_.file)) {
      throw EnvironmentError(cat(request_.file, ": can't be opened; give the path of a configuration file (JSON)"));
    }
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const TolerantJson tolerant = read_tolerant_json(text, request_.file);
    const std::string problem = spec::json_problem(tolerant.strict);
    if (!problem.empty()) throw RequestError(cat(request_.file, ": ", problem));
    root_ = Json::parse(tolerant.strict);
    if (!root_.is_object()) throw RequestError(cat(request_.file, ": found ", shown(root_), ", expected an object {...} of keys"));
    for (const auto& [path, line] : tolerant.lines) {
      const bool ours = is_below(path, "sluice");
      origins_.emplace(ours ? with_underscores(path) : path, cat(request_.file, ":", line, ": ", path));
    }
    if (root_.contains("sluice")) root_["sluice"] = normalised(root_["sluice"], "sluice");
    open_zero_block();
  }

  /// "zero_optimization": true means stage 1.
  void open_zero_block() {
    const auto zero = root_.find("zero_optimization");
    if (zero != root_.end() && zero->is_boolean()) *zero = Json{{"stage", zero->get<bool>() ? 1 : 0}};
  }

  /// Keys of `sluice` with underscores.
  Json normalised(const Json& value, const std::string& path) {
    if (!value.is_object()) return value;
    Json result = Json::object();
    for (const auto& [key, inner] : value.items()) {
      const std::string name = is_comment_key(key) ? key : with_underscores(key);
      if (result.contains(name)) problem(cat(path, ".", name), "stands twice in the same object, with - and with _; keep one of them");
      result[name] = normalised(inner, cat(path, ".", name));
    }
    return result;
  }

  static Json value_of(const Setting& setting) {
    if (setting.kind != Setting::Kind::kValue) return setting.value;
    const Json parsed = Json::parse(setting.value, nullptr, false);
    return parsed.is_discarded() ? Json(setting.value) : parsed;
  }

  void apply_settings() {
    std::map<std::string, std::pair<Json, std::string>> given;  // path -> value and origin
    for (const Setting& setting : request_.settings) {
      const std::string path = with_underscores(setting.path);
      Json value = value_of(setting);
      if (path == "sluice.resume" && is_auto(value)) value = nullptr;  // absent is automatic
      const auto before = given.find(path);
      if (setting.kind == Setting::Kind::kAppend) {
        Json list = before == given.end() ? Json::array() : before->second.first;
        if (list.is_array()) list.push_back(value);
        value = list;
      } else if (before != given.end() && before->second.first != value) {
        result_.problems.push_back(cat(before->second.second, " gives ", path, " as ", shown(before->second.first), ", ", setting.origin,
                                       " as ", shown(value), "; keep one of them"));
      }
      given[path] = {value, setting.origin};
      // The length of the run is one thing with two names: what the command line says replaces either.
      if (path == "sluice.steps") replace_other(given, "sluice.epochs", setting);
      if (path == "sluice.epochs") replace_other(given, "sluice.steps", setting);
      if (path == "sluice.model") value = model_from_word(value);
      assign(path, value, setting.origin);
    }
  }

  void replace_other(const std::map<std::string, std::pair<Json, std::string>>& given, const std::string& other, const Setting& setting) {
    if (given.contains(other)) return;  // both on the command line: read_length refuses that
    if (const Json* value = find(other)) {
      note(cat(setting.origin, " ", setting.value, " replaces ", other, " ", shown(*value), " of ", request_.file));
      root_["sluice"].erase(other.substr(other.rfind('.') + 1));
    }
  }

  static Json model_from_word(const Json& value) {
    if (!value.is_string()) return value;
    const std::string word = value.get<std::string>();
    const bool is_path = word.find('/') != std::string::npos || word == "." || word == ".." || std::filesystem::is_directory(word);
    return Json{{is_path ? "path" : "preset", word}};
  }

  void assign(const std::string& path, const Json& value, const std::string& origin) {
    Json* at = &root_;
    const std::vector<std::string> parts = parts_of(path);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (!at->contains(parts[i]) || (*at)[parts[i]].is_null()) (*at)[parts[i]] = Json::object();
      at = &(*at)[parts[i]];
      if (!at->is_object()) {
        result_.problems.push_back(cat(origin, ": ", path, " can't be set, since the file has ", shown(*at), " on the way to it"));
        return;
      }
    }
    const auto before = at->find(parts.back());
    const bool from_file = before != at->end() && !request_.file.empty() && origin_is_file(path);
    if (from_file && *before != value) note(cat(origin, " ", shown(value), " replaces ", path, " ", shown(*before), " of ", request_.file));
    (*at)[parts.back()] = value;
    origins_[path] = origin.starts_with("--set") ? cat("--set ", path) : origin;
    for (auto inner = origins_.begin(); inner != origins_.end();) {
      inner = inner->first != path && is_below(inner->first, path) ? origins_.erase(inner) : std::next(inner);
    }
  }

  bool origin_is_file(const std::string& path) const {
    const auto found = origins_.find(path);
    return found != origins_.end() && found->second.starts_with(request_.file);
  }

  void apply_ignores() {
    const Json* list = find("sluice.ignore");
    if (list == nullptr) return;
    const Json entries = list->is_array() ? *list : Json::array({*list});
    for (const Json& entry : entries) {
      if (!entry.is_string()) {
        problem("sluice.ignore", cat("found ", shown(entry), ", expected the names of keys"));
        continue;
      }
      const std::string path = with_underscores(entry.get<std::string>());
      if (find_key(path) == nullptr) {
        problem("sluice.ignore", cat("\"", path, "\" is no key that is known", suggestion(path)));
      } else if (is_below(path, "sluice")) {
        problem("sluice.ignore", cat("\"", path, "\" is a key of sluice, which is never ignored; remove it instead"));
      } else {
        ignored_.insert(path);
        remove(path);
      }
    }
  }

  void remove(const std::string& path) {
    const std::vector<std::string> parts = parts_of(path);
    Json* at = &root_;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (!at->is_object() || !at->contains(parts[i])) return;
      at = &(*at)[parts[i]];
    }
    if (!at->is_object() || !at->contains(parts.back())) return;
    config_.keys.push_back({path, shown((*at)[parts.back()]), KeyClass::kIgnored, "as asked; results may differ from what it says"});
    ignored_present_.push_back(path);
    at->erase(parts.back());
  }

  /// "auto" of a precision block is the command line's --fp16 or --bf16, which say no where they are not given.
  void fill_precision() {
    for (const char* block : {"fp16", "bf16"}) {
      const bool wanted = request_.trainer.contains(block) && lower(request_.trainer.at(block)) != "false";
      if (wanted && !ignored_.contains(block)) {
        if (!root_.contains(block) || !root_[block].is_object()) root_[block] = Json::object();
        root_[block]["enabled"] = true;
        origins_[cat(block, ".enabled")] = cat("--", block);
      }
    }
  }

  const Json* find(const std::string& path) const {
    const Json* at = &root_;
    for (const std::string& part : parts_of(path)) {
      if (!at->is_object()) return nullptr;
      const auto found = at->find(part);
      if (found == at->end()) return nullptr;
      at = &*found;
    }
    return at->is_null() ? nullptr : at;
  }

  // ---- messages

  std::string where(const std::string& path) const {
    std::string at = path;
    while (true) {
      const auto found = origins_.find(at);
      if (found != origins_.end()) {
        // The place of an outer key, but the whole path.
        const std::string place = at == path ? found->second : found->second + path.substr(at.size());
        return place;
      }
      const std::size_t dot = at.rfind('.');
      if (dot == std::string::npos) break;
      at = at.substr(0, dot);
    }
    // A block that the command line opened has no place of its own; the key that opened it has.
    const auto inner = origins_.lower_bound(path + ".");
    return inner != origins_.end() && is_below(inner->first, path) ? cat(inner->second, ": ", path) : path;
  }

  void problem(const std::string& path, const std::string& text) {
    result_.problems.push_back(cat(where(path), ": ", text));
    for (KeyReport& key : config_.keys) {
      if (key.path == path) {
        key.key_class = KeyClass::kRefused;
        key.note = text;
      }
    }
  }

  void note(const std::string& text) { config_.notes.push_back(text); }

  void moved_default(const std::string& path, const std::string& value, const std::string& reason) {
    config_.keys.push_back({path, value, KeyClass::kMovedDefault, reason});
    note(cat(path, " is not given: ", value, ", ", reason));
  }

  std::string suggestion(const std::string& path) const {
    const std::string near = nearest_key(path);
    if (!near.empty()) return cat("; the nearest known key is \"", near, "\"");
    const std::size_t dot = path.rfind('.');
    const std::string parent = dot == std::string::npos ? std::string() : path.substr(0, dot);
    if (parent.empty()) return "; none is near it; a name that begins with _ is free for comments";
    return cat("; known in ", parent, ": ", joined(keys_below(parent)));
  }

  // ---- weighing every key

  void report(const std::string& path, const Json& value, KeyClass key_class, const std::string& text = {}) {
    config_.keys.push_back({path, shown(value), key_class, text});
  }

  void walk(const Json& object, const std::string& parent) {
    for (const auto& [name, value] : object.items()) {
      if (is_comment_key(name)) continue;
      const std::string path = parent.empty() ? name : cat(parent, ".", name);
      const Key* key = find_key(path);
      if (key == nullptr) {
        const std::string text = cat("unknown key", suggestion(path));
        report(path, value, KeyClass::kRefused, text);
        problem(path, text);
      } else if (has_keys_below(path) && !value.is_null()) {
        if (value.is_object()) {
          walk(value, path);
        } else {
          const std::string text = cat("found ", shown(value), ", expected an object {...} with keys such as ", keys_below(path).front());
          report(path, value, KeyClass::kRefused, text);
          problem(path, text);
        }
      } else {
        weigh(*key, path, value);
      }
    }
  }

  void refuse(const std::string& path, const Json& value, const std::string& text) {
    report(path, value, KeyClass::kRefused, text);
    problem(path, text);
  }

  void weigh(const Key& key, const std::string& path, const Json& value) {
    if (is_below(path, "sluice") && is_auto(value)) {
      refuse(path, value, "\"auto\" is no value inside sluice; leave the key out, absent means automatic");
      return;
    }
    switch (key.rule) {
      case KeyRule::kHonoured:
        report(path, value, KeyClass::kHonoured);
        break;
      case KeyRule::kHint:
        report(path, value, KeyClass::kHint);
        break;
      case KeyRule::kPerformance:
        report(path, value, KeyClass::kPerformanceOnly);
        break;
      case KeyRule::kOnly:
        if (is_auto(value) || value.is_null() || is_allowed(value, key.allowed)) {
          report(path, value, KeyClass::kHonoured);
        } else {
          refuse(path, value, cat("found ", shown(value), ", which changes results: ", key.advice, " (or --ignore ", path, ")"));
        }
        break;
      case KeyRule::kSwitch:
        weigh_switch(key, path, value);
        break;
      case KeyRule::kPresence:
        if (value.is_null() || value == false || (value.is_structured() && value.empty())) {
          report(path, value, KeyClass::kHonoured, "off");
        } else {
          refuse(path, value, cat("changes results: ", key.advice, " (or --ignore ", path, ")"));
        }
        break;
      case KeyRule::kAbsent:
        if (value.is_null() || is_allowed(value, key.allowed)) {
          report(path, value, KeyClass::kHonoured);
        } else {
          refuse(path, value, cat("found ", shown(value), ", which is not in this version of Sluice; ", key.advice));
        }
        break;
    }
  }

  void weigh_switch(const Key& key, const std::string& path, const Json& value) {
    const bool is_block = value.is_object();
    const Json enabled = is_block ? value.value("enabled", Json(false)) : value;
    if (enabled.is_null() || enabled == false || is_auto(enabled)) {
      report(path, value, KeyClass::kHonoured, "off");
      return;
    }
    const std::string place = is_block ? path + ".enabled" : path;
    const std::string text = cat("found ", shown(enabled), ", which changes results: ", key.advice, " (or --ignore ", path, ")");
    report(place, enabled, KeyClass::kRefused, text);
    problem(place, text);
  }

  // ---- typed values; each returns nothing after it noted a problem

  std::optional<double> number_of(const std::string& path, const Json& value, double low, double high) {
    if (value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= low && value.get<double>() <= high) {
      return value.get<double>();
    }
    problem(path, cat("found ", shown(value), ", expected ", range_text(low, high)));
    return std::nullopt;
  }

  std::optional<double> number(const std::string& path, double low = 0, double high = kInfinity) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    return number_of(path, *value, low, high);
  }

  std::optional<std::int64_t> whole(const std::string& path, std::int64_t low, std::int64_t high = kAnyWhole) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    const std::optional<std::int64_t> number = whole_of(*value);
    if (number && *number >= low && *number <= high) return number;
    problem(path, cat("found ", shown(*value), ", expected a whole number of at least ", low));
    return std::nullopt;
  }

  std::optional<bool> flag(const std::string& path) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    problem(path, cat("found ", shown(*value), ", expected true or false"));
    return std::nullopt;
  }

  std::optional<std::string> text(const std::string& path) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (value->is_string() && !value->get<std::string>().empty()) return value->get<std::string>();
    problem(path, cat("found ", shown(*value), ", expected a text"));
    return std::nullopt;
  }

  std::vector<std::string> texts(const std::string& path) {
    const Json* value = find(path);
    if (value == nullptr) return {};
    const Json entries = value->is_array() ? *value : Json::array({*value});
    std::vector<std::string> result;
    for (const Json& entry : entries) {
      if (!entry.is_string() || entry.get<std::string>().empty()) {
        problem(path, cat("found ", shown(*value), ", expected a list of texts"));
        return {};
      }
      result.push_back(entry.get<std::string>());
    }
    return result;
  }

  std::optional<std::string> one_of(const std::string& path, const std::vector<std::string>& known) {
    const std::optional<std::string> word = text(path);
    if (!word || std::find(known.begin(), known.end(), *word) != known.end()) return word;
    const std::string near = spec::nearest_word(*word, known);
    problem(path, cat("found \"", *word, "\", expected one of ", joined(known),
                      near.empty() ? std::string() : cat("; the nearest is \"", near, "\"")));
    return std::nullopt;
  }

  std::optional<std::int64_t> bytes(const std::string& path) {
    const Json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (const auto number = whole_of(*value); number && *number > 0) return number;
    if (value->is_string()) {
      try {
        if (const std::int64_t size = parse_bytes(value->get<std::string>()); size > 0) return size;
      } catch (const RequestError& error) {
        problem(path, error.what());
        return std::nullopt;
      }
    }
    problem(path, cat("found ", shown(*value), ", expected a size above 0, as \"2GiB\""));
    return std::nullopt;
  }

  // ---- Hugging Face's names

  static std::string flag_of(const std::string& trainer_name) { return "--" + trainer_name; }

  std::optional<double> trainer_number(const std::string& name, double low, double high) {
    const auto found = request_.trainer.find(name);
    if (found == request_.trainer.end()) return std::nullopt;
    const Json value = Json::parse(found->second, nullptr, false);
    if (!value.is_discarded() && value.is_number() && value.get<double>() >= low && value.get<double>() <= high) return value.get<double>();
    result_.problems.push_back(cat(flag_of(name), ": found \"", found->second, "\", expected ", range_text(low, high)));
    return std::nullopt;
  }

  /// The number that file and command line agree on. "auto" is what the flag says, and missing without it.
  std::optional<double> number_or_flag(const std::string& path, const std::string& name, double low = 0, double high = kInfinity,
                                       std::vector<std::string>* missing = nullptr) {
    const std::optional<double> flag_value = trainer_number(name, low, high);
    const Json* value = find(path);
    if (value == nullptr) return flag_value;
    if (is_auto(*value)) {
      if (!flag_value && !request_.trainer.contains(name)) {
        (missing != nullptr ? *missing : result_.missing_for_training)
            .push_back(cat(where(path), " is \"auto\" and nothing fills it; give ", flag_of(name), " or write a number"));
      }
      return flag_value;
    }
    const std::optional<double> written = number_of(path, *value, low, high);
    if (written && flag_value && *written != *flag_value) {
      mismatches_.push_back(cat(path, " is ", shown(*value), " and ", flag_of(name), " says ", request_.trainer.at(name)));
    }
    return written;
  }

  std::optional<std::int64_t> whole_or_flag(const std::string& path, const std::string& name, std::int64_t low,
                                            std::vector<std::string>* missing = nullptr) {
    const std::optional<double> value = number_or_flag(path, name, static_cast<double>(low), 9e15, missing);
    if (!value) return std::nullopt;
    if (*value == std::floor(*value)) return static_cast<std::int64_t>(*value);
    const Json* written = find(path);
    if (written != nullptr && !is_auto(*written)) {
      problem(path, cat("found ", shown(*written), ", expected a whole number of at least ", low));
    } else {
      result_.problems.push_back(cat(flag_of(name), ": found ", request_.trainer.at(name), ", expected a whole number of at least ", low));
    }
    return std::nullopt;
  }

  // ---- parts

  void read_model() {
    const std::optional<std::string> preset = text("sluice.model.preset");
    const std::optional<std::string> path = text("sluice.model.path");
    if (preset && path) problem("sluice.model", "has both preset and path; keep one of them");
    if (path && !preset) {
      config_.model_path = *path;
      config_.init = Init::kWeights;
    } else if (preset) {
      config_.preset = *preset;
    } else {
      result_.missing_for_plan.push_back("no model is given; give --model NAME (a preset or a directory) or write sluice.model");
    }
    const std::optional<std::string> init = one_of("sluice.init", {"scratch", "weights"});
    if (init == "scratch") config_.init = Init::kScratch;
    if (init == "weights" && config_.model_path.empty()) {
      problem("sluice.init", "\"weights\" needs a model with weights; a preset has none: give sluice.model.path");
    }
    if (const auto length = whole("sluice.sequence_length", 1)) config_.training.batch.sequence_length = *length;
  }

  void read_data() {
    config_.train_data = texts("sluice.data.train");
    config_.valid_data = texts("sluice.data.valid");
    if (config_.train_data.empty()) {
      result_.missing_for_training.push_back("no training data is given; give --data FILE or write sluice.data.train");
    }
    config_.order = one_of("sluice.data.order", {"shuffled", "sequential"}) == "sequential" ? DataOrder::kSequential : DataOrder::kShuffled;
  }

  void read_length() {
    config_.steps = whole("sluice.steps", 1);
    if (const Json* value = find("sluice.epochs")) {
      const std::optional<double> epochs = number("sluice.epochs");
      if (epochs && *epochs <= 0) problem("sluice.epochs", cat("found ", shown(*value), ", expected a number above 0"));
      if (epochs && *epochs > 0) config_.epochs = epochs;
    }
    if (find("sluice.steps") != nullptr && find("sluice.epochs") != nullptr) {
      problem("sluice.epochs", "stands beside sluice.steps; keep one of them");
    } else if (find("sluice.steps") == nullptr && find("sluice.epochs") == nullptr) {
      result_.missing_for_training.push_back("the length of the run is not given; give --steps N or --epochs N");
    }
  }

  void read_batch() {
    const std::size_t problems_before = result_.problems.size();
    BatchKeys& keys = config_.batch_keys;
    std::vector<std::string>& missing = result_.missing_for_plan;
    const std::size_t missing_before = missing.size();
    if (const Json* train = find("train_batch_size"); train != nullptr && !is_auto(*train)) keys.train = whole("train_batch_size", 1);
    keys.micro = whole_or_flag("train_micro_batch_size_per_gpu", "per_device_train_batch_size", 1, &missing);
    keys.accumulation = whole_or_flag("gradient_accumulation_steps", "gradient_accumulation_steps", 1, &missing);
    if (!keys.train && !keys.micro && missing.size() == missing_before && result_.problems.size() == problems_before) {
      missing.push_back(
          "neither train_batch_size nor train_micro_batch_size_per_gpu is given; write one of them or give --train-batch-size N (sequences "
          "a step)");
    }
    config_.mesh.data = ranks_.value_or(1);
    const bool complete = missing.size() == missing_before && result_.problems.size() == problems_before;
    if (!complete) return;
    spec::BatchSpec& batch = config_.training.batch;
    if (ranks_) {
      try {
        const spec::BatchSpec resolved = resolve_batch(keys, *ranks_);
        batch.global_batch = resolved.global_batch;
        batch.micro_batch = resolved.micro_batch;
        batch.accumulation = resolved.accumulation;
      } catch (const RequestError& error) {
        result_.problems.emplace_back(error.what());
      }
    } else {
      batch.global_batch = keys.train.value_or(0);
      batch.micro_batch = keys.micro.value_or(0);
      batch.accumulation = keys.accumulation.value_or(0);
    }
  }

  bool has_optimizer_block() const { return find("optimizer") != nullptr; }

  void read_optimizer() {
    spec::OptimizerSpec& optimizer = config_.training.optimizer;
    if (has_optimizer_block()) {
      const std::optional<std::string> type = text("optimizer.type");
      const std::string name = type ? lower(*type) : std::string();
      if (!type && find("optimizer.type") == nullptr && !ignored_.contains("optimizer.type")) {
        problem("optimizer", "has no type; write \"type\": \"AdamW\"");
      } else if (type && name != "adam" && name != "adamw") {
        problem("optimizer.type", cat("\"", *type, "\" is not supported; write \"AdamW\""));
      }
      if (const auto decoupled = flag("optimizer.params.adam_w_mode"); decoupled == false && name == "adam") {
        problem("optimizer.params.adam_w_mode", "false (weight decay inside the gradient) is not supported; remove it");
      }
      read_betas(optimizer);
    } else {
      if (const auto beta1 = trainer_number("adam_beta1", 0, 1)) optimizer.beta1 = *beta1;
      if (const auto beta2 = trainer_number("adam_beta2", 0, 1)) optimizer.beta2 = *beta2;
    }
    if (const auto eps = number_or_flag("optimizer.params.eps", "adam_epsilon")) optimizer.eps = *eps;
    if (const auto decay = number_or_flag("optimizer.params.weight_decay", "weight_decay")) optimizer.weight_decay = *decay;
    if (optimizer.beta1 >= 1 || optimizer.beta2 >= 1) {
      result_.problems.push_back(cat("Adam's betas are ", optimizer.beta1, " and ", optimizer.beta2, ", expected numbers below 1"));
    }
    read_decay_on(optimizer);
    if (find("gradient_clipping") == nullptr && !request_.trainer.contains("max_grad_norm")) {
      optimizer.gradient_clipping = 1.0;
      moved_default("gradient_clipping", "1.0", "DeepSpeed's newer default (before mid-2026: 0, no clipping)");
    } else if (const auto clipping = number_or_flag("gradient_clipping", "max_grad_norm")) {
      optimizer.gradient_clipping = *clipping;
    }
    learning_rate_ = number_or_flag("optimizer.params.lr", "learning_rate");
  }

  void read_betas(spec::OptimizerSpec& optimizer) {
    const std::string path = "optimizer.params.betas";
    const Json* betas = find(path);
    const std::optional<double> flag1 = trainer_number("adam_beta1", 0, 1);
    const std::optional<double> flag2 = trainer_number("adam_beta2", 0, 1);
    if (betas == nullptr || is_auto(*betas)) {
      if (betas != nullptr && (!flag1 || !flag2)) {
        result_.missing_for_training.push_back(
            cat(where(path), " is \"auto\" and nothing fills it; give --adam_beta1 and --adam_beta2 or write two numbers"));
      }
      if (flag1) optimizer.beta1 = *flag1;
      if (flag2) optimizer.beta2 = *flag2;
      return;
    }
    if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number()) {
      problem(path, cat("found ", shown(*betas), ", expected two numbers, as [0.9, 0.999]"));
      return;
    }
    const auto beta1 = number_of(path, (*betas)[0], 0, 1), beta2 = number_of(path, (*betas)[1], 0, 1);
    if (beta1) optimizer.beta1 = *beta1;
    if (beta2) optimizer.beta2 = *beta2;
    if ((flag1 && beta1 && *flag1 != *beta1) || (flag2 && beta2 && *flag2 != *beta2)) {
      mismatches_.push_back(cat(path, " is ", shown(*betas), " and --adam_beta1, --adam_beta2 say otherwise"));
    }
  }

  void read_decay_on(spec::OptimizerSpec& optimizer) {
    optimizer.decay_on = has_optimizer_block() ? spec::DecayOn::kAll : spec::DecayOn::kMatrices;
    const std::optional<std::string> asked = one_of("sluice.weight_decay_on", {"matrices", "all"});
    if (asked) {
      optimizer.decay_on = *asked == "all" ? spec::DecayOn::kAll : spec::DecayOn::kMatrices;
    } else if (optimizer.weight_decay > 0) {
      if (has_optimizer_block()) {
        moved_default("sluice.weight_decay_on", "\"all\"", "as DeepSpeed does for a written optimizer block");
      } else {
        moved_default("sluice.weight_decay_on", "\"matrices\"", "as the Trainer does for flags alone");
      }
    }
  }

  void read_schedule() {
    const bool scheduler = find("scheduler") != nullptr;
    const bool ours = find("sluice.schedule") != nullptr;
    if (scheduler && ours) {
      problem("sluice.schedule", "stands beside scheduler; keep one of them");
      return;
    }
    if (scheduler) {
      read_scheduler();
    } else {
      read_sluice_schedule(ours);
    }
    settle_learning_rate();
    check_scheduler_flag(scheduler);
  }

  void read_scheduler() {
    const std::vector<std::string> known = {"WarmupLR", "WarmupDecayLR"};
    const std::optional<std::string> type = text("scheduler.type");
    if (!type) {
      if (find("scheduler.type") == nullptr) problem("scheduler", "has no type; write one of WarmupLR and WarmupDecayLR");
      return;
    }
    if (*type == "WarmupCosineLR") {
      problem(
          "scheduler.type",
          "WarmupCosineLR is not supported, since its cosine runs a step ahead of its warm-up; write \"schedule\": {\"kind\": \"cosine\"} "
          "in sluice instead, or --ignore scheduler");
      return;
    }
    if (std::find(known.begin(), known.end(), *type) == known.end()) {
      problem("scheduler.type",
              cat("\"", *type, "\" is not supported; write WarmupLR or WarmupDecayLR, a schedule in sluice, or --ignore scheduler"));
      return;
    }
    const bool decays = *type == "WarmupDecayLR";
    check_scheduler_params(*type, decays);
    spec::ScheduleSpec& schedule = config_.training.schedule;
    schedule.kind = decays ? spec::ScheduleKind::kLinear : spec::ScheduleKind::kConstant;
    schedule.delay_steps = 1;  // DeepSpeed steps its schedulers after the optimizer, from -1: the first two steps have the same rate

    const Json* least = find("scheduler.params.warmup_min_lr");
    if (least != nullptr && !is_auto(*least)) schedule.warmup_start = number("scheduler.params.warmup_min_lr").value_or(0);
    const std::optional<double> most = number_or_flag("scheduler.params.warmup_max_lr", "learning_rate");
    const bool written = find("scheduler.params.warmup_max_lr") != nullptr;
    if (written) {
      if (most && learning_rate_ && *most != *learning_rate_) {
        note(cat("scheduler.params.warmup_max_lr ", *most, " rules, not optimizer.params.lr ", *learning_rate_));
      }
      if (most) learning_rate_ = most;
      rate_is_auto_ = !most;
    } else if (decays && most) {
      learning_rate_ = most;
    } else if (decays) {
      learning_rate_ = 0.001;
      moved_default("scheduler.params.warmup_max_lr", "0.001", "DeepSpeed's default for WarmupDecayLR, whatever optimizer.params.lr says");
    }
    read_warmup(schedule);
    if (decays) read_decay(schedule);
  }

  /// Known keys that another type of scheduler has; DeepSpeed fails on them as well.
  void check_scheduler_params(const std::string& type, bool decays) {
    const Json* params = find("scheduler.params");
    if (params == nullptr || !params->is_object()) return;
    std::vector<std::string> known = {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "last_batch_iteration"};
    if (decays) known.emplace_back("total_num_steps");
    for (const auto& [name, value] : params->items()) {
      const std::string path = "scheduler.params." + name;
      if (find_key(path) == nullptr || std::find(known.begin(), known.end(), name) != known.end()) continue;
      problem(path, cat("is no parameter of ", type, "; known: ", joined(known)));
    }
  }

  void read_warmup(spec::ScheduleSpec& schedule) {
    const Json* steps = find("scheduler.params.warmup_num_steps");
    const std::optional<double> ratio = trainer_number("warmup_ratio", 0, 1);
    if (steps != nullptr && is_auto(*steps) && !request_.trainer.contains("warmup_steps") && ratio) {
      config_.warmup_ratio = *ratio;
    } else {
      const std::optional<std::int64_t> written =
          whole_or_flag("scheduler.params.warmup_num_steps", "warmup_steps", steps == nullptr ? 0 : 1);
      if (steps == nullptr && !written) moved_default("scheduler.params.warmup_num_steps", "1000", "DeepSpeed's default");
      schedule.warmup_steps = std::max<std::int64_t>(2, written.value_or(steps == nullptr ? 1000 : 2));
    }
    const std::optional<std::string> shape = one_of("scheduler.params.warmup_type", {"linear", "log"});
    const bool flat = learning_rate_ && *learning_rate_ == schedule.warmup_start;
    if (flat && schedule.kind == spec::ScheduleKind::kConstant) return;  // nothing warms up
    if (shape == "log" || find("scheduler.params.warmup_type") == nullptr) {
      problem("scheduler.params.warmup_type", cat(shape ? "\"log\"" : "is not given, which means \"log\" to DeepSpeed; that",
                                                  " is not supported; write \"warmup_type\": \"linear\""));
    }
  }

  void read_decay(spec::ScheduleSpec& schedule) {
    const std::string path = "scheduler.params.total_num_steps";
    const Json* total = find(path);
    if (total == nullptr) {
      problem("scheduler.params", "WarmupDecayLR needs total_num_steps; write the number of steps or \"auto\"");
    } else if (!is_auto(*total)) {
      if (const auto steps = whole(path, 1)) {
        schedule.total_steps = *steps;
        config_.total_steps_follow = false;
        if (*steps <= schedule.warmup_steps) {
          problem(path, cat("found ", *steps, ", expected more than warmup_num_steps ", schedule.warmup_steps));
        }
      }
    }
    if (learning_rate_ && *learning_rate_ > 0) schedule.final_ratio = schedule.warmup_start / *learning_rate_;
    if (schedule.final_ratio > 1) {
      problem("scheduler.params.warmup_min_lr", cat("found ", schedule.warmup_start, ", expected at most warmup_max_lr ", *learning_rate_));
    }
  }

  void read_sluice_schedule(bool written) {
    spec::ScheduleSpec& schedule = config_.training.schedule;
    const std::map<std::string, spec::ScheduleKind> kinds = {
        {"constant", spec::ScheduleKind::kConstant}, {"linear", spec::ScheduleKind::kLinear}, {"cosine", spec::ScheduleKind::kCosine}};
    if (const auto kind = one_of("sluice.schedule.kind", {"constant", "linear", "cosine"})) schedule.kind = kinds.at(*kind);
    if (written && find("sluice.schedule.kind") == nullptr) {
      problem("sluice.schedule", "has no kind; write one of constant, linear, cosine");
    }
    if (!written) read_scheduler_flag(schedule);
    const std::optional<std::int64_t> steps = whole_or_flag("sluice.schedule.warmup_steps", "warmup_steps", 0);
    const std::optional<double> ratio = number_or_flag("sluice.schedule.warmup_ratio", "warmup_ratio", 0, 1);
    schedule.warmup_steps = steps.value_or(0);
    if (schedule.warmup_steps == 0) config_.warmup_ratio = ratio.value_or(0);  // a number of steps beats a ratio, as in the Trainer
    if (const auto start = number("sluice.schedule.warmup_start")) schedule.warmup_start = *start;
    if (const auto ratio_end = number("sluice.schedule.final_ratio", 0, 1)) schedule.final_ratio = *ratio_end;
    if (const auto total = whole("sluice.schedule.total_steps", 1)) {
      schedule.total_steps = *total;
      config_.total_steps_follow = false;
    }
  }

  void read_scheduler_flag(spec::ScheduleSpec& schedule) {
    const auto found = request_.trainer.find("lr_scheduler_type");
    const bool loaded = config_.init == Init::kWeights;
    if (found == request_.trainer.end()) {
      if (loaded && !has_optimizer_block()) {
        schedule.kind = spec::ScheduleKind::kLinear;
        moved_default("sluice.schedule.kind", "\"linear\"", "as the Trainer does for loaded weights");
      } else {
        schedule.kind = spec::ScheduleKind::kConstant;
        moved_default("sluice.schedule.kind", "\"constant\"", "as DeepSpeed does without a scheduler");
      }
      return;
    }
    if (const auto kind = kind_of_flag(found->second)) schedule.kind = *kind;
    const auto steps = trainer_number("warmup_steps", 0, 9e15);
    const auto ratio = trainer_number("warmup_ratio", 0, 1);
    if (found->second == "constant" && (steps.value_or(0) > 0 || ratio.value_or(0) > 0)) {
      result_.problems.emplace_back("--lr_scheduler_type constant has no warm-up; give constant_with_warmup");
    }
  }

  std::optional<spec::ScheduleKind> kind_of_flag(const std::string& name) {
    if (name == "constant" || name == "constant_with_warmup") return spec::ScheduleKind::kConstant;
    if (name == "linear") return spec::ScheduleKind::kLinear;
    if (name == "cosine") return spec::ScheduleKind::kCosine;
    result_.problems.push_back(
        cat("--lr_scheduler_type: \"", name, "\" is not supported; give one of constant, constant_with_warmup, linear, cosine"));
    return std::nullopt;
  }

  /// A written schedule and the flag must mean the same.
  void check_scheduler_flag(bool scheduler) {
    const auto found = request_.trainer.find("lr_scheduler_type");
    if (found == request_.trainer.end()) return;
    if (!scheduler && find("sluice.schedule") == nullptr) return;
    const auto kind = kind_of_flag(found->second);
    if (kind && *kind != config_.training.schedule.kind) {
      const std::string path = scheduler ? "scheduler.type" : "sluice.schedule.kind";
      const Json* written = find(path);
      if (written != nullptr) mismatches_.push_back(cat(path, " is ", shown(*written), " and --lr_scheduler_type says ", found->second));
    }
  }

  void settle_learning_rate() {
    const Json* written = find("optimizer.params.lr");
    const bool asked = (written != nullptr) || request_.trainer.contains("learning_rate") || rate_is_auto_;
    if (!learning_rate_ && !asked) {
      if (config_.init == Init::kWeights) {
        learning_rate_ = kLoadedLearningRate;
        moved_default("optimizer.params.lr", "5e-05", "as the Trainer does for loaded weights");
      } else {
        result_.missing_for_training.push_back(
            "the learning rate is not given, and training from scratch has none by default; give --learning-rate X or write "
            "optimizer.params.lr");
      }
    }
    config_.training.schedule.peak = learning_rate_.value_or(0);
  }

  void read_hints() {
    Hints& hints = config_.hints;
    if (const Json* stage = find("zero_optimization.stage"); stage != nullptr && !is_auto(*stage)) {
      hints.zero_stage = whole("zero_optimization.stage", 0, 3);
      if (!hints.zero_stage) problem("zero_optimization.stage", cat("found ", shown(*stage), ", expected 0, 1, 2 or 3"));
    }
    hints.offload_optimizer = offload("zero_optimization.offload_optimizer", "zero_optimization.cpu_offload");
    hints.offload_param = offload("zero_optimization.offload_param", "zero_optimization.cpu_offload_param");
    hints.prefetch_elements = elements("zero_optimization.stage3_prefetch_bucket_size");
    hints.max_live_elements = elements("zero_optimization.stage3_max_live_parameters");
    hints.reduce_elements = elements("zero_optimization.reduce_bucket_size");
  }

  std::optional<std::int64_t> elements(const std::string& path) {
    const Json* value = find(path);
    if (value == nullptr || is_auto(*value)) return std::nullopt;
    return whole(path, 0);
  }

  std::string offload(const std::string& block, const std::string& old_name) {
    const std::string path = block + ".device";
    const Json* device = find(path);
    if (device == nullptr || is_auto(*device)) {
      return flag(old_name).value_or(false) ? "cpu" : std::string();
    }
    return one_of(path, {"none", "cpu", "nvme"}).value_or("");
  }

  void read_rest() {
    const Json* seed = find("sluice.seed");
    if (seed != nullptr && seed->is_number_unsigned()) {
      config_.training.seed = seed->get<std::uint64_t>();
    } else if (const auto value = whole("sluice.seed", 0)) {
      config_.training.seed = static_cast<std::uint64_t>(*value);
    }
    if (const auto output = text("sluice.output")) config_.output = *output;
    if (const auto device = text("sluice.device")) config_.device = *device;
    config_.device_memory_bytes = bytes("sluice.memory.device");
    config_.host_memory_bytes = bytes("sluice.memory.host");
    if (const auto threads = whole("sluice.threads", 1, 4096)) config_.threads = *threads;
    if (const auto interval = whole("sluice.checkpoint.interval", 0)) config_.checkpoint_interval = *interval;
    if (const auto keep = whole("sluice.checkpoint.keep", 1)) config_.checkpoint_keep = *keep;
    if (const auto interval = whole("sluice.evaluate.interval", 0)) config_.evaluate_interval = *interval;
    if (config_.evaluate_interval > 0 && config_.valid_data.empty()) {
      problem("sluice.evaluate.interval", "there is nothing to evaluate on; write sluice.data.valid");
    }
    if (const auto interval = whole("steps_per_print", 1)) config_.print_interval = *interval;
    if (const auto resume = text("sluice.resume")) {
      config_.resume = *resume == "never" ? ResumeMode::kNever : ResumeMode::kPath;
      if (config_.resume == ResumeMode::kPath) config_.resume_path = *resume;
    }
    if (const auto plan = text("sluice.plan")) config_.plan_file = *plan;
    for (const std::string& pin : texts("sluice.pin")) read_pin(with_underscores(pin));
    config_.dry_run = flag("sluice.dry_run").value_or(false);
    config_.reprofile = flag("sluice.reprofile").value_or(false);
    config_.dump_graph = flag("sluice.dump_graph").value_or(false);
  }

  void read_pin(const std::string& pin) {
    const Key* key = find_key(pin);
    if (key == nullptr) {
      problem("sluice.pin", cat("\"", pin, "\" is no key that is known", suggestion(pin)));
    } else if (key->rule != KeyRule::kHint) {
      problem(
          "sluice.pin",
          cat("\"", pin, "\" is not about placement; what can be pinned is zero_optimization, activation_checkpointing and keys in them"));
    } else if (find(pin) == nullptr) {
      problem("sluice.pin", cat("\"", pin, "\" is not written, so there is nothing to keep; write it or remove the pin"));
    } else {
      config_.pins.push_back(pin);
    }
  }

  void finish() {
    if (!mismatches_.empty()) {
      result_.problems.push_back(
          cat("file and command line disagree: ", joined(mismatches_, "; "), "; remove one side, or write \"auto\" in the file"));
    }
    if (config_.output.empty()) {
      const std::string model =
          config_.preset.empty() ? std::filesystem::path(config_.model_path).lexically_normal().filename().string() : config_.preset;
      const std::string stem = request_.file.empty() ? model : std::filesystem::path(request_.file).stem().string();
      if (!stem.empty()) config_.output = cat("runs/", stem);
    }
    fold(KeyClass::kHint, "taken as hints about placement, which the plan may beat (--pin KEY keeps them): ");
    fold(KeyClass::kPerformanceOnly, "not needed here, since they change no result: ");
    if (!ignored_present_.empty()) note(cat("ignored as asked, results may differ from what they say: ", joined(ignored_present_)));
    if (config_.steps) settle_steps(config_, *config_.steps);
    result_.configuration = std::move(config_);
  }

  void fold(KeyClass key_class, const std::string& lead) {
    std::vector<std::string> names;
    for (const KeyReport& key : config_.keys) {
      if (key.key_class == key_class) names.push_back(key.path);
    }
    if (!names.empty()) note(lead + joined(names));
  }

  const ConfigurationRequest& request_;
  std::optional<std::int64_t> ranks_;
  Json root_ = Json::object();
  std::map<std::string, std::string> origins_;  // path -> "demo.json:12: path" or "--flag"
  std::set<std::string> ignored_;
  std::vector<std::string> ignored_present_;
  std::vector<std::string> mismatches_;
  std::optional<double> learning_rate_;
  bool rate_is_auto_ = false;  // asked to be filled and not filled: already reported
  Configuration config_;
  Examination result_;
};

}  // namespace

Examination examine(const ConfigurationRequest& request, std::optional<std::int64_t> ranks) {
  return Examiner(request, ranks).run();
}

Configuration load_configuration(const ConfigurationRequest& request, std::optional<std::int64_t> ranks, Demand demand) {
  Examination examination = examine(request, ranks);
  std::vector<std::string> wrong = examination.problems;
  if (demand != Demand::kNothing) {
    wrong.insert(wrong.end(), examination.missing_for_plan.begin(), examination.missing_for_plan.end());
  }
  if (demand == Demand::kTrain) {
    wrong.insert(wrong.end(), examination.missing_for_training.begin(), examination.missing_for_training.end());
  }
  if (wrong.empty()) return std::move(examination.configuration);
  if (wrong.size() == 1) throw RequestError(wrong.front());
  throw RequestError(cat(wrong.front(), " (and ", wrong.size() - 1, " more: `sluice config check` with the same arguments lists all)"));
}

spec::BatchSpec resolve_batch(const BatchKeys& keys, std::int64_t data_ranks) {
  const auto text = [](const std::optional<std::int64_t>& value) { return value ? cat(*value) : std::string("(not given)"); };
  const auto refuse = [&](const std::string& advice) {
    return RequestError(cat("train_batch_size ", text(keys.train), " is not train_micro_batch_size_per_gpu ", text(keys.micro),
                            " x gradient_accumulation_steps ", text(keys.accumulation), " x ", data_ranks, " data-parallel ranks; ",
                            advice));
  };
  if (!keys.train && !keys.micro) {
    throw RequestError(
        "neither train_batch_size nor train_micro_batch_size_per_gpu is given; write one of them or give --train-batch-size N");
  }
  spec::BatchSpec batch;
  if (!keys.train) {
    const std::int64_t accumulation = keys.accumulation.value_or(1);
    std::int64_t per_rank = 0, global = 0;
    if (__builtin_mul_overflow(*keys.micro, accumulation, &per_rank) || __builtin_mul_overflow(per_rank, data_ranks, &global)) {
      throw refuse("their product is too large");
    }
    batch.global_batch = global;
    batch.micro_batch = *keys.micro;
    batch.accumulation = accumulation;
    return batch;
  }
  const std::int64_t train = *keys.train;
  // What one rank sees of a step must come out whole, through whichever of the two factors are given.
  const std::int64_t micro = keys.micro.value_or(1), accumulation = keys.accumulation.value_or(1);
  std::int64_t per_rank = 0, unit = 0;
  const bool too_large = __builtin_mul_overflow(micro, accumulation, &per_rank) || __builtin_mul_overflow(per_rank, data_ranks, &unit);
  const bool both = keys.micro && keys.accumulation;
  if (too_large || unit > train || train % unit != 0 || (both && unit != train)) {
    if (too_large) throw refuse("their product is too large");
    if (both) throw refuse(cat("write ", unit, " or leave one of the three out"));
    const std::int64_t below = train / unit * unit;
    throw refuse(cat("write a multiple of ", unit, ", as ", below > 0 ? cat(below, " or ") : std::string(), below + unit));
  }
  batch.global_batch = train;
  if (keys.micro || keys.accumulation) {
    batch.micro_batch = keys.micro ? micro : train / unit;
    batch.accumulation = keys.accumulation ? accumulation : train / unit;
  }
  return batch;
}

void settle_model(Configuration& configuration, const spec::ModelSpec& model) {
  std::int64_t& length = configuration.training.batch.sequence_length;
  if (length == 0) {
    length = model.context;
    configuration.notes.push_back(cat("sluice.sequence_length is not given: ", length, ", the model's context"));
  }
  if (length > model.context) {
    throw RequestError(cat("sequence_length is ", length, ", but model ", model.name, " has ", model.context,
                           " positions; give --sequence-length ", model.context, " or less"));
  }
}

void settle_steps(Configuration& configuration, std::int64_t steps) {
  spec::ScheduleSpec& schedule = configuration.training.schedule;
  if (configuration.total_steps_follow && schedule.kind != spec::ScheduleKind::kConstant) schedule.total_steps = steps;
  if (configuration.warmup_ratio > 0) {
    schedule.warmup_steps = static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * configuration.warmup_ratio));
    if (schedule.delay_steps > 0) schedule.warmup_steps = std::max<std::int64_t>(2, schedule.warmup_steps);  // DeepSpeed's floor
  }
}

}  // namespace sluice::app
