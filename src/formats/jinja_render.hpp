#pragma once
// Running a template.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/jinja_program.hpp"
#include "formats/jinja_value.hpp"

namespace sluice::formats::jinja {

struct Rendering {
  std::string text;
  std::vector<std::pair<std::int64_t, std::int64_t>> generated;  // bytes of {% generation %} blocks, ascending, none empty
};

/// `variables`: what the template finds by name. `steps`: what it may spend (Budget). Throws RequestError "SOURCE:LINE: ...": with the
/// template's own words where it calls raise_exception, for an operation that Python would refuse as well, for what the subset
/// lacks and only shows now, and when steps or the stack run out.
Rendering render(const Program& program, const std::vector<std::pair<std::string, Value>>& variables, std::int64_t steps);

}  // namespace sluice::formats::jinja
