#pragma once
// The rules of the source tree as functions of its files, so that they can be held against a made-up tree as well.

#include <map>
#include <string>
#include <vector>

namespace sluice::structure {

/// Path relative to the root of the repository, with '/', to content.
using Tree = std::map<std::string, std::string>;
/// One line per broken rule: "path[:line]: what was found; what is expected". Empty: the rule holds.
using Violations = std::vector<std::string>;

/// The layers of src/ from the lowest up, as in the table of the design: each may include itself and those before it.
const std::vector<std::string>& layers();

/// Every #include in src/ and include/: our own headers by layer, third-party ones by the place that may see them, system ones by
/// a list of known names. Also the sub-folders that src/ may have.
Violations check_includes(const Tree& tree);
/// Every folder of src/ that holds sources has a README.md of at least five lines.
Violations check_readmes(const Tree& tree);
/// The top level holds what it should and nothing else.
Violations check_top_level(const Tree& tree);
/// No text file names a path of one person's machine.
Violations check_machine_paths(const Tree& tree);
/// Every header of src/ begins with #pragma once and the environment is read in src/app alone.
Violations check_source_habits(const Tree& tree);

}  // namespace sluice::structure
