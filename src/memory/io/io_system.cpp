#include "memory/io/io_system.hpp"

#include <fcntl.h>
#include <libaio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace sluice::memory {

std::int64_t IoSystem::file_system_type(const char* path) const {
  struct statfs info {};
  if (::statfs(path, &info) != 0) return -errno;
  return static_cast<std::uint32_t>(info.f_type);
}

int IoSystem::set_direct(int fd) const {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0 ? -errno : 0;
}

std::int64_t IoSystem::read(int fd, void* data, std::int64_t bytes, std::int64_t offset) const {
  const ssize_t moved = ::pread(fd, data, static_cast<std::size_t>(bytes), offset);
  return moved < 0 ? -errno : moved;
}

std::int64_t IoSystem::write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) const {
  const ssize_t moved = ::pwrite(fd, data, static_cast<std::size_t>(bytes), offset);
  return moved < 0 ? -errno : moved;
}

int IoSystem::aio_setup(int depth, io_context** context) const {
  *context = nullptr;  // io_setup demands it
  return ::io_setup(depth, context);
}

void IoSystem::aio_destroy(io_context* context) const {
  ::io_destroy(context);
}

int IoSystem::aio_submit(io_context* context, long count, iocb** requests) const {
  return ::io_submit(context, count, requests);
}

int IoSystem::aio_reap(io_context* context, long most, io_event* events) const {
  return ::io_getevents(context, 1, most, events, nullptr);
}

const IoSystem& IoSystem::real() {
  static const IoSystem kSystem;
  return kSystem;
}

}  // namespace sluice::memory
