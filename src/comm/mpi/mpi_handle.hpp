#pragma once
// MPI's handles and return codes, as the rest of mpi/ uses them. Not for other folders.

#include <mpi.h>

#include <limits>
#include <string>
#include <utility>

namespace sluice::comm {

/// Throws CommError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const std::string& operation);

/// Between MPI_Init and MPI_Finalize.
bool mpi_is_running() noexcept;

/// Waits for a request by polling with back-off, so that a waiting rank leaves the processor to others. Throws CommError, and PeerLost
/// after `limit_seconds`; then the request is still in flight, and no further MPI call but MPI_Abort may be made, since its buffers go.
void wait_for(MPI_Request request, const std::string& operation, double limit_seconds = std::numeric_limits<double>::infinity());

/// Owns a communicator. It is not freed while an exception unwinds the stack, since freeing is collective and the other ranks
/// may not be on their way here, nor after MPI has ended.
class CommHandle {
 public:
  CommHandle() = default;
  explicit CommHandle(MPI_Comm comm) : comm_(comm) {}
  CommHandle(CommHandle&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  CommHandle& operator=(CommHandle&& other) noexcept {
    if (this != &other) {
      release();
      comm_ = std::exchange(other.comm_, MPI_COMM_NULL);
    }
    return *this;
  }
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;
  ~CommHandle() { release(); }

  MPI_Comm get() const noexcept { return comm_; }
  int rank() const;
  int size() const;

  /// Collective over `comm`. All of them return errors instead of ending the job.
  static CommHandle duplicate(MPI_Comm comm);
  static CommHandle split(MPI_Comm comm, int color, int key);
  /// The ranks of `comm` that share memory with this one.
  static CommHandle split_by_node(MPI_Comm comm, int key);

 private:
  void release() noexcept;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace sluice::comm
