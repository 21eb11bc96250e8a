#pragma once
// Token files of llm.c: 256 int32 of header (magic, version, number of tokens), then the tokens as uint16, little endian.
// Source: github.com/karpathy/llm.c, dev/data/data_common.py (write_datafile) and llmc/dataloader.h.

#include <cstdint>
#include <string>

#include "formats/input_file.hpp"

namespace sluice::formats {

inline constexpr std::int32_t kLlmcTokensMagic = 20240520;
inline constexpr std::int32_t kLlmcTokensVersion = 1;
inline constexpr std::int64_t kLlmcHeaderBytes = 1024;

class LlmcTokens {
 public:
  /// Checks header and exact size. Throws FormatError naming what was found and expected, IoError.
  explicit LlmcTokens(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t tokens() const { return tokens_; }
  /// out[i] = token begin + i, for i in [0, count). Waits for the disk; thread-safe. Throws IoError.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

 private:
  InputFile file_;
  std::int64_t tokens_ = 0;
};

}  // namespace sluice::formats
