#include "base/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice {

// O_NONBLOCK: opening a pipe must not wait for its writer; it has no effect on regular files.
InputFile::InputFile(const std::string& path) : file_(path, O_RDONLY | O_NONBLOCK) {
  struct stat status {};
  if (::fstat(file_.fd(), &status) != 0) throw IoError("asking the size of", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw RequestError(
        cat(path, ": found a ", S_ISDIR(status.st_mode) ? "directory" : "pipe, socket or device", ", expected a regular file"));
  }
  size_ = status.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept : file_(std::move(other.file_)), size_(std::exchange(other.size_, 0)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this != &other) {
    file_ = std::move(other.file_);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void InputFile::read(std::int64_t offset, void* to, std::int64_t bytes) const {
  SLUICE_CHECK(offset >= 0 && bytes >= 0 && bytes <= size_ && offset <= size_ - bytes, path(), ": reading ", bytes, " bytes at ", offset,
               " of ", size_);
  try {
    file_.read_at(to, bytes, offset);
  } catch (const IoError& error) {
    if (error.error_number != 0) throw;
    throw FormatError(path(), cat("ends at byte ", file_.bytes(), ", had ", size_, " bytes when it was opened; don't change data in use"));
  }
}

std::string read_text(const std::string& path, std::int64_t limit_bytes) {
  const InputFile file(path);
  if (file.size() > limit_bytes) {
    throw FormatError(path, cat("found ", format_bytes(file.size()), ", expected at most ", format_bytes(limit_bytes)));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

}  // namespace sluice
