#include "memory/io/alignment.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "base/units.hpp"

namespace sluice::memory {
namespace {
constexpr std::int64_t kSmallest = 512;  // bytes; the sector of disks since the PC
constexpr std::int64_t kUsual = 4096;    // bytes; the largest logical sector in use, and a page
constexpr std::int64_t kLargest = 64 * kKiB;
}  // namespace

std::optional<IoAlignment> alignment_from_kernel([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN  // the C library's headers follow the kernel's
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0) {
    return IoAlignment{info.stx_dio_offset_align, info.stx_dio_mem_align};
  }
#endif
  return std::nullopt;
}

std::optional<IoAlignment> alignment_by_trial(int fd, const IoSystem& system) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  const auto buffer = std::make_unique<std::byte[]>(static_cast<std::size_t>(3 * kLargest));
  void* aligned = buffer.get();
  std::size_t room = static_cast<std::size_t>(3 * kLargest);
  std::align(static_cast<std::size_t>(kLargest), static_cast<std::size_t>(2 * kLargest), aligned, room);
  for (std::int64_t size = kSmallest; size <= kLargest; size *= 2) {
    // At an odd multiple of the size, both in the file and in memory, so that no larger alignment is met by chance.
    if (2 * size > info.st_size) {
      const std::int64_t assumed = std::max(size, kUsual);
      return IoAlignment{assumed, assumed};
    }
    const std::int64_t result = system.read(fd, static_cast<std::byte*>(aligned) + size, size, size);
    if (result >= 0) return IoAlignment{size, size};
    if (result != -EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace sluice::memory
