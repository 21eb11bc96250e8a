#pragma once
// Every name that a request may hold, and what becomes of it. The tables are data: DeepSpeed 0.19.8's keys in
// key_rules_deepspeed.cpp, ours in key_rules_sluice.cpp, TrainingArguments' names in key_rules_trainer.cpp.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::app {

enum class KeyRule : std::uint8_t {
  kHonoured,     // read and obeyed as documented
  kHint,         // about placement: the planner may start from it and may beat it
  kPerformance,  // tunes or watches another engine; changes no result
  kOnly,         // obeyed only where the value is the default or one of `allowed`; any other would change results
  kSwitch,       // a block that would change results when it is on: refused unless its "enabled" is false or absent
  kPresence,     // refused unless null, false, empty or "enabled": false: being there turns it on
  kRemoved,      // DeepSpeed 0.19.8 refuses the key itself, even when it is off
  kAbsent,       // of `sluice`: the feature is not in this version; only the values of `allowed` mean "off"
};

enum class ValueType : std::uint8_t {
  kAny,
  kFlag,    // true or false
  kWhole,   // a whole number, also written 5.0 or 5e8
  kNumber,  // finite
  kText,
  kTexts,  // a list of texts
  kList,
  kObject,
  kSize,  // bytes: a whole number or "2GiB"
};

/// `path` is dotted from the file's root. A rule without rules below it covers the whole block.
struct Key {
  std::string_view path;
  KeyRule rule = KeyRule::kHonoured;
  ValueType type = ValueType::kAny;
  std::string_view fallback;  // JSON: the value that holds where the key is absent; empty: there is none
  std::string_view allowed;   // kOnly, kAbsent: further JSON values that are fine, separated by '|'
  std::string_view advice;    // ends the error: what to do instead
};

std::span<const Key> deepspeed_keys();
std::span<const Key> sluice_keys();

/// The rule of exactly this path; null where there is none.
const Key* find_key(std::string_view path);
/// Whether rules exist below `path`.
bool has_keys_below(std::string_view path);
/// The last parts of all rules directly below `path` (the top level: ""), each once.
std::vector<std::string> keys_below(const std::string& path);
/// The known path that `path`, which is unknown, was most likely meant to be; empty when none is near. A key of another level
/// is found as well where its last part is the same ("steps" -> "sluice.steps").
std::string nearest_key(const std::string& path);
/// Keys that say nothing to a program: those whose last part begins with an underscore, "//" or '$'.
bool is_comment_key(std::string_view last_part);

enum class TrainerRule : std::uint8_t {
  kSets,         // another name of the key `path`; the command line wins over the file
  kFills,        // fills "auto" at `path` and holds where no key says otherwise; must agree with what is written
  kPerformance,  // tunes, watches or labels; changes no result
  kOnly,         // fine only with the default or one of `allowed`; any other would change results
};

/// A name of transformers' TrainingArguments, or of its example scripts.
struct TrainerName {
  std::string_view name;  // "learning_rate"
  TrainerRule rule = TrainerRule::kPerformance;
  ValueType type = ValueType::kAny;
  std::string_view path;      // kSets, kFills: of the key, for people where it is no single one
  std::string_view fallback;  // JSON: the Trainer's default; empty: there is none
  std::string_view allowed;   // kOnly: further JSON values that are fine, separated by '|'
  std::string_view advice;    // kOnly: ends the error; kSets, kFills: the help
};

std::span<const TrainerName> trainer_names();
const TrainerName* find_trainer_name(std::string_view name);

}  // namespace sluice::app
