#pragma once
// A stream of tokens over a list of files.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice::data {

/// Text files are tokenised by bytes (formats/byte_tokenizer.hpp) as they are read; each file is one document and is followed
/// by the end-of-document token. Files ending in .bin are llm.c's token files, whose tokens stand as they are. One corpus
/// holds one of the two kinds.
class Corpus {
 public:
  /// `patterns`: paths or shell patterns ("data/*.txt"); the matches of each are sorted by bytes, the patterns keep their
  /// order, and a file named twice counts twice. `vocabulary`: of the model. Asks sizes and reads headers, no content.
  /// Throws EnvironmentError when nothing matches or a file is missing or unreadable; RequestError for an empty file, a
  /// directory, both kinds mixed, or text with a vocabulary below 257; FormatError for a damaged .bin.
  Corpus(const std::vector<std::string>& patterns, std::int64_t vocabulary);
  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;
  ~Corpus();

  /// Tokens of all files, end-of-document tokens included.
  std::int64_t tokens() const;
  /// Files in stream order.
  std::vector<std::string> files() const;
  /// "bytes" or "llmc": what the tokens are.
  std::string tokenizer() const;
  /// A hash of kind, names without folders and sizes, in order: tells another corpus, not a changed byte.
  std::uint64_t fingerprint() const;

  /// out[i] = token begin + i of the stream, for i in [0, count), which must lie within tokens(). Waits for the disk;
  /// thread-safe. Throws RequestError naming file and place of a token beyond the vocabulary, IoError.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  /// Throws as read() would for [begin, end), so that ranks can share out a check of the whole stream before the first step.
  /// Reads nothing where no token can be beyond the vocabulary.
  void check(std::int64_t begin, std::int64_t end) const;
  /// Where a token stands, for people: "book.txt:12:3" (line and column) or "shard.bin: token 17".
  std::string place(std::int64_t token) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::data
