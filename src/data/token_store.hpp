#pragma once
// Documents that were tokenised once, on disk: what every rank of every attempt reads.
//
// A store is a directory of up to four files, little endian:
//   ids        [tokens] u16 where the vocabulary has at most 65536 tokens, else u32
//   mask       [ceil(tokens / 8)] bytes; bit i mod 8 of byte i / 8 says that token i is predicted with loss. Absent where all are
//   documents  [documents + 1] i64: the first token of each document; the last entry is the number of tokens
//   header     "SLUICE-TOKENS 1 <XXH64 of the rest>\n", then JSON: counts, and for each file its bytes and the XXH64 of each block of it
// It is written beside its name, synchronised and renamed, the header last, so what stands under the name was finished. What was damaged
// later is found by the checksums when the store is opened, and it can always be made again.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/documents.hpp"

namespace sluice::data {

struct StoreCounts {
  std::int64_t tokens = 0;
  std::int64_t learned = 0;
  std::int64_t documents = 0;
  std::int64_t longest = 0;  // tokens of one document
  DocumentCounts left;       // what did not come through as it stood
  friend bool operator==(const StoreCounts&, const StoreCounts&) = default;
};

class TokenStoreWriter {
 public:
  /// `path`: the directory to be made; its parent is made where missing. Throws IoError.
  TokenStoreWriter(const std::string& path, std::int64_t vocabulary);
  TokenStoreWriter(const TokenStoreWriter&) = delete;
  TokenStoreWriter& operator=(const TokenStoreWriter&) = delete;
  /// Without finish(): removes what was written.
  ~TokenStoreWriter();

  /// A document's tokens, at least one. Waits for the disk now and then. Throws IoError.
  void add(const EncodedDocument& document);
  const StoreCounts& counts() const;
  /// The store stands under its name, on the disk, in place of any that stood there. Throws IoError.
  void finish(const DocumentCounts& left);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A finished store, open. Reading is thread-safe.
class TokenStore {
 public:
  /// `verify`: reads every byte and holds it against the checksums; else sizes only. Throws FormatError for one that is damaged, IoError.
  TokenStore(const std::string& path, bool verify);
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;
  ~TokenStore();

  const StoreCounts& counts() const;
  bool has_mask() const;
  /// out[i] = token begin + i, for i in [0, count). Waits for the disk. Throws IoError, FormatError for a file that became shorter.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  /// out[i] = 1 where token begin + i is learned, else 0; without a mask all are.
  void read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const;
  /// out[i] = first token of document first + i, for i in [0, count); document documents() begins where the tokens end.
  void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a store must have been made from, to be used again: names without folders, sizes and modification times of the files, in order, and
/// everything that decides tokens. Times instead of contents, since reading all of a corpus to avoid reading it would help nobody; a file
/// that was copied anew costs one more tokenising. `chat_identity`: of the chat template, 0 without.
std::uint64_t store_identity(const SourceFiles& files, const CorpusOptions& options, Shape shape, const formats::Tokenizer& tokenizer,
                             std::uint64_t chat_identity);

/// How far making a store is.
struct TokeniseProgress {
  std::int64_t bytes = 0;  // of the files, read
  std::int64_t bytes_total = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

/// Tokenises all documents of `reader` into a store at `path`. `watch` is asked after each document; false gives up, and nothing is left.
/// Returns whether the store was finished. Throws as DocumentReader and TokenStoreWriter, and RequestError where there are no documents.
bool make_store(const std::string& path, DocumentReader& reader, std::int64_t bytes_total, const formats::Tokenizer& tokenizer,
                const std::function<bool(const TokeniseProgress&)>& watch);

/// Removes what a directory of stores holds besides those named in `keep`: leftovers of attempts that were cut off, and stores of other
/// options. Only the owner of the run directory may. Throws IoError.
void remove_other_stores(const std::string& directory, const std::vector<std::string>& keep);

}  // namespace sluice::data
