#pragma once
// What a run has to do with the directories of --nvme-path besides swapping itself: whether they serve, what others left there, how
// much room there is and how much is written.

#include <cstdint>
#include <string>
#include <vector>

#include "app/budget.hpp"
#include "app/configuration.hpp"
#include "app/environment.hpp"
#include "memory/io/file_system.hpp"
#include "schedule/price.hpp"

namespace sluice::app {

/// Throws RequestError for a path that is no directory or on a network file system that isn't allowed, EnvironmentError for one that
/// this user can't write to; both name its key. Makes nothing.
void check_swap_paths(const Configuration& configuration);

/// A name for this run's swap files that no other run has: the batch system's job, if any, this process and a random number, since
/// containers that share a disk give their processes the same numbers. Rank 0's counts for all.
std::string swap_job(const Environment& environment);

/// Removes what dead processes of this user left in the paths; what was removed and what wasn't, one line each, living owners' files
/// left out. By one rank per host.
std::vector<std::string> remove_swap_leftovers(const Configuration& configuration, const std::string& host);

/// The room at each path now; `claimed_bytes` of them will be written to `directory`, which exists or will be made. `hosts`: of the run;
/// they share what is on a network.
std::vector<SwapRoom> swap_rooms(const Configuration& configuration, const std::string& directory, std::int64_t claimed_bytes,
                                 std::int64_t hosts);

/// What the run will write to `directory` as a claim on the disks swapped to; none where it lies on another disk.
std::vector<memory::SpaceClaim> space_claims(const Configuration& configuration, const std::string& directory, std::int64_t claimed_bytes);

/// Bytes of all regular files below a directory; 0 where there is none.
std::int64_t bytes_below(const std::string& directory);

/// "reads 2.10 GiB from and writes 1.20 GiB to disk a step, at 1.1 s a step 92.0 TiB written a day".
std::string describe_traffic(const schedule::DiskTraffic& traffic, double seconds);

}  // namespace sluice::app
