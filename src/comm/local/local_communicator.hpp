#pragma once
// Ranks as threads of one process: for tests, sanitizers and one-rank runs without MPI.

#include <functional>
#include <memory>

#include "comm/communicator.hpp"

namespace sluice::comm {

/// Runs `body(communicator of rank r)` on `ranks` threads and joins them. When one throws, the others' pending and later
/// calls throw CommError, and the first (in time) failure is rethrown. abort() makes the whole run throw CommError; the
/// thread that called it stays parked for good, since it may not return.
void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body);

/// A group of one rank on the calling thread. abort() ends the process with its code at once.
std::unique_ptr<Communicator> make_single_rank();

}  // namespace sluice::comm
