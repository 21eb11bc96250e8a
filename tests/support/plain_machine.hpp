#pragma once
// A machine whose prices can be worked out by hand.

#include "spec/machine_spec.hpp"

namespace sluice::testing {

/// Four cores and 100 bytes a second of memory for one rank; no overheads unless a test sets them.
inline spec::MachineSpec plain_machine() {
  spec::MachineSpec m;
  m.ranks_per_node = 1;
  m.cores_per_node = 4;
  m.threads_per_rank = 4;
  m.flops_per_core = 10;
  m.memory_bytes_per_second = 100;
  m.update_bytes_per_second = 56;
  m.gather = {.latency_seconds = 0.5, .bytes_per_second = 1024};
  m.scatter = {.latency_seconds = 0.25, .bytes_per_second = 512};
  m.agree_seconds = 0.125;
  m.task_seconds = 0;
  m.wake_seconds = 0;
  return m;
}

}  // namespace sluice::testing
