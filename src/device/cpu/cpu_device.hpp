#pragma once
// The cpu backend of Device, and what this machine's processor and memory are.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace sluice::device {

/// Streams run their work at once on the issuing thread; events are atomics that spin briefly, then sleep.
std::unique_ptr<Device> make_cpu_device();

enum class Isa : std::uint8_t { kBaseline, kAvx2, kAvx512 };
std::string_view name_of(Isa isa);
/// The widest set of instructions that this processor and its operating system support, among those our kernels know.
Isa detect_isa();

struct CpuFacts {
  std::string model_name;                   // from /proc/cpuinfo
  int cores = 0;                            // in this process's affinity mask
  std::int64_t memory_total_bytes = 0;      // of the node, or the cgroup's limit if lower
  std::int64_t memory_available_bytes = 0;  // MemAvailable, or what the cgroup has left if lower
  std::string memory_limit_source;          // "node" or the cgroup file that limits it
};
CpuFacts read_cpu_facts();

/// Bytes of this process: resident now and at peak (VmRSS, VmHWM), where a page of another rank's window counts in full once
/// it was read; and now with shared pages divided among who maps them (Pss), so that the ranks' figures add up to the node's.
struct ResidentBytes {
  std::int64_t now = 0;
  std::int64_t peak = 0;
  std::int64_t proportional = 0;
};
ResidentBytes read_resident_bytes();

/// Flush denormals to zero on the calling thread (they are very slow in Adam's second moment and softmax tails).
void flush_denormals_on_this_thread();

}  // namespace sluice::device
