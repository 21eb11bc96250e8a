#include "app/key_rules.hpp"

#include <algorithm>
#include <array>

#include "spec/json_text.hpp"

namespace sluice::app {
namespace {

std::array<std::span<const Key>, 2> tables() {
  return {deepspeed_keys(), sluice_keys()};
}

template <typename Wanted>
const Key* first_key(Wanted wanted) {
  for (const std::span<const Key> table : tables()) {
    const auto found = std::find_if(table.begin(), table.end(), wanted);
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

const Key* find_key(std::string_view path) {
  return first_key([&](const Key& key) { return key.path == path; });
}

bool has_keys_below(std::string_view path) {
  return first_key([&](const Key& key) {
           return key.path.size() > path.size() + 1 && key.path.starts_with(path) && key.path[path.size()] == '.';
         }) != nullptr;
}

std::vector<std::string> keys_below(const std::string& path) {
  std::vector<std::string> names;
  const std::string prefix = path.empty() ? std::string() : path + ".";
  for (const std::span<const Key> table : tables()) {
    for (const Key& key : table) {
      if (!key.path.starts_with(prefix)) continue;
      const std::string_view rest = key.path.substr(prefix.size());
      if (!rest.empty() && rest.find('.') == std::string_view::npos) names.emplace_back(rest);
    }
  }
  return names;
}

std::string nearest_key(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string parent = dot == std::string::npos ? std::string() : path.substr(0, dot);
  const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
  if (const Key* top = find_key(last); !parent.empty() && top != nullptr) return std::string(top->path);
  const Key* elsewhere = first_key([&](const Key& key) {
    return key.path.size() > last.size() && key.path.ends_with(last) && key.path[key.path.size() - last.size() - 1] == '.';
  });
  if (elsewhere != nullptr) return std::string(elsewhere->path);
  const std::string sibling = spec::nearest_word(last, keys_below(parent));
  if (sibling.empty()) return {};
  return parent.empty() ? sibling : parent + "." + sibling;
}

bool is_comment_key(std::string_view last_part) {
  return last_part.starts_with("_") || last_part.starts_with("//") || last_part.starts_with("$");
}

const TrainerName* find_trainer_name(std::string_view name) {
  const std::span<const TrainerName> names = trainer_names();
  const auto found = std::find_if(names.begin(), names.end(), [&](const TrainerName& each) { return each.name == name; });
  return found == names.end() ? nullptr : &*found;
}

}  // namespace sluice::app
