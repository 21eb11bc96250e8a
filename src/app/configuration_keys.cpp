#include "app/configuration_keys.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/tolerant_json.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "spec/json_text.hpp"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
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

/// Whether `value` is one of the JSON texts in `values`.
bool is_listed(const Json& value, std::string_view values) {
  std::size_t begin = 0;
  while (begin < values.size()) {
    const std::size_t end = std::min(values.find('|', begin), values.size());
    const Json candidate = Json::parse(values.substr(begin, end - begin));
    if (value == candidate) return true;
    if (value.is_string() && candidate.is_string() && lower(value.get<std::string>()) == lower(candidate.get<std::string>())) return true;
    begin = end + 1;
  }
  return false;
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

std::optional<double> number_in(const Json& value, double low, double high) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < low || number > high) return std::nullopt;
  return number;
}

std::string range_text(double low, double high) {
  if (low == -kNoLimit && high == kNoLimit) return "a number";
  if (high == kNoLimit) return cat("a number of at least ", low);
  return cat("a number from ", low, " to ", high);
}

std::string whole_range_text(std::int64_t low, std::int64_t high) {
  if (high == kAnyWhole) return cat("a whole number of at least ", low);
  return cat("a whole number from ", low, " to ", high);
}

Json value_of(const Setting& setting) {
  if (setting.kind != Setting::Kind::kValue) return setting.value;
  const Json parsed = Json::parse(setting.value, nullptr, false);
  return parsed.is_discarded() ? Json(setting.value) : parsed;
}

/// What a Trainer name was given, as JSON: Python's True, False and None are understood.
Json trainer_value(const std::string& text) {
  const std::string word = lower(text);
  if (word == "true" || word == "false") return word == "true";
  if (word == "none" || word == "null") return nullptr;
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

/// --model M: a preset's name, or a path where it looks like one.
Json model_from_word(const Json& value) {
  if (!value.is_string()) return value;
  const std::string word = value.get<std::string>();
  const bool is_path = word.find('/') != std::string::npos || word == "." || word == ".." || std::filesystem::is_directory(word);
  return Json{{is_path ? "path" : "preset", word}};
}

/// The text that base64 with the URL-safe alphabet stands for, as launchers pass whole configurations; nothing if it is none.
std::optional<std::string> decoded_base64(const std::string& word) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  std::uint32_t bits = 0;
  int held = 0;
  const std::size_t end = word.find_last_not_of('=') + 1;  // 0 where there is nothing but padding
  if (word.size() % 4 != 0 || word.size() - end > 2) return std::nullopt;
  for (std::size_t i = 0; i < end; ++i) {
    const std::size_t digit = kAlphabet.find(word[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held >= 8) text += static_cast<char>(bits >> (held -= 8) & 0xFFU);
  }
  return text;
}

}  // namespace

std::string joined(const std::vector<std::string>& words, const std::string& between) {
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

bool is_below(const std::string& path, const std::string& block) {
  return path == block || (path.size() > block.size() && path.starts_with(block) && path[block.size()] == '.');
}

struct KeyTree::Tree {
  Json root = Json::object();
  std::map<std::string, std::pair<Json, std::string>> given;  // by the command line: path -> value and origin
  std::string source;                                         // of the file, in messages

  template <typename Node>
  static Node* walk(Node* at, const std::string& path) {
    if (path.empty()) return at;
    for (const std::string& part : parts_of(path)) {
      if (!at->is_object()) return nullptr;
      const auto found = at->find(part);
      if (found == at->end()) return nullptr;
      at = &*found;
    }
    return at;
  }
  const Json* find(const std::string& path) const { return walk(&root, path); }

  const Json* find_value(const std::string& path) const {
    const Json* found = find(path);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  Json* parent_of(const std::string& path) {
    const std::size_t dot = path.rfind('.');
    return walk(&root, dot == std::string::npos ? std::string() : path.substr(0, dot));
  }

  /// "zero_optimization": true means stage 1.
  void open_zero_block() {
    const auto zero = root.find("zero_optimization");
    if (zero != root.end() && zero->is_boolean()) *zero = Json{{"stage", zero->get<bool>() ? 1 : 0}};
  }

  /// An older block's name means the newer one, where that is absent.
  void rename(const std::string& old_name, const std::string& name) {
    if (!root.contains(old_name) || root.contains(name)) return;
    root[name] = root[old_name];
    root.erase(old_name);
  }
};

KeyTree::KeyTree(const ConfigurationRequest& request, Examination& result)
    : file_(request.file), tree_(std::make_unique<Tree>()), result_(result), trainer_(request.trainer) {
  Configuration& config = result_.configuration;
  if (!request.file.empty()) {
    std::string text;
    std::error_code too_long;  // for a file's name: what launchers pass as base64 often is
    std::ifstream file(request.file, std::ios::binary);
    const int error = errno;  // of opening
    if (file && !std::filesystem::is_directory(request.file)) {
      tree_->source = request.file;
      text.assign(std::istreambuf_iterator<char>(file), {});
    } else if (const auto decoded = decoded_base64(request.file); decoded && !std::filesystem::exists(request.file, too_long)) {
      tree_->source = "the configuration given as base64";
      text = *decoded;
    } else {
      const bool is_folder = std::filesystem::is_directory(request.file, too_long);
      throw EnvironmentError(cat("the configuration: ", request.file, ": ", is_folder ? std::strerror(EISDIR) : std::strerror(error),
                                 "; give the path of a configuration file (JSON)"));
    }
    config.source = tree_->source;
    const TolerantJson tolerant = read_tolerant_json(text, tree_->source);
    const std::string problem = spec::json_problem(tolerant.strict);
    if (!problem.empty()) throw RequestError(cat(tree_->source, ": ", problem));
    Json& root = tree_->root = Json::parse(tolerant.strict);
    if (!root.is_object()) throw RequestError(cat(tree_->source, ": found ", text_of(root), ", expected an object {...} of keys"));
    for (const auto& [path, line] : tolerant.lines) {
      const std::string place = cat(tree_->source, ":", line, ": ");
      if (path == "bfloat16" || is_below(path, "bfloat16")) origins_.emplace("bf16" + path.substr(8), place + path);
      origins_.emplace(is_below(path, "sluice") ? with_underscores(path) : path, place + path);
    }
    // Keys of `sluice` with underscores.
    const auto normalise = [&](const auto& again, const Json& value, const std::string& path) -> Json {
      if (!value.is_object()) return value;
      Json block = Json::object();
      for (const auto& [key, inner] : value.items()) {
        const std::string name = is_comment_key(key) ? key : with_underscores(key);
        if (block.contains(name))
          this->problem(cat(path, ".", name), "stands twice in the same object, with - and with _; keep one of them");
        block[name] = again(again, inner, cat(path, ".", name));
      }
      return block;
    };
    if (root.contains("sluice")) root["sluice"] = normalise(normalise, root["sluice"], "sluice");
    tree_->open_zero_block();
    tree_->rename("bfloat16", "bf16");
  }
  for (const Setting& setting : request.settings) set(setting);
  read_ignored();
  remove_ignored();
}

KeyTree::~KeyTree() = default;

void KeyTree::set(const Setting& setting) {
  auto& given = tree_->given;
  const std::string path = with_underscores(setting.path);
  Json value = value_of(setting);
  if (path == "sluice.resume" && value == "auto") value = nullptr;  // absent is automatic
  const auto before = given.find(path);
  if (setting.kind == Setting::Kind::kAppend) {
    Json list = before == given.end() ? Json::array() : before->second.first;
    if (list.is_array()) list.push_back(value);
    value = list;
  } else if (before != given.end() && before->second.first != value) {
    const auto& [first, origin] = before->second;
    result_.problems.push_back(cat(origin == setting.origin
                                       ? cat(origin, " is given twice, as ", text_of(first), " and ")
                                       : cat(origin, " gives ", path, " as ", text_of(first), ", ", setting.origin, " as "),
                                   text_of(value), "; keep one of them"));
  }
  given[path] = {value, setting.origin};
  // The length of the run is one thing with two names: what the command line says replaces either.
  for (const auto& [mine, other] : {std::pair("sluice.steps", "sluice.epochs"), {"sluice.epochs", "sluice.steps"}}) {
    if (path != mine || given.contains(other) || !has(other)) continue;  // both on the command line: read_length refuses that
    note(cat(setting.origin, " ", setting.value, " replaces ", other, " ", shown(other), " of ", tree_->source));
    tree_->parent_of(other)->erase(std::string_view(other).substr(7));
  }
  if (path == "sluice.model") value = model_from_word(value);

  Json* at = &tree_->root;
  const std::vector<std::string> parts = parts_of(path);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (!at->contains(parts[i]) || (*at)[parts[i]].is_null()) (*at)[parts[i]] = Json::object();
    at = &(*at)[parts[i]];
    if (!at->is_object()) {
      result_.problems.push_back(cat(setting.origin, ": ", path, " can't be set, since the file has ", text_of(*at), " on the way to it"));
      return;
    }
  }
  const auto old = at->find(parts.back());
  const auto origin = origins_.find(path);
  const bool from_file = old != at->end() && origin != origins_.end() && !file_.empty() && origin->second.starts_with(tree_->source);
  if (from_file && *old != value)
    note(cat(setting.origin, " ", text_of(value), " replaces ", path, " ", text_of(*old), " of ", tree_->source));
  (*at)[parts.back()] = value;
  origins_[path] = setting.origin.starts_with("--set") ? cat("--set ", path) : setting.origin;
  for (auto inner = origins_.begin(); inner != origins_.end();) {
    inner = inner->first != path && is_below(inner->first, path) ? origins_.erase(inner) : std::next(inner);
  }
  tree_->open_zero_block();
}

void KeyTree::read_ignored() {
  const Json* list = tree_->find_value("sluice.ignore");
  if (list == nullptr) return;
  for (const Json& entry : list->is_array() ? *list : Json::array({*list})) {
    if (!entry.is_string()) {
      problem("sluice.ignore", cat("found ", text_of(entry), ", expected the names of keys"));
      continue;
    }
    std::string path = with_underscores(entry.get<std::string>());
    while (path.starts_with("_")) path.erase(0, 1);  // a flag may be written with its dashes
    if (is_below(path, "bfloat16")) path = "bf16" + path.substr(8);
    if (is_below(path, "sluice")) {
      problem("sluice.ignore", cat("\"", path, "\" is a key of sluice, which is never ignored; remove it instead"));
    } else if (find_key(path) == nullptr && find_trainer_name(path) == nullptr) {
      problem("sluice.ignore", cat("\"", path, "\" is no key that is known", suggestion(path)));
    } else {
      ignored_[path] = false;
    }
  }
}

void KeyTree::remove_ignored() {
  constexpr const char* kText = "as asked; results may differ from what it says";
  for (auto& [path, was_there] : ignored_) {
    Json* parent = tree_->parent_of(path);
    const std::string last = parts_of(path).back();
    if (find_key(path) != nullptr && parent != nullptr && parent->is_object() && parent->contains(last)) {
      report(path, KeyClass::kIgnored, kText);
      parent->erase(last);
      ignored_present_.push_back(path);
      was_there = true;
    }
    if (find_trainer_name(path) != nullptr && trainer_.contains(path)) {
      report_trainer(path, KeyClass::kIgnored, kText);
      trainer_.erase(path);
      ignored_present_.push_back("--" + path);
    }
  }
}

// ---- what is there

bool KeyTree::has(const std::string& path) const {
  return tree_->find_value(path) != nullptr;
}

bool KeyTree::is_auto(const std::string& path) const {
  const Json* value = tree_->find_value(path);
  return value != nullptr && *value == "auto";
}

bool KeyTree::is_block(const std::string& path) const {
  const Json* value = tree_->find(path);
  return value != nullptr && value->is_object();
}

bool KeyTree::was_ignored(const std::string& path) const {
  return std::any_of(ignored_.begin(), ignored_.end(), [&](const auto& each) { return each.second && is_below(path, each.first); });
}

std::string KeyTree::shown(const std::string& path) const {
  const Json* value = tree_->find(path);
  if (value == nullptr && tree_->root.contains(path)) value = &tree_->root.at(path);  // a name with dots, which is refused
  return value == nullptr ? "null" : text_of(*value);
}

std::vector<std::string> KeyTree::names_in(const std::string& block) const {
  std::vector<std::string> names;
  const Json* value = tree_->find(block);
  if (value == nullptr || !value->is_object()) return names;
  for (const auto& [name, inner] : value->items()) names.push_back(name);
  return names;
}

bool KeyTree::is_one_of(const std::string& path, std::string_view values) const {
  const Json* value = tree_->find(path);
  return value != nullptr && is_listed(*value, values);
}

bool KeyTree::is_nothing(const std::string& path) const {
  const Json* value = tree_->find_value(path);
  return value == nullptr || *value == false || (value->is_structured() && value->empty());
}

bool KeyTree::has_type(const std::string& path, ValueType type) const {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return true;
  switch (type) {
    case ValueType::kAny:
      return true;
    case ValueType::kFlag:
      return value->is_boolean();
    case ValueType::kWhole:
      return whole_of(*value).has_value();
    case ValueType::kNumber:
      return number_in(*value, -kNoLimit, kNoLimit).has_value();
    case ValueType::kText:
      return value->is_string();
    case ValueType::kTexts:
      return value->is_string() ||
             (value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& each) { return each.is_string(); }));
    case ValueType::kList:
      return value->is_array();
    case ValueType::kObject:
      return value->is_object();
    case ValueType::kSize:
      return value->is_number() || value->is_string();
  }
  return false;
}

// ---- typed values

std::optional<double> KeyTree::number(const std::string& path, double low, double high) {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> found = number_in(*value, low, high);
  if (!found) problem(path, cat("found ", text_of(*value), ", expected ", range_text(low, high)));
  return found;
}

std::optional<std::int64_t> KeyTree::whole(const std::string& path, std::int64_t low, std::int64_t high) {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> found = whole_of(*value);
  if (found && *found >= low && *found <= high) return found;
  problem(path, cat("found ", text_of(*value), ", expected ", whole_range_text(low, high)));
  return std::nullopt;
}

std::optional<std::uint64_t> KeyTree::seed(const std::string& path) {
  const Json* value = tree_->find_value(path);
  if (value != nullptr && value->is_number_unsigned()) return value->get<std::uint64_t>();
  const std::optional<std::int64_t> found = whole(path, 0);
  return found ? std::optional(static_cast<std::uint64_t>(*found)) : std::nullopt;
}

std::optional<bool> KeyTree::flag(const std::string& path) {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  problem(path, cat("found ", text_of(*value), ", expected true or false"));
  return std::nullopt;
}

std::optional<std::string> KeyTree::text(const std::string& path) {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() && !value->get<std::string>().empty()) return value->get<std::string>();
  problem(path, cat("found ", text_of(*value), ", expected a text"));
  return std::nullopt;
}

std::vector<std::string> KeyTree::texts(const std::string& path) {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return {};
  std::vector<std::string> found;
  for (const Json& entry : value->is_array() ? *value : Json::array({*value})) {
    if (!entry.is_string() || entry.get<std::string>().empty()) {
      problem(path, cat("found ", text_of(*value), ", expected a list of texts, none of them empty"));
      return {};
    }
    found.push_back(entry.get<std::string>());
  }
  return found;
}

std::optional<std::vector<double>> KeyTree::numbers(const std::string& path, std::size_t count, double low, double high) {
  const Json* value = tree_->find_value(path);
  if (value == nullptr) return std::nullopt;
  std::vector<double> found;
  if (value->is_array()) {
    for (const Json& each : *value) {
      if (const auto number = number_in(each, low, high)) found.push_back(*number);
    }
  }
  if (value->is_array() && value->size() == count && found.size() == count) return found;
  problem(path, cat("found ", text_of(*value), ", expected a list of ", count, " numbers from ", low, " to ", high));
  return std::nullopt;
}

std::optional<std::string> KeyTree::one_of(const std::string& path, const std::vector<std::string>& known) {
  std::optional<std::string> word = text(path);
  if (!word || std::find(known.begin(), known.end(), *word) != known.end()) return word;
  const std::string near = spec::nearest_word(*word, known);
  problem(path, cat("found \"", *word, "\", expected one of ", joined(known),
                    near.empty() ? std::string() : cat("; the nearest is \"", near, "\"")));
  return std::nullopt;
}

std::optional<std::int64_t> KeyTree::bytes(const std::string& path) {
  const Json* value = tree_->find_value(path);
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
  problem(path, cat("found ", text_of(*value), ", expected a size above 0, as \"2GiB\""));
  return std::nullopt;
}

std::optional<std::int64_t> KeyTree::hinted_whole(const std::string& path, std::int64_t low, std::int64_t high) {
  if (is_auto(path)) return std::nullopt;
  return whole(path, low, high);
}

std::optional<bool> KeyTree::hinted_flag(const std::string& path) {
  if (is_auto(path)) return std::nullopt;
  return flag(path);
}

// ---- the Trainer's names

std::optional<std::string> KeyTree::trainer_text(const std::string& name) const {
  const auto found = trainer_.find(name);
  return found == trainer_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> KeyTree::trainer_number(const std::string& name, double low, double high) {
  const std::optional<std::string> text = trainer_text(name);
  if (!text) return std::nullopt;
  const std::optional<double> found = number_in(trainer_value(*text), low, high);
  if (!found) trainer_problem(name, cat("found \"", *text, "\", expected ", range_text(low, high)));
  return found;
}

std::optional<std::int64_t> KeyTree::trainer_whole(const std::string& name, std::int64_t low) {
  const std::optional<std::string> text = trainer_text(name);
  if (!text) return std::nullopt;
  const std::optional<std::int64_t> found = whole_of(trainer_value(*text));
  if (found && *found >= low) return found;
  trainer_problem(name, cat("found \"", *text, "\", expected ", whole_range_text(low, kAnyWhole)));
  return std::nullopt;
}

std::optional<bool> KeyTree::trainer_flag(const std::string& name) {
  const std::optional<std::string> text = trainer_text(name);
  if (!text) return std::nullopt;
  const std::string word = lower(*text);
  if (word == "true" || word == "yes" || word == "1") return true;
  if (word == "false" || word == "no" || word == "0") return false;
  trainer_problem(name, cat("found \"", *text, "\", expected true or false"));
  return std::nullopt;
}

std::optional<std::string> KeyTree::trainer_one_of(const std::string& name, const std::vector<std::string>& known) {
  std::optional<std::string> word = trainer_text(name);
  if (!word || std::find(known.begin(), known.end(), *word) != known.end()) return word;
  trainer_problem(name, cat("found \"", *word, "\", expected one of ", joined(known)));
  return std::nullopt;
}

std::map<std::string, double> KeyTree::trainer_numbers(const std::string& name) {
  const std::optional<std::string> text = trainer_text(name);
  if (!text) return {};
  const Json value = trainer_value(*text);
  std::map<std::string, double> found;
  if (value.is_object()) {
    for (const auto& [key, each] : value.items()) {
      if (const auto number = number_in(each, -kNoLimit, kNoLimit)) found[key] = *number;
    }
  }
  if (value.is_null() || (value.is_object() && found.size() == value.size())) return found;
  trainer_problem(name, cat("found ", *text, ", expected an object of numbers, as '{\"min_lr\": 1e-5}'"));
  return {};
}

bool KeyTree::trainer_is_one_of(const std::string& name, std::string_view values) const {
  const std::optional<std::string> text = trainer_text(name);
  return text && is_listed(trainer_value(*text), values);
}

std::optional<double> KeyTree::number_or_trainer(const std::string& path, const std::string& name, double low, double high,
                                                 std::vector<std::string>* missing) {
  const std::optional<double> given = trainer_number(name, low, high);
  if (!has(path)) return given;
  if (is_auto(path)) {
    if (given || trainer_has(name)) return given;
    const TrainerName* row = find_trainer_name(name);
    if (!trainer_.empty() && !row->fallback.empty()) {
      // Whoever speaks the Trainer's language is used to its defaults.
      moved_default(path, std::string(row->fallback), cat("--", name, "'s default in the Trainer"), "\"auto\"");
      return Json::parse(row->fallback).get<double>();
    }
    (missing != nullptr ? *missing : result_.missing_for_training)
        .push_back(cat(where(path), " is \"auto\" and nothing fills it; give --", name, " or write a number"));
    return std::nullopt;
  }
  const std::optional<double> written = number(path, low, high);
  if (written && given && *written != *given) mismatch(path, name);
  return written;
}

std::optional<std::int64_t> KeyTree::whole_or_trainer(const std::string& path, const std::string& name, std::int64_t low,
                                                      std::vector<std::string>* missing) {
  if (has(path) && !is_auto(path)) {
    const std::optional<std::int64_t> written = whole(path, low);
    const std::optional<std::int64_t> given = trainer_whole(name, low);
    if (written && given && *written != *given) mismatch(path, name);
    return written;
  }
  if (trainer_has(name)) return trainer_whole(name, low);
  const std::optional<double> found = number_or_trainer(path, name, static_cast<double>(low), kNoLimit, missing);
  return found ? std::optional(static_cast<std::int64_t>(*found)) : std::nullopt;
}

// ---- what is found

std::string KeyTree::where(const std::string& path) const {
  std::string at = path;
  while (true) {
    const auto found = origins_.find(at);
    // The place of an outer key, but the whole path.
    if (found != origins_.end()) return at == path ? found->second : found->second + path.substr(at.size());
    const std::size_t dot = at.rfind('.');
    if (dot == std::string::npos) break;
    at = at.substr(0, dot);
  }
  // A block that the command line opened has no place of its own; the key that opened it has.
  const auto inner = origins_.lower_bound(path + ".");
  return inner != origins_.end() && is_below(inner->first, path) ? cat(inner->second, ": ", path) : path;
}

void KeyTree::problem(const std::string& path, const std::string& text) {
  result_.problems.push_back(cat(where(path), ": ", text));
  for (KeyReport& key : result_.configuration.keys) {
    if (key.path != path) continue;
    key.key_class = KeyClass::kRefused;
    key.note = text;
  }
}

void KeyTree::trainer_problem(const std::string& name, const std::string& text) {
  result_.problems.push_back(cat("--", name, ": ", text));
  for (KeyReport& key : result_.configuration.keys) {
    if (key.path != "--" + name) continue;
    key.key_class = KeyClass::kRefused;
    key.note = text;
  }
}

void KeyTree::mismatch(const std::string& path, const std::string& name) {
  mismatches_.push_back(cat(path, " is ", shown(path), " and --", name, " says ", trainer_.at(name)));
}

void KeyTree::note(const std::string& text) {
  result_.configuration.notes.push_back(text);
}

void KeyTree::report(const std::string& path, KeyClass key_class, const std::string& text) {
  result_.configuration.keys.push_back({path, shown(path), key_class, text});
}

void KeyTree::report_trainer(const std::string& name, KeyClass key_class, const std::string& text) {
  result_.configuration.keys.push_back({"--" + name, trainer_.at(name), key_class, text});
}

void KeyTree::moved_default(const std::string& path, const std::string& value, const std::string& reason, const std::string& found) {
  std::vector<KeyReport>& keys = result_.configuration.keys;
  const auto old = std::find_if(keys.begin(), keys.end(), [&](const KeyReport& key) { return key.path == path; });
  if (old != keys.end()) {
    *old = {path, value, KeyClass::kMovedDefault, reason};
  } else {
    keys.push_back({path, value, KeyClass::kMovedDefault, reason});
  }
  note(cat(path, " is ", found, ": ", value, ", ", reason));
}

std::string KeyTree::suggestion(const std::string& path) const {
  const std::string near = nearest_key(path);
  if (!near.empty()) return cat("; the nearest known key is \"", near, "\"");
  const std::size_t dot = path.rfind('.');
  const std::string parent = dot == std::string::npos ? std::string() : path.substr(0, dot);
  if (parent.empty()) return "; none is near it; a name that begins with _ is free for comments";
  return cat("; known in ", parent, ": ", joined(keys_below(parent)));
}

}  // namespace sluice::app
