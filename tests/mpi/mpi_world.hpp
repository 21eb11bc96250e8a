#pragma once
// For tests that run under mpirun: the environment that tests/mpi/mpi_main.cpp has started.

#include "comm/mpi/mpi_communicator.hpp"

namespace sluice::testing {

comm::MpiEnvironment& mpi_environment();

}  // namespace sluice::testing
