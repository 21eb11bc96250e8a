#pragma once
// A stream of tokens over a list of files: what samples are cut from.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/files.hpp"
#include "data/token_store.hpp"

namespace sluice::data {

/// Of three kinds:
///   texts by bytes   tokenised (formats/byte_tokenizer.hpp) as they are read; each file is one document, followed by end-of-document.
///                    Bytes are bytes: marks, carriage returns, NULs and invalid UTF-8 stand as they are
///   token files      llm.c's or Megatron's, whose tokens stand as they are
///   a token store    of documents that were tokenised before (token_store.hpp)
/// Its length is limited by int64 alone.
class Corpus {
 public:
  /// Texts by bytes or token files; `patterns` as find_files(). `vocabulary`: of the model. Asks sizes and reads headers, no content.
  /// Throws as find_files(), RequestError for a file without tokens or text with a vocabulary below 257; FormatError for a damaged .bin.
  Corpus(const std::vector<std::string>& patterns, std::int64_t vocabulary);
  Corpus(const SourceFiles& files, std::int64_t vocabulary);
  /// `files`: that the store was made from. `tokenizer`: by which, for people.
  Corpus(const SourceFiles& files, std::shared_ptr<const TokenStore> store, std::string tokenizer);
  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;
  ~Corpus();

  /// Tokens of all documents, ends of documents included.
  std::int64_t tokens() const;
  /// Files in stream order; of a part all that it was split from.
  std::vector<std::string> files() const;
  /// What the tokens are: "bytes", "bpe", "sentencepiece", "llmc" or "megatron".
  const std::string& tokenizer() const;
  /// A hash of kind, names without folders and sizes, in order: tells another corpus, not a changed byte.
  std::uint64_t fingerprint() const;

  /// out[i] = token begin + i of the stream, for i in [0, count), which must lie within tokens(). Waits for the disk;
  /// thread-safe. Throws RequestError naming file and place of a token beyond the vocabulary, IoError.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  /// Throws as read() would for [begin, end), so that ranks can share out a check of the whole stream before the first step.
  /// Reads nothing where no token can be beyond the vocabulary.
  void check(std::int64_t begin, std::int64_t end) const;
  /// Where a token stands, for people: "book.txt:12:3" (line and column), "shard.bin: token 17" or "document 4, token 17" (both from 0).
  std::string place(std::int64_t token) const;

  /// Whether some tokens are only read, not predicted with loss.
  bool has_mask() const;
  /// out[i] = 1 where token begin + i is predicted with loss, else 0; as read().
  void read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const;
  /// How many tokens are predicted with loss. Of a part reads the mask where there is one.
  std::int64_t learned() const;

  /// Token files of llm.c don't say where their documents begin; all others do.
  bool knows_documents() const;
  /// knows_documents() must hold for these.
  std::int64_t documents() const;
  /// out[i] = first token of document first + i, for i in [0, count) and first + count <= documents() + 1: the last one is tokens().
  void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const;
  /// The tokens of [begin, end), which must lie within tokens(), that are the first of their document. Reads a few places more than it
  /// finds; waits for the disk.
  std::vector<std::int64_t> begins_within(std::int64_t begin, std::int64_t end) const;
  /// Calls see(document, its first token, its tokens) for all documents in order.
  void for_documents(const std::function<void(std::int64_t document, std::int64_t begin, std::int64_t tokens)>& see) const;

  /// The documents in two parts, the second with round(fraction * documents) of them, but at least one in each: the first ones of
  /// Permutation(documents, seed, -1), so the same for any number of ranks. Both keep the documents in their order. fraction in (0, 1).
  /// Throws RequestError where documents aren't known or are fewer than two.
  std::pair<Corpus, Corpus> split(double fraction, std::uint64_t seed) const;

 private:
  struct Impl;
  explicit Corpus(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::data
