#pragma once
// Byte-pair encoding of one word (Sennrich et al. 2016, arXiv:1508.07909), by the rules of Hugging Face's tokenizers: of all
// neighbours that have a merge the pair of the lowest rank is merged, the leftmost first, until none has one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice::formats {

/// The `model` object of a tokenizer.json, type BPE, as it stands there.
struct BpeSettings {
  std::string source;                                            // the file, for errors
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;  // tokens and their ids, both unique
  std::vector<std::pair<std::string, std::string>> merges;       // best first; a pair's last place counts
  std::optional<std::string> unknown;                            // stands for characters that aren't in the vocabulary
  bool fuses_unknown = false;                                    // a run of them is one token
  bool byte_fallback = false;                                    // tokens "<0x00>" to "<0xFF>" stand for the bytes of such a character
  bool ignores_merges = false;                                   // a word that is in the vocabulary is its token
};

/// Immutable after construction.
class Bpe {
 public:
  /// The memory of merging, and how much work it was; one per thread.
  struct Scratch {
    struct Symbol {
      std::int32_t id;
      std::int32_t previous;
      std::int32_t next;
    };
    struct Candidate {
      std::uint64_t order;  // rank, then position: the lowest first
      std::int32_t merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::int64_t candidates = 0;  // how many pairs were ever queued
  };

  /// Throws FormatError for a merge of or into a token that the vocabulary doesn't hold.
  explicit Bpe(BpeSettings settings);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;
  ~Bpe() = default;

  /// Appends the ids of a word of valid UTF-8, in O(n log n). Characters that have neither a token nor bytes nor an unknown token give
  /// none. Throws RequestError where `unknown` itself isn't in the vocabulary.
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;
  /// The same for the word that the ByteLevel pre-tokenizer writes for these bytes: a character for each byte.
  void encode_bytes(std::string_view bytes, Scratch& scratch, std::vector<std::int32_t>& out) const;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// The token with this id; null where there is none.
  const std::string* token_of(std::int32_t id) const;
  /// How many tokens there are, and the largest id and one.
  std::size_t size() const { return settings_.vocabulary.size(); }
  std::int64_t end_id() const { return end_id_; }

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;  // left id, right id
    std::uint32_t rank = 0;
    std::int32_t merged = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  void insert_merge(const Merge& merge);
  /// The characters of a word before any merge; `pending` is an unknown token that was not written yet.
  void add_character(std::string_view character, Scratch& scratch, bool& pending) const;
  void add_symbol(std::int32_t id, Scratch& scratch) const;
  void merge_all(Scratch& scratch, std::vector<std::int32_t>& out) const;

  BpeSettings settings_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::unordered_map<std::int32_t, std::size_t> places_;       // of ids in the vocabulary
  std::unordered_map<std::string, std::int32_t> whole_words_;  // by their bytes, where merges are ignored
  std::vector<Merge> merges_;                                  // open addressing, a power of two, at most half full
  std::vector<std::int32_t> byte_ids_;                         // of the ByteLevel character of each byte; -1: none
  std::vector<std::int32_t> fallback_ids_;                     // of "<0x00>" ...; -1: none
  std::int64_t end_id_ = 0;
};

/// The character (UTF-8) that stands for a byte in byte-level vocabularies: itself where it is printable Latin-1, else U+0100 and on,
/// as in GPT-2's encoder.py.
const std::string& byte_level_character(unsigned char byte);
/// The bytes behind the characters of `token`; absent where one of them stands for no byte.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace sluice::formats
