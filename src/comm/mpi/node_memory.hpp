#pragma once
// Memory of each rank of a node, mapped by all of them. Not for other folders.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/exchange.hpp"

namespace sluice::comm {

/// One collective allocation. Anonymous files (memfd) of each rank that the others open through /proc and map read-only, not
/// MPI_Win_allocate_shared: these have no name that a killed job leaves behind, no limit but the machine's memory (containers
/// give /dev/shm 64 MB), and are released by each rank alone; freeing an MPI window is collective, so that a rank which fails
/// would hang in its destructors.
class NodeMemory {
 public:
  /// Collective over `node`. On failure returns nullptr on this rank, and says why in `failure`; other ranks may succeed, so the
  /// caller must agree. `world_rank` and `serial` name this rank's part to the others. Not yet touched; zero when touched.
  static std::unique_ptr<NodeMemory> allocate(MPI_Comm node, std::int64_t bytes, int world_rank, std::uint64_t serial,
                                              const std::string& tag, std::string& failure);
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  ~NodeMemory();

  struct Part {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;         // as asked for
    std::int64_t mapped_bytes = 0;  // whole pages
    int world_rank = 0;
    std::uint64_t serial = 0;
  };
  const Part& own() const noexcept { return parts_[own_]; }
  /// In order of rank in the node; parts of others are read-only.
  const std::vector<Part>& parts() const noexcept { return parts_; }

 private:
  NodeMemory() = default;
  std::vector<Part> parts_;
  std::size_t own_ = 0;
};

/// The windows of this process, by which it finds peers' memory and knows who finds its own. Shared by all communicators.
class WindowRegistry {
 public:
  /// Unique among this rank's allocations; the same call on all ranks need not give the same number.
  std::uint64_t next_serial() { return next_serial_++; }
  void add(const NodeMemory& memory);
  void remove(const NodeMemory& memory) noexcept;

  /// Fills place, owner, serial, offset where [data, data + bytes) lies in one window of this rank; else leaves them.
  void locate(const std::byte* data, std::int64_t bytes, Publication& publication) const;
  /// Whether the process with that world rank maps this rank's window `serial`.
  bool is_mapped_by(int world_rank, std::uint64_t serial) const;
  /// Address of another rank's publication here; nullptr if this process never mapped that window. LogicError if it did and
  /// has released it: the window's owner counts on it.
  const std::byte* resolve(const Publication& publication) const;

 private:
  struct OwnWindow {
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;
    int world_rank = 0;
    std::uint64_t serial = 0;
    std::vector<int> mapped_by;
  };
  std::uint64_t next_serial_ = 1;
  std::vector<OwnWindow> own_;
  std::map<std::pair<int, std::uint64_t>, const std::byte*> peers_;  // nullptr: released
};

}  // namespace sluice::comm
