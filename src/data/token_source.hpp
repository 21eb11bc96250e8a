#pragma once
// Where a corpus' tokens come from: internal to Corpus.

#include <cstdint>
#include <memory>
#include <string>

#include "data/files.hpp"
#include "data/token_store.hpp"

namespace sluice::data {

/// A stream of tokens with random access, and its documents where they are known. Thread-safe; reading waits for the disk.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  virtual std::int64_t tokens() const = 0;
  /// Throws RequestError naming file and place of a token beyond the vocabulary, IoError.
  virtual void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const = 0;
  /// Whether read() can meet a token beyond the vocabulary.
  virtual bool needs_check() const = 0;
  /// Whether some tokens are only read; without it read_mask() says 1 for all.
  virtual bool has_mask() const { return false; }
  virtual std::int64_t learned() const { return tokens(); }
  virtual void read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const;
  /// Negative: unknown.
  virtual std::int64_t documents() const = 0;
  /// First tokens of documents; document documents() begins where the tokens end.
  virtual void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const = 0;
  /// The document that a token is of. documents() must be known.
  virtual std::int64_t document_at(std::int64_t token) const { return find_document(token, 0, documents()); }
  virtual std::string place(std::int64_t token) const = 0;

 protected:
  /// The same where it is one of [low, high).
  std::int64_t find_document(std::int64_t token, std::int64_t low, std::int64_t high) const;
};

/// Text files by bytes, each a document with its end; or token files. Throws as Corpus.
std::shared_ptr<const TokenSource> make_file_source(const SourceFiles& files, std::int64_t vocabulary);
std::shared_ptr<const TokenSource> make_store_source(std::shared_ptr<const TokenStore> store);

}  // namespace sluice::data
