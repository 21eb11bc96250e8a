#pragma once
// Writing a safetensors file of f32 tensors in ranges, by one rank or by several at once.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::formats {

/// A tensor to be written.
struct TensorPlace {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// Owns the descriptor; move-only. One rank calls create(), after which others may attach() to the same path; each writes
/// its ranges and calls finish(). Which elements have been written is the callers' to know: the file begins as zeros.
class SafetensorsWriter {
 public:
  /// Makes or replaces `path` with its header and its whole length reserved on the disk, so that a full disk shows here. The
  /// tensors lie in the given order. transformers refuses files without metadata "format": "pt". Throws IoError (also for a
  /// full disk), LogicError for a name given twice.
  static SafetensorsWriter create(const std::string& path, const std::vector<TensorPlace>& tensors,
                                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  /// Opens what create() made, reading the places from its header. Throws FormatError, IoError.
  static SafetensorsWriter attach(const std::string& path);

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// Closes without waiting for the disk; only finish() says that the data are safe.
  ~SafetensorsWriter();

  /// Elements [first, first + count) of a tensor (row-major) = values. Thread-safe for disjoint ranges. Throws IoError,
  /// LogicError for a name or range that isn't in the file.
  void write(std::string_view tensor, std::int64_t first, std::int64_t count, const float* values);
  /// Waits until what this writer wrote is on the disk, then closes. Throws IoError.
  void finish();

 private:
  struct Range {
    std::int64_t begin = 0;  // byte of the file
    std::int64_t elements = 0;
  };
  SafetensorsWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void write_bytes(std::int64_t offset, const void* from, std::int64_t bytes);
  std::string path_;
  int fd_ = -1;
  std::map<std::string, Range, std::less<>> ranges_;
};

}  // namespace sluice::formats
