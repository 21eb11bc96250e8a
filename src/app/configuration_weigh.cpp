// What becomes of every key, by the tables of key_rules.hpp.

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

std::string name_of_type(ValueType type) {
  switch (type) {
    case ValueType::kAny:
      return "any value";
    case ValueType::kFlag:
      return "true or false";
    case ValueType::kWhole:
      return "a whole number";
    case ValueType::kNumber:
      return "a number";
    case ValueType::kText:
      return "a text";
    case ValueType::kTexts:
      return "a list of texts";
    case ValueType::kList:
      return "a list [...]";
    case ValueType::kObject:
      return "an object {...}";
    case ValueType::kSize:
      return "a size, as \"2GiB\"";
  }
  return {};
}

class Scale {
 public:
  explicit Scale(KeyTree& keys) : keys_(keys) {}

  void weigh_block(const std::string& block) {
    for (const std::string& name : keys_.names_in(block)) {
      if (is_comment_key(name)) continue;
      const std::string path = block.empty() ? name : cat(block, ".", name);
      const Key* key = find_key(path);
      if (name.find('.') != std::string::npos) {
        refuse(path, cat("unknown key: \"", name, "\" has a dot; write nested objects {...}"));
      } else if (key == nullptr) {
        refuse(path, cat("unknown key", keys_.suggestion(path)));
      } else if (has_keys_below(path) && keys_.has(path)) {
        if (keys_.is_block(path)) {
          weigh_block(path);
        } else {
          refuse(path, cat("found ", keys_.shown(path), ", expected an object {...} with keys such as ", keys_below(path).front()));
        }
      } else {
        weigh(*key, path);
      }
    }
  }

 private:
  void refuse(const std::string& path, const std::string& text) {
    keys_.report(path, KeyClass::kRefused, text);
    keys_.problem(path, text);
  }

  std::string unless_ignored(const std::string& path) const { return cat(" (or --ignore ", path, ")"); }

  void weigh(const Key& key, const std::string& path) {
    const bool ours = is_below(path, "sluice");
    if (ours && keys_.is_auto(path)) {
      refuse(path, "\"auto\" is no value inside sluice; leave the key out, absent means automatic");
      return;
    }
    if (key.rule == KeyRule::kRemoved) {
      refuse(path, cat("DeepSpeed 0.19.8 refuses this key, even where it is off; ", key.advice, unless_ignored(path)));
      return;
    }
    // Parts that read a key say more about a wrong type than this can.
    const bool is_read = key.rule == KeyRule::kHonoured || key.rule == KeyRule::kSwitch || key.rule == KeyRule::kPresence;
    if (!is_read && !keys_.is_auto(path) && !keys_.has_type(path, key.type)) {
      refuse(path, cat("found ", keys_.shown(path), ", expected ", name_of_type(key.type)));
      return;
    }
    const std::string found = cat("found ", keys_.shown(path));
    switch (key.rule) {
      case KeyRule::kHonoured:
        keys_.report(path, KeyClass::kHonoured);
        break;
      case KeyRule::kHint:
        keys_.report(path, KeyClass::kHint);
        break;
      case KeyRule::kPerformance:
        keys_.report(path, KeyClass::kPerformanceOnly);
        break;
      case KeyRule::kOnly:
        if (!keys_.has(path) || keys_.is_auto(path) || keys_.is_one_of(path, key.fallback) || keys_.is_one_of(path, key.allowed)) {
          keys_.report(path, KeyClass::kHonoured);
        } else {
          refuse(path, cat(found, ", which changes results: ", key.advice, unless_ignored(path)));
        }
        break;
      case KeyRule::kSwitch:
        weigh_switch(key, path);
        break;
      case KeyRule::kPresence:
        if (keys_.is_nothing(path) || keys_.is_one_of(path + ".enabled", "false")) {
          keys_.report(path, KeyClass::kHonoured, "off");
        } else {
          refuse(path, cat("changes results: ", key.advice, unless_ignored(path)));
        }
        break;
      case KeyRule::kAbsent:
        if (!keys_.has(path) || keys_.is_one_of(path, key.allowed)) {
          keys_.report(path, KeyClass::kHonoured);
        } else {
          refuse(path, cat(found, ", which is not in this version of Sluice; ", key.advice));
        }
        break;
      case KeyRule::kRemoved:
        break;
    }
  }

  void weigh_switch(const Key& key, const std::string& path) {
    const std::string place = keys_.is_block(path) ? path + ".enabled" : path;
    if (!keys_.has(place) || keys_.is_auto(place) || keys_.is_one_of(place, "false")) {
      keys_.report(path, KeyClass::kHonoured, "off");
    } else {
      refuse(place, cat("found ", keys_.shown(place), ", which changes results: ", key.advice, unless_ignored(path)));
    }
  }

  KeyTree& keys_;
};

}  // namespace

void weigh_keys(Reading& reading) {
  Scale(reading.keys).weigh_block("");
}

}  // namespace sluice::app
