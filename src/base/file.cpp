#include "base/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice {
namespace {
// One call moves at most 0x7ffff000 bytes on Linux; asking for less keeps the arithmetic of every system the same.
constexpr std::int64_t kTransferBytes = 1 << 30;
}  // namespace

File::File(const std::string& path, int flags, unsigned mode) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  if (fd_ < 0) throw IoError("opening", path, errno);
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

std::int64_t File::bytes() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw IoError("fstat", path_, errno);
  return info.st_size;
}

void File::write_at(const void* data, std::int64_t bytes, std::int64_t offset) const {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(fd_, p, static_cast<std::size_t>(std::min(bytes, kTransferBytes)), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw IoError("writing", path_, done < 0 ? errno : 0, offset);
    p += done;
    offset += done;
    bytes -= done;
  }
}

void File::read_at(void* data, std::int64_t bytes, std::int64_t offset) const {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pread(fd_, p, static_cast<std::size_t>(std::min(bytes, kTransferBytes)), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw IoError("reading", path_, done < 0 ? errno : 0, offset);
    p += done;
    offset += done;
    bytes -= done;
  }
}

bool File::reserve(std::int64_t bytes) const {
  // Not posix_fallocate: where the file system can't, the C library would write into every block.
  while (bytes > 0 && ::fallocate(fd_, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return false;
    throw IoError(cat("reserving ", bytes, " bytes"), path_, errno);
  }
  return true;
}

void File::sync() const {
  if (::fsync(fd_) != 0) throw IoError("fsync", path_, errno);
}

void File::write_behind() const {
  const bool failed = ::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE) != 0;
  // Anything else says that this file system knows no such call; it then writes when it likes.
  if (failed && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) throw IoError("writing", path_, errno);
  drop_cache();
}

void File::drop_cache() const noexcept {
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
}

void File::close() {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) throw IoError("close", path_, errno);
}

void sync_directory(const std::string& path) {
  const File directory(path, O_RDONLY | O_DIRECTORY);
  // Some network file systems can't fsync a directory and say so; their names are durable when the call that made them returns.
  if (::fsync(directory.fd()) != 0 && errno != EINVAL && errno != EOPNOTSUPP) throw IoError("fsync", path, errno);
}

void write_durably(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";  // what a killed writer leaves the next one overwrites
  File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  try {
    file.write_at(text.data(), static_cast<std::int64_t>(text.size()), 0);
    file.sync();
    file.close();
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw IoError(cat("renaming to ", to), from, errno);
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError("making the directory", path, error.value());
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) {
    if (errno == ENOENT) return names;
    throw IoError("listing", path, errno);
  }
  int failure = 0;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      failure = errno;
      break;
    }
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(directory);
  if (failure != 0) throw IoError("listing", path, failure);
  std::sort(names.begin(), names.end());
  return names;
}

void remove_tree(const std::string& path, const std::string& first) {
  if (::unlink((path + "/" + first).c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    throw IoError("removing", path + "/" + first, errno);
  }
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw IoError("removing", path, error.value());
}

}  // namespace sluice
