#pragma once
// Token files of llm.c: 256 int32 of header (magic, version, number of tokens), then the tokens as uint16, little endian.
// Source: github.com/karpathy/llm.c, dev/data/data_common.py (write_datafile) and llmc/dataloader.h.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/input_file.hpp"

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

/// Writes such a file under another name, which finish() makes its own.
class LlmcTokensWriter {
 public:
  /// Throws RequestError for a vocabulary that uint16 can't hold, IoError.
  LlmcTokensWriter(const std::string& path, std::int64_t vocabulary);
  LlmcTokensWriter(const LlmcTokensWriter&) = delete;
  LlmcTokensWriter& operator=(const LlmcTokensWriter&) = delete;
  /// Without finish(): removes what was written; a file that stood under the name is as before.
  ~LlmcTokensWriter();

  /// Appends tokens, each in [0, vocabulary). Waits for the disk now and then. Throws RequestError beyond the 2^31 - 1 tokens that the
  /// header can count, IoError.
  void add(std::span<const std::int32_t> tokens);
  /// The file stands under its name, on the disk. Throws IoError.
  void finish();

 private:
  void flush();
  std::string path_;
  std::int64_t vocabulary_;
  bool is_finished_ = false;
  File file_;
  std::int64_t tokens_ = 0;             // written
  std::vector<std::uint16_t> pending_;  // that follow them
};

}  // namespace sluice::formats
