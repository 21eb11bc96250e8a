#pragma once
// Swap files on disk: their names, whose they are, and what becomes of those whose owner has died.
//
//   NVME_PATH/sluice-UID-JOB-HOST/rank-00000.swap
//
// Directory 0700, file 0600. The file begins with a header that holds its owner as text, and its owner holds an exclusive
// flock(2) on it for life: the lock, not the text, says whether the owner lives, since the kernel releases it with the process
// (also where containers hide each other's processes). A file whose lock is free is a leftover and may be removed by whoever
// gets the lock. Where the lock proves nothing (a file system without locks; one that other hosts share), the text decides,
// and what it leaves open is reported, never removed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/owner.hpp"
#include "base/units.hpp"
#include "memory/io/io_system.hpp"

namespace sluice::memory {

/// Who swaps. `job` makes runs that live at the same time on one host differ: a batch system's job id, or a process id.
struct SwapIdentity {
  std::string host;
  std::string job;
  int rank = 0;
};

/// Bytes of a swap file before its extents; the header's text stands in the first of them, zeros follow. Enough written bytes for
/// the trial of alignments.
inline constexpr std::int64_t kSwapHeaderBytes = 128 * kKiB;

/// Throws RequestError where `nvme_path` is missing or no directory, IoError where it can't be looked at.
void check_swap_directory(const std::string& nvme_path);

/// A swap file of this process: created, locked, owner recorded; unlinked, with its directory if that is then empty, by the
/// destructor.
class SwapFile {
 public:
  /// Creates the file of `identity` below `nvme_path`. A leftover of the same name is removed first. May wait a second for
  /// another process that is looking at such a leftover. Throws RequestError where nvme_path isn't a directory or a living
  /// process has the name, EnvironmentError where the directory isn't private or the file can't be made (IoError).
  static SwapFile create(const std::string& nvme_path, const SwapIdentity& identity, const IoSystem& system = IoSystem::real());
  SwapFile(SwapFile&&) noexcept = default;
  SwapFile& operator=(SwapFile&&) = delete;
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  ~SwapFile();

  const std::string& path() const noexcept { return file_.path(); }
  /// Takes the disk space of the header and `bytes` more, so that writing them can't find the disk full. False where the file
  /// system can't promise it. Throws EnvironmentError with numbers where there isn't enough.
  bool reserve(std::int64_t bytes) const;
  void sync() const { file_.sync(); }

 private:
  SwapFile(File file, std::string directory) : file_(std::move(file)), directory_(std::move(directory)) {}
  File file_;
  std::string directory_;
};

/// One swap file found, or one directory of swap files that is another user's.
struct SwapFinding {
  enum class State : std::uint8_t {
    kInUse,     // its owner lives
    kLeftover,  // its owner has died
    kUnclear,   // no telling; `reason` says why
    kForeign,   // another user's; can't be looked into
    kRemoved,   // was a leftover
  };
  std::string path;
  State state = State::kUnclear;
  std::int64_t bytes = 0;      // of disk space; 0 for another user's
  std::optional<Owner> owner;  // none where the header is damaged or can't be read
  std::string reason;          // one phrase for people, for every state
};

/// All swap files below `nvme_path`, in order of their names; `host` is this host's name. Changes nothing, never waits. Throws
/// IoError where the directory can't be read.
std::vector<SwapFinding> list_swap_files(const std::string& nvme_path, const std::string& host, const IoSystem& system = IoSystem::real());

/// The same, removing leftovers of this user. One rank per host calls it before space is checked; others may at the same time.
std::vector<SwapFinding> remove_swap_leftovers(const std::string& nvme_path, const std::string& host,
                                               const IoSystem& system = IoSystem::real());

}  // namespace sluice::memory
