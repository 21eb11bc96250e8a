#pragma once
// `doctor --nvme-path`: what a directory to swap to can do, and what lies there.

#include <cstdint>
#include <string>
#include <vector>

#include "app/doctor.hpp"
#include "memory/io/swap_file.hpp"

namespace sluice::app {

/// What a path's findings are made from.
struct SwapPathFacts {
  std::string path;
  std::string problem;  // why it can't be swapped to; empty: it can
  std::string file_system;
  bool is_network = false;
  bool is_memory = false;
  std::int64_t free_bytes = -1;
  bool is_probed = false;  // a file was made there and opened as swap files are:
  bool is_aio = false;
  bool is_direct = false;
  std::int64_t alignment = 0;
  std::string note;  // why it isn't aio on direct I/O
  std::vector<memory::SwapFinding> files;
};

/// What holds for all paths; -1 where it can't be read.
struct SwapLimits {
  std::int64_t aio_most = -1;        // requests in flight of all programs (fs.aio-max-nr)
  std::int64_t aio_taken = -1;       // of them
  std::int64_t lockable_bytes = -1;  // memory that a process may lock; 0x7FFF...: no limit
};

/// Looks at the path, with a small file of its own that is gone afterwards.
SwapPathFacts read_swap_path(const std::string& path, const std::string& host);
SwapLimits read_swap_limits();

/// All findings, fine ones too, in a fixed order. Pure.
std::vector<Finding> diagnose_swap(const std::vector<SwapPathFacts>& paths, const SwapLimits& limits);

}  // namespace sluice::app
