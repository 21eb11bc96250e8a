#pragma once
// A machine as the planner and the simulator see it: what its resources can do, measured by profile/ or taken from a
// machine file with the source of each number.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sluice::spec {

/// seconds(bytes) = latency_seconds + bytes / bytes_per_second, of which several operations in flight share the latency.
struct LinearCost {
  double latency_seconds = 0;
  double bytes_per_second = 1e9;
  double core_seconds = 0;  // that each operation takes from computing, whatever its bytes
  double seconds(double bytes) const { return latency_seconds + bytes / bytes_per_second; }
  friend bool operator==(const LinearCost&, const LinearCost&) = default;
};

/// A measured segment: seconds of one phase for `tokens` tokens (rows * sequence) on `threads` threads, all ranks of the
/// node busy at once.
struct SegmentTime {
  std::string segment;  // "embedding", "attention", "mlp", "head"
  std::string phase;    // "forward", "backward", "forward_backward", "recompute"
  std::int64_t hidden = 0;
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  double seconds = 0;
  friend bool operator==(const SegmentTime&, const SegmentTime&) = default;
};

/// What the disks under the swap paths can do, all paths of a node together, with all its ranks busy.
struct DiskSpeed {
  double read_bytes_per_second = 0;  // 0: no disk was measured
  double write_bytes_per_second = 0;
  double read_beside_write = 0;  // the same while both go on; 0: not measured, then half of each is left
  double write_beside_read = 0;
  std::int64_t block_bytes = 1 << 20;  // of a request, and how many in flight: what these were measured with
  int depth = 32;
  std::int64_t free_bytes = 0;
  friend bool operator==(const DiskSpeed&, const DiskSpeed&) = default;
};

struct MachineSpec {
  std::string name;                           // of the file or the host set
  std::string device = "cpu";                 // "cpu" or "cuda"
  std::string device_name;                    // "AMD EPYC ..."
  std::string isa;                            // "avx512", "avx2"
  int ranks_per_node = 1;                     // when it was measured
  double cores_per_node = 1;                  // usable by our ranks
  int threads_per_rank = 1;                   // when it was measured
  double flops_per_core = 50e9;               // fp32 FLOP/s of one core in a large GEMM, all ranks busy
  double device_flops = 0;                    // of one rank's device; 0 on cpu, where the cores are the device
  double device_memory_bytes_per_second = 0;  // of one rank's device; 0 on cpu
  double memory_bytes_per_second = 10e9;      // of the node, read + write, all ranks busy
  double update_bytes_per_second = 10e9;      // optimizer traffic (28 B an element in fp32) of one rank, all ranks busy
  // Copies between host memory and one rank's device arena, per rank and direction, all ranks busy; on "cpu" of one thread. 0: not
  // measured; then on "cpu" the memory's speed sets the limit, and elsewhere nothing leaves the device.
  double upload_bytes_per_second = 0;
  double download_bytes_per_second = 0;
  LinearCost gather;                 // receiving `bytes` from the group's other ranks into a region, per rank
  LinearCost scatter;                // reducing and receiving `bytes` of gradient slices, per rank
  double link_bytes_per_second = 0;  // of a node's network, each way, shared by its ranks; 0: `gather` and `scatter` say it all
  double link_latency_seconds = 0;   // what a collective over several nodes takes on top
  double agree_seconds = 50e-6;      // a tiny all-reduce over all ranks
  double skew_seconds = 0;           // that computing waits for the last rank to come to a collective, on average
  double task_seconds = 1e-6;        // executor overhead of a task
  double wake_seconds = 20e-6;       // from a task's completion to the start of one that waited for it on another lane
  std::int64_t device_bytes = 0;     // free for one rank's device arena
  std::int64_t host_bytes = 0;       // free on the node
  std::int64_t unplanned_bytes = 0;  // measured outside the arenas, per rank
  DiskSpeed disk;
  std::vector<SegmentTime> segments;
  std::map<std::string, std::string> sources;  // key -> where the number comes from

  friend bool operator==(const MachineSpec&, const MachineSpec&) = default;
};

std::string to_json(const MachineSpec& machine);
MachineSpec machine_spec_from_json(const std::string& text, const std::string& source);

/// Bytes a plan may use. device_bytes per rank; host_bytes and disk_bytes per node, shared by its ranks. On "cpu" device + host
/// together come out of the node's memory. disk_bytes is what swap files may take; 0: there is no disk tier.
struct Budget {
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int64_t disk_bytes = 0;
  friend bool operator==(const Budget&, const Budget&) = default;
};

}  // namespace sluice::spec
