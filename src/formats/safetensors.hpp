#pragma once
// Reading safetensors: named tensors behind a JSON header, in one file or in several with an index.
// Source: github.com/huggingface/safetensors, README "Format": u64 header length (little endian), JSON header, then one byte
// buffer that the tensors cover without holes or overlaps.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.hpp"

namespace sluice::formats {

/// Largest header we or the format's own library accept.
inline constexpr std::int64_t kSafetensorsHeaderLimit = 100'000'000;  // bytes

struct TensorInfo {
  std::string name;
  std::string dtype;                // as written in the file: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;  // row-major; empty: a scalar
  std::int64_t begin = 0;           // bytes [begin, end) of the file, not of its buffer
  std::int64_t end = 0;
  int file = 0;  // index into Safetensors::files()
  std::int64_t elements() const;
};

/// "[768, 3072]", for messages.
std::string shape_text(const std::vector<std::int64_t>& shape);

class Safetensors {
 public:
  /// `path`: a .safetensors file, an index (.json, with "weight_map"), or a directory with model.safetensors or
  /// model.safetensors.index.json. Reads the headers only and checks all of them: lengths, JSON, dtypes, shapes against byte
  /// ranges, ranges against the file and each other, index against files. Throws FormatError naming file and tensor with what
  /// was found and expected; IoError when a file is missing or unreadable; RequestError, with how to convert it, for a directory that
  /// has pytorch_model.bin alone.
  static Safetensors open(const std::string& path);

  /// All tensors, sorted by name; names are unique.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const TensorInfo* find(std::string_view name) const;
  /// "__metadata__" of the file (of the first file, with an index).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<InputFile>& files() const { return files_; }

  /// out[i] = element first + i (row-major) for i in [0, count), widened from F32, F16 or BF16. Reads only those bytes; waits
  /// for the disk. Thread-safe. Throws FormatError naming the tensor for another dtype, IoError.
  void read_f32(const TensorInfo& tensor, std::int64_t first, std::int64_t count, float* out) const;

 private:
  Safetensors() = default;
  void add_file(const std::string& path);
  std::vector<InputFile> files_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace sluice::formats
