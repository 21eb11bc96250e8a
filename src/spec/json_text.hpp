#pragma once
// Strictness that every JSON file of ours shares: no object holds a key twice, and a misspelt word is answered with the
// nearest known one.

#include <string>
#include <string_view>
#include <vector>

namespace sluice::spec {

/// What is wrong with `text` as one JSON value, in one line with its place; empty when it is well formed and no object in it
/// holds a key twice. Numbers that no double can hold and nesting beyond 100 levels are refused. Does not throw, so that the
/// caller chooses the error.
std::string json_problem(const std::string& text);

/// The word of `known` that `word` was most likely meant to be; empty when none is near (more than a third of its letters
/// differ).
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace sluice::spec
