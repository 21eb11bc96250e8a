#pragma once
// What direct I/O on a file demands of offsets, lengths and memory.

#include <cstdint>
#include <optional>

#include "memory/io/io_system.hpp"

namespace sluice::memory {

struct IoAlignment {
  std::int64_t transfer = 1;  // bytes; of file offsets and lengths
  std::int64_t memory = 1;    // bytes; of addresses
  bool operator==(const IoAlignment&) const = default;
};

/// What the kernel says (statx with STATX_DIOALIGN, Linux 6.1), or none where it doesn't say; {0, 0}: no direct I/O on this file.
std::optional<IoAlignment> alignment_from_kernel(int fd);

/// The smallest power of two from 512 to 64 KiB with which a direct read of the file's beginning succeeds, for both; none if none
/// does, or if reading fails for another reason. What isn't written yet can't be tested, since such reads never reach the disk:
/// 4096 (every disk's sectors divide it) stands for sizes beyond the end of the file.
std::optional<IoAlignment> alignment_by_trial(int fd, const IoSystem& system);

}  // namespace sluice::memory
