#pragma once
// Where a rank's share of the state lives on disk: extents with planned offsets in one space, striped over a file per path.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/arena.hpp"
#include "memory/io/file_engine.hpp"
#include "memory/io/file_system.hpp"
#include "memory/io/swap_file.hpp"

namespace sluice::memory {

/// Extents begin and end at multiples of this, and of the disk's alignment where that is larger. 4096 also where 512 would do: many disks
/// with sectors of 512 bytes write pages of 4096, and a file system locks the whole file for a direct write of less than its block.
inline constexpr std::int64_t kSwapAlignment = 4096;  // bytes

/// A range of the space that belongs to one buffer of the plan. States that must survive a fault in mid-step own two and
/// alternate; that is the plan's business.
struct SwapExtent {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // as the plan needs them; the space adds padding to the next multiple of the alignment
};

/// The file system of a directory to swap to. Throws RequestError where it is none, or lies on a file system that other hosts share
/// and that isn't allowed; IoError where it can't be looked at.
FileSystem check_swap_path(const std::string& path, bool allow_network, const IoSystem& system = IoSystem::real());

/// Extents for buffers of these sizes, one behind the other, each rounded up to `alignment`.
std::vector<SwapExtent> place_extents(std::span<const std::int64_t> bytes, std::int64_t alignment = kSwapAlignment);

/// Owns a rank's swap files. Once they are filled nothing is allocated, on disk or in memory.
///
/// Striping. Byte b of the space lies on path (b / stripe) mod n, where a stripe is one block of the engines. So each transfer of
/// more than a few blocks uses all drives, whatever the sizes of the extents; with whole extents dealt out to the paths the
/// pipeline, which reads one chunk at a time, would have one drive's bandwidth. The slowest path sets the pace.
class SwapSpace {
 public:
  struct Options {
    std::vector<std::string> paths;  // directories, at least one
    SwapIdentity identity;
    std::vector<SwapExtent> extents;
    FileEngine::Options engine;
    std::vector<SpaceClaim> claims;  // what others are going to write to the same disks: other ranks' swap, checkpoints
    bool allow_network = false;      // also on file systems that other hosts share
  };

  /// Creates a file per path, checks the plan's alignment and the free space and takes the space; fill() has to follow. On any failure
  /// everything is given back. Leftovers of dead owners are removed before (remove_swap_leftovers, on one rank per host), or they count as
  /// used space.
  /// Throws RequestError (no directory, a network file system, a living owner of the same name), EnvironmentError (space,
  /// permission, alignment), IoError; LogicError where extents overlap or break kSwapAlignment.
  static SwapSpace create(const Options& options, const IoSystem& system = IoSystem::real());
  /// Writes the next `bytes` of the space, or a little more, once with a pattern, so that later writes allocate nothing (a file system that
  /// has only promised the space changes its tables on the first write; a thin-provisioned or deduplicating disk wants to see data other
  /// than zeros). That takes as long as the disk needs for it, and counts as written. Returns the bytes that are left to be written: none
  /// once the space is ready for use. Throws IoError, after which the space is no longer usable.
  std::int64_t fill(std::int64_t bytes);
  /// Creates and fills a space, for who needs no look up in between.
  static SwapSpace open(const Options& options, const IoSystem& system = IoSystem::real());
  SwapSpace(SwapSpace&&) noexcept = default;
  SwapSpace& operator=(SwapSpace&&) = delete;
  SwapSpace(const SwapSpace&) = delete;
  SwapSpace& operator=(const SwapSpace&) = delete;
  /// Waits for what is in flight and removes the files.
  ~SwapSpace() = default;

  int extent_count() const noexcept { return static_cast<int>(extents_.size()); }
  /// Bytes of an extent in the file: a transfer of all of it has these, and so has its buffer.
  std::int64_t extent_bytes(int extent) const;
  /// Of offsets within an extent and of lengths; memory so aligned suits every disk.
  std::int64_t alignment() const noexcept { return alignment_; }
  /// Starts moving `bytes` from byte `from` of `extent` on; multiples of alignment(). Doesn't wait: see IoTicket, FileEngine. The space is
  /// filled.
  void post(IoTicket& ticket, IoDirection direction, int extent, std::int64_t from, std::byte* data, std::int64_t bytes);

  /// Of one rank's files, the first writing included: drives wear.
  std::int64_t bytes_written() const noexcept;
  std::int64_t bytes_read() const noexcept;
  /// What people should know about the paths, one line each, same lines on all ranks of a host; empty where all is well.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// The engine of each path, in order. Bytes 0 to kSwapHeaderBytes of its file are the owner's record.
  const FileEngine& engine(int path) const { return *stores_.at(static_cast<std::size_t>(path)).engine; }

 private:
  struct Store {
    SwapFile file;
    std::unique_ptr<FileEngine> engine;  // goes first
  };
  /// The first writing: what is written, how far it is posted on each path, and two transfers a path under way, which end first.
  struct Filling {
    std::unique_ptr<Backing> pattern;
    std::int64_t at = 0;
    std::vector<std::array<IoTicket, 2>> tickets;
  };
  SwapSpace() = default;
  std::int64_t bytes_on(std::size_t path) const;

  std::vector<Store> stores_;
  std::vector<SwapExtent> extents_;
  std::int64_t bytes_ = 0;  // of all paths
  std::int64_t alignment_ = kSwapAlignment;
  std::int64_t stripe_bytes_ = 0;
  std::vector<std::string> notes_;
  std::optional<Filling> filling_;  // none once it is over
};

}  // namespace sluice::memory
