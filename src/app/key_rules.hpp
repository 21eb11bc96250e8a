#pragma once
// Every key that a configuration may hold, and what becomes of it: DeepSpeed 0.19.8's and those of `sluice`.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::app {

enum class KeyRule : std::uint8_t {
  kHonoured,     // read and obeyed as documented
  kHint,         // about placement: the planner starts from it and may beat it
  kPerformance,  // tunes or watches another engine; changes no result
  kOnly,         // obeyed only where the value is one of `allowed`; any other would change results
  kSwitch,       // a block that would change results when it is on: refused unless its "enabled" is false
  kPresence,     // refused unless null, false or empty: being there turns it on
  kAbsent,       // of `sluice`: the feature is not in this version; only the values of `allowed` mean "off"
};

/// `path` is dotted from the file's root. A rule without rules below it covers the whole block.
struct Key {
  std::string_view path;
  KeyRule rule = KeyRule::kHonoured;
  std::string_view allowed;  // kOnly, kAbsent: JSON values that are fine, separated by '|'
  std::string_view advice;   // ends the error: what to do instead
};

std::span<const Key> known_keys();
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

}  // namespace sluice::app
