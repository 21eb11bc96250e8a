#pragma once
// Keeps two runs out of one directory.

#include <cstdint>
#include <string>

#include "base/file.hpp"

namespace sluice::checkpoint {

/// Owns the right to write into a run directory, from acquire() to destruction: an exclusive flock on `directory`/.sluice-lock,
/// whose content names the owner. Only rank 0 of a run holds one.
class RunLock {
 public:
  struct Options {
    std::string host;        // this host's name
    std::string label;       // what people know the owner by, as a job id; may be empty
    bool take_over = false;  // also from an owner that can't be asked whether it still runs
  };
  /// Throws RequestError naming the owner when another process holds the lock, and when the file system has no locks and the
  /// content names an owner that may still run; IoError where the file can't be made. Makes the directory. Never waits.
  static RunLock acquire(const std::string& directory, const Options& options);

  RunLock(RunLock&&) noexcept = default;
  RunLock& operator=(RunLock&&) noexcept;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// What to tell the user about an earlier owner that ended without releasing, or empty.
  const std::string& note() const noexcept { return note_; }

 private:
  RunLock(File file, std::string note) : file_(std::move(file)), note_(std::move(note)) {}
  void release() noexcept;

  File file_;
  std::string note_;
};

}  // namespace sluice::checkpoint
