#pragma once
// What a configuration says about placement, as choices of a plan: hints, and what --pin keeps of them.

#include <initializer_list>
#include <string>
#include <string_view>

#include "app/configuration.hpp"
#include "plan/search.hpp"

namespace sluice::app {

/// What the file says, which the search may beat. Without a path to swap to nothing goes to disk.
plan::Choices hinted_choices(const Configuration& configuration);
/// What the pins keep of it. None of them has a problem.
plan::Choices pinned_choices(const Configuration& configuration);
/// Why `pin`, a key that is written, can't be kept, and what to do; empty: it can.
std::string pin_problem(const Configuration& configuration, std::string_view pin);
/// Whether one of the keys is pinned by its own name.
bool has_pin(const Configuration& configuration, std::initializer_list<std::string_view> keys);

}  // namespace sluice::app
