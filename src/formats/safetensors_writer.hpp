#pragma once
// Writing safetensors in ranges: one file, or the set of files that a large model is split into.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.hpp"

namespace sluice::formats {

/// A tensor to be written.
struct TensorPlace {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::kF32;  // or kBF16, kF16
};

/// Owns the descriptor; move-only. Which elements have been written is the caller's to know: the file begins as zeros.
class SafetensorsWriter {
 public:
  /// Makes or replaces `path` with its header and its whole length reserved on the disk, so that a full disk shows here. The
  /// tensors lie in the given order. transformers refuses files without metadata "format": "pt". Throws IoError (also for a
  /// full disk), LogicError for a name given twice.
  static SafetensorsWriter create(const std::string& path, const std::vector<TensorPlace>& tensors,
                                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// Closes without waiting for the disk; only finish() says that the data are safe.
  ~SafetensorsWriter();

  /// Elements [first, first + count) of a tensor (row-major) = values, rounded to nearest even where it isn't f32. Thread-safe for disjoint
  /// ranges. Throws IoError, LogicError for a name or range that isn't in the file.
  void write(std::string_view tensor, std::int64_t first, std::int64_t count, const float* values);
  /// Waits until what this writer wrote is on the disk, then closes. Throws IoError.
  void finish();

 private:
  struct Range {
    std::int64_t begin = 0;  // byte of the file
    std::int64_t elements = 0;
    DType dtype = DType::kF32;
  };
  SafetensorsWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void write_bytes(std::int64_t offset, const void* from, std::int64_t bytes);
  std::string path_;
  int fd_ = -1;
  std::map<std::string, Range, std::less<>> ranges_;
};

/// A model's tensors as transformers lays them out: model.safetensors, or where they exceed `file_bytes` model-00001-of-0000N.safetensors
/// and so on with model.safetensors.index.json. A tensor is never split, so a larger one has a larger file of its own.
class SafetensorsSetWriter {
 public:
  static constexpr std::int64_t kFileBytes = 5'000'000'000;  // transformers' own limit
  /// Makes the files in `directory`, which exists, with their whole length reserved. Throws as SafetensorsWriter::create.
  SafetensorsSetWriter(const std::string& directory, const std::vector<TensorPlace>& tensors, std::int64_t file_bytes = kFileBytes);
  void write(std::string_view tensor, std::int64_t first, std::int64_t count, const float* values);
  /// Waits until everything is on the disk, the index included. Throws IoError.
  void finish();
  /// Bytes of all tensors.
  std::int64_t bytes() const { return bytes_; }

 private:
  std::string directory_;
  std::vector<std::string> names_;  // of the files
  std::vector<SafetensorsWriter> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
  std::int64_t bytes_ = 0;
};

}  // namespace sluice::formats
