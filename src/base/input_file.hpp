#pragma once
// A file that somebody else gave us, which is only read, by position.

#include <cstdint>
#include <limits>
#include <string>

#include "base/file.hpp"

namespace sluice {

/// Owns a descriptor of a regular file. Move-only; a moved-from one has size 0 and reads nothing. Reading is thread-safe.
class InputFile {
 public:
  /// Throws IoError when it can't be opened, RequestError when it is a directory or another thing without a size.
  explicit InputFile(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() = default;

  const std::string& path() const { return file_.path(); }
  /// Bytes, when it was opened.
  std::int64_t size() const { return size_; }
  /// Fills `to` with bytes [offset, offset + bytes), which must lie within size(). Waits for the disk. Throws IoError, or
  /// FormatError when the file has become shorter since it was opened.
  void read(std::int64_t offset, void* to, std::int64_t bytes) const;

 private:
  File file_;
  std::int64_t size_ = 0;
};

/// The whole content. Throws as InputFile, and FormatError beyond `limit_bytes`.
std::string read_text(const std::string& path, std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace sluice
