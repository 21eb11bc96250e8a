#pragma once
// Communicator over MPI. The only place that starts and ends MPI.

#include <memory>

#include "comm/communicator.hpp"

namespace sluice::comm {

struct MpiOptions {
  bool use_windows = true;  // false: never address a peer's memory directly (tests of the path between nodes)
  int ranks_per_node = 0;   // > 0: treat each so many consecutive ranks as a node (tests of several nodes on one)
  double silence_limit_seconds = kSilenceLimitSeconds;  // of its channels; its own calls wait three times as long for the last rank
};

/// MPI_Init_thread(SERIALIZED) in the constructor, MPI_Finalize in the destructor. An exception that leaves its scope skips
/// MPI_Finalize, which would wait for ranks that don't come: catch inside and end by Communicator::abort().
class MpiEnvironment {
 public:
  MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  ~MpiEnvironment();
  /// A duplicate of MPI_COMM_WORLD with errors returned. Collective.
  std::unique_ptr<Communicator> world(const MpiOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "Open MPI v4.1.4": the library's own version line, first line only.
std::string mpi_library_version();

}  // namespace sluice::comm
