#include "comm/mpi/mpi_handle.hpp"

#include <algorithm>
#include <exception>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/backoff.hpp"
#include "comm/communicator.hpp"

namespace sluice::comm {

void check_mpi(int code, const std::string& operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) throw CommError(operation, "MPI error " + std::to_string(code));
  throw CommError(operation, std::string(text, static_cast<std::size_t>(length)));
}

bool mpi_is_running() noexcept {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

void wait_for(MPI_Request request, const std::string& operation, double limit_seconds) {
  Backoff backoff;
  double waited = 0;
  for (std::int64_t last = now_ns();;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), operation);
    if (done != 0) return;
    backoff.idle();
    const std::int64_t now = now_ns();
    waited += std::min(static_cast<double>(now - last) * 1e-9, 1.0);  // time in which this process was stopped itself says nothing
    last = now;
    if (waited > limit_seconds) {
      throw PeerLost(operation, cat("not every rank has come to it in ", static_cast<std::int64_t>(limit_seconds),
                                    " s; one of them has stopped, hangs, or its node is gone"));
    }
  }
}

int CommHandle::rank() const {
  int value = 0;
  check_mpi(MPI_Comm_rank(comm_, &value), "MPI_Comm_rank");
  return value;
}

int CommHandle::size() const {
  int value = 0;
  check_mpi(MPI_Comm_size(comm_, &value), "MPI_Comm_size");
  return value;
}

CommHandle CommHandle::duplicate(MPI_Comm comm) {
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &made), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return CommHandle(made);
}

CommHandle CommHandle::split(MPI_Comm comm, int color, int key) {
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm, color, key, &made), "MPI_Comm_split");
  check_mpi(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return CommHandle(made);
}

CommHandle CommHandle::split_by_node(MPI_Comm comm, int key) {
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &made), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return CommHandle(made);
}

void CommHandle::release() noexcept {
  if (comm_ == MPI_COMM_NULL) return;
  if (mpi_is_running() && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

}  // namespace sluice::comm
