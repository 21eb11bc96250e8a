#pragma once
// What a disk can do for the file engine, and with which block size and depth.

#include <cstdint>
#include <string>
#include <vector>

#include "memory/io/file_engine.hpp"
#include "memory/io/swap_file.hpp"

namespace sluice::memory {

/// Sequential rates in bytes per second, over `DiskFigures::file_bytes` of one file. A drive that writes to a fast cache first
/// is slower once that is full; a figure from more bytes is nearer to a long run's.
struct DiskFigures {
  struct Candidate {
    std::int64_t block_bytes = 0;
    int depth = 0;
    double read_rate = 0;
    double write_rate = 0;
  };
  FileEngine::Service service = FileEngine::Service::kAio;
  bool direct = false;
  IoAlignment alignment;
  std::int64_t file_bytes = 0;  // all of it was written once before anything was measured
  std::vector<Candidate> candidates;
  // The chosen one: with the fewest bytes in flight of all whose time to read and write a byte is within 3 % of the shortest.
  std::int64_t block_bytes = 0;
  int depth = 0;
  double read_rate = 0;
  double write_rate = 0;
  double read_rate_both = 0;  // reads and writes at once
  double write_rate_both = 0;
  double read_core_seconds = 0;  // processor seconds per byte of reading alone, of this process; meaningful while it is idle else
  double write_core_seconds = 0;
  std::vector<std::string> notes;  // as of SwapSpace
};

struct MeasureDiskOptions {
  std::string path;  // a directory
  SwapIdentity identity;
  std::int64_t file_bytes = std::int64_t{1} << 30;
  double seconds = 2;  // of measuring, the first writing of the file aside
  bool allow_network = false;
};

/// Measures with a swap file of its own, which is gone afterwards. Takes a little over options.seconds and the time to write the
/// file once. Throws as SwapSpace::open and IoTicket::wait.
DiskFigures measure_disk(const MeasureDiskOptions& options, const IoSystem& system = IoSystem::real());

}  // namespace sluice::memory
