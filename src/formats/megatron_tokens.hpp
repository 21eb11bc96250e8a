#pragma once
// Token files of Megatron-LM: NAME.bin, the ids one after the other, and NAME.idx, which says where sequences and documents begin.
//
// NAME.idx, little endian, without gaps:
//   bytes 0..8    "MMIDIDX\0\0"
//   9..16         u64, version: 1
//   17            u8, type of the ids: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6 and 7 are floats)
//   18..25        u64, number of sequences S
//   26..33        u64, number of entries D of the index of documents: documents and one
//   S x i32       tokens of each sequence
//   S x i64       byte of NAME.bin where it begins
//   D x i64       first sequence of each document; the last entry is S
// Source: NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py (_IndexReader, _IndexWriter, DType).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/input_file.hpp"

namespace sluice::formats {

/// Reading is thread-safe and waits for the disk. Holds no part of the index, which may be larger than memory.
class MegatronTokens {
 public:
  /// `path`: of NAME.bin. Holds the index against itself and against the data: with `verify` every entry (sequences must lie in NAME.bin
  /// one after the other, none left out), else its header, the sizes of both files and its last entries. Throws FormatError naming file,
  /// byte, found and expected; RequestError for ids that are floats and for multimodal data; IoError.
  MegatronTokens(const std::string& path, bool verify);

  const std::string& path() const { return data_.path(); }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  /// 1, 2, 4 or 8.
  std::int64_t bytes_per_token() const { return width_; }
  /// out[i] = token begin + i, for i in [0, count). Throws FormatError for an id that is negative or beyond i32, naming its byte; IoError.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  /// out[i] = the first token of document first + i, for i in [0, count); document documents() begins where the tokens end. Documents
  /// without tokens begin where the next one does. Throws FormatError where the index was not verified and is damaged, IoError.
  void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const;

 private:
  void read_header();
  void check_index() const;
  void check_ends() const;
  std::int64_t length_at(std::int64_t sequence) const;
  std::int64_t pointer_at(std::int64_t sequence) const;

  InputFile data_;
  InputFile index_;
  std::uint8_t code_ = 0;
  std::int64_t width_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t pointers_ = 0;    // byte of the index
  std::int64_t boundaries_ = 0;  // byte of the index
};

/// How many tokens each sequence of a document of `tokens` tokens holds: one, unless an i32 can't count them.
std::vector<std::int32_t> megatron_sequences(std::int64_t tokens);

/// Writes NAME.bin and NAME.idx under other names, which finish() makes theirs. Move-only in effect: neither copied nor moved.
class MegatronTokensWriter {
 public:
  /// `path`: of NAME.bin, in a directory that exists. The ids are u16 where `vocabulary` is below 65500, as Megatron chooses, else i32.
  /// Throws IoError.
  MegatronTokensWriter(const std::string& path, std::int64_t vocabulary);
  MegatronTokensWriter(const MegatronTokensWriter&) = delete;
  MegatronTokensWriter& operator=(const MegatronTokensWriter&) = delete;
  /// Without finish(): removes what was written; files that stood under these names are as before.
  ~MegatronTokensWriter();

  /// A document of at least one token, each in [0, vocabulary). Waits for the disk now and then. Throws IoError, also for a full disk.
  void add(std::span<const std::int32_t> document);
  /// Both files stand under their names, on the disk. A crash within leaves the old pair, a NAME.bin without index, or the new pair.
  /// Throws IoError.
  void finish();

 private:
  void flush();
  std::string path_;
  std::string index_path_;
  std::int64_t vocabulary_;
  bool is_short_;
  bool is_finished_ = false;
  File data_;
  std::int64_t written_ = 0;   // bytes of the data file
  std::vector<char> pending_;  // bytes that follow them
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> boundaries_{0};
};

}  // namespace sluice::formats
