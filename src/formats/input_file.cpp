#include "formats/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::formats {

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it has no effect on regular files.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw IoError("opening", path, errno);
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    const int error = errno;
    close();
    throw IoError("asking the size of", path, error);
  }
  if (!S_ISREG(status.st_mode)) {
    close();
    throw RequestError(
        cat(path, ": found a ", S_ISDIR(status.st_mode) ? "directory" : "pipe, socket or device", ", expected a regular file"));
  }
  size_ = status.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

InputFile::~InputFile() {
  close();
}

void InputFile::close() noexcept {
  // A descriptor that was only read from has nothing left to lose, so the result of close says nothing.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void InputFile::read(std::int64_t offset, void* to, std::int64_t bytes) const {
  SLUICE_CHECK(offset >= 0 && bytes >= 0 && bytes <= size_ && offset <= size_ - bytes, path_, ": reading ", bytes, " bytes at ", offset,
               " of ", size_);
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, at, static_cast<std::size_t>(bytes), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw IoError("reading", path_, errno, offset);
    }
    if (got == 0)
      throw FormatError(path_, cat("ends at byte ", offset, ", had ", size_, " bytes when it was opened; don't change data in use"));
    at += got;
    offset += got;
    bytes -= got;
  }
}

std::string read_whole_file(const std::string& path, std::int64_t limit_bytes) {
  const InputFile file(path);
  if (file.size() > limit_bytes) {
    throw FormatError(path, cat("found ", format_bytes(file.size()), ", expected at most ", format_bytes(limit_bytes)));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

}  // namespace sluice::formats
