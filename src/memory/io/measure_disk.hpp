#pragma once
// What disks can do for the file engine, and with which block size and depth.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "memory/io/file_engine.hpp"
#include "memory/io/swap_file.hpp"

namespace sluice::memory {

/// Sequential rates in bytes per second of all paths and of all that measure together, over `DiskFigures::file_bytes` of one file
/// a path. A drive that writes to a fast cache first is slower once that is full; a figure from more bytes is nearer to a long run's.
struct DiskFigures {
  struct Candidate {
    std::int64_t block_bytes = 0;
    int depth = 0;
    double read_rate = 0;
    double write_rate = 0;
  };
  struct Path {
    FileEngine::Service service = FileEngine::Service::kAio;
    bool direct = false;
  };
  std::vector<Path> paths;      // how each is read and written, in order
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
  std::vector<std::string> paths;  // directories; bytes are spread over them evenly, as a SwapSpace does
  SwapIdentity identity;
  std::int64_t file_bytes = std::int64_t{1} << 30;          // on each path
  std::int64_t memory_bytes = 128 * std::int64_t{1} << 20;  // of buffers; with less fewer bytes are in flight
  double seconds = 2;                                       // of measuring, the first writing of the file aside
  bool allow_network = false;
  /// Where several measure at the same time, since they share the disks: runs a part of the measurement on each of them, begun
  /// together, and throws on all where it throws on one. Called equally often on all.
  std::function<void(const std::function<void()>&)> together = [](const std::function<void()>& part) { part(); };
  /// Makes a rate of one of them that of all together, the same on each.
  std::function<double(double)> total = [](double rate) { return rate; };
};

/// Measures with swap files of its own, which are gone afterwards. Takes a little over options.seconds and the time to write the
/// files once. Throws as SwapSpace::open and IoTicket::wait.
DiskFigures measure_disk(const MeasureDiskOptions& options, const IoSystem& system = IoSystem::real());

}  // namespace sluice::memory
