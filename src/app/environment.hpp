#pragma once
// The process environment as a value. The only place of the program that reads it; everything else is handed this.

#include <map>
#include <string>

namespace sluice::app {

using Environment = std::map<std::string, std::string>;

/// A copy of all variables of this process.
Environment read_environment();

/// The variable's value; empty where it is not set.
std::string value_of(const Environment& environment, const std::string& name);

}  // namespace sluice::app
