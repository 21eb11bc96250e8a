#pragma once
// What a run would do, without starting it.

#include "app/command_line.hpp"
#include "app/environment.hpp"

namespace sluice::app {

/// `train --dry-run`: everything that can be known without starting: keys, data, whether and where the run goes on, plan. Refuses what the
/// run would refuse, with the same errors; makes nothing. Without MPI, so that it works on a login node. The exit status.
int dry_run(const Command& given, const Environment& environment);

}  // namespace sluice::app
