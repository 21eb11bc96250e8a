#pragma once
// How an op is to run: which body, on how many threads.

#include <cstdint>

#include "device/cpu/cpu_device.hpp"

namespace sluice::ops {

enum class Backend : std::uint8_t { kReference, kCpu };

/// A value; the same context gives the same bits for the same inputs. `threads` is explicit: no op asks the environment.
struct Context {
  Backend backend = Backend::kCpu;
  device::Isa isa = device::Isa::kBaseline;
  int threads = 1;
};

/// Backend kCpu with the detected instruction set.
Context make_cpu_context(int threads);

/// How many threads OpenMP lets an op have (OMP_THREAD_LIMIT); products refuse more.
int most_threads();

/// "onednn 2.6.3": libraries whose version may change bits, for the arithmetic signature.
const char* library_versions();

}  // namespace sluice::ops
