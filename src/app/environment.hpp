#pragma once
// The process environment as a value. The only place of the program that reads it; everything else is handed this.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace sluice::app {

using Environment = std::map<std::string, std::string>;

/// A copy of all variables of this process.
Environment read_environment();

/// The variable's value; empty where it is not set.
std::string value_of(const Environment& environment, const std::string& name);

/// A launcher started this process as another rank than 0, going by the variables that Open MPI, PMIx, MPICH and Slurm set. For
/// what all ranks would say alike before MPI is up.
bool is_later_rank(const Environment& environment);

/// How many ranks the launcher started, going by the same variables; none where none says so.
std::optional<std::int64_t> launched_ranks(const Environment& environment);

/// The width of the terminal on which somebody sees this process's standard output; none where nobody does, or where that can't be known.
/// Open MPI gives a rank a terminal even where its own output goes to a file, so of a launched one its launcher's standard output has to be
/// a terminal as well: that of the nearest process above it that is no rank itself. A launcher's daemon on another node has none.
std::optional<int> watched_columns(const Environment& environment);

}  // namespace sluice::app
