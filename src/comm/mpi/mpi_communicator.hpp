#pragma once
// Communicator over MPI. The only place that starts and ends MPI.

#include <memory>

#include "comm/communicator.hpp"

namespace sluice::comm {

struct MpiOptions {
  bool use_windows = true;  // false: never address a peer's memory directly (tests of the path between nodes)
};

/// MPI_Init_thread(SERIALIZED) in the constructor, MPI_Finalize in the destructor.
class MpiEnvironment {
 public:
  MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  ~MpiEnvironment();
  /// A duplicate of MPI_COMM_WORLD with errors returned.
  std::unique_ptr<Communicator> world(const MpiOptions& options = {});
};

/// "Open MPI v4.1.4": the library's own version line, first line only.
std::string mpi_library_version();

}  // namespace sluice::comm
