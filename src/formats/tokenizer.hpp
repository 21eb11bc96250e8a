#pragma once
// What turns text into token ids and back.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::formats {

/// Stateless and thread-safe after construction.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// "bytes", "bpe" or "sentencepiece".
  virtual std::string kind() const = 0;
  /// The largest token id and one, added tokens included.
  virtual std::int64_t vocabulary() const = 0;
  /// Appends the ids of valid UTF-8 (the byte tokenizer: any bytes), without a beginning or an end of document. Special tokens that
  /// are written out in the text ("<|im_end|>") become their ids, as Hugging Face's tokenizers do. Time linear in the text (up to a
  /// logarithm).
  virtual void encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;
  /// The inverse: bytes, which may be invalid UTF-8 where the ids cut a character. Special tokens are written out unless skipped.
  /// Throws RequestError for an id that isn't in the vocabulary, naming its place.
  virtual std::string decode(std::span<const std::int32_t> ids, bool skip_special) const = 0;
  /// The token that ends a document (tokenizer_config.json's eos_token); absent where the tokenizer names none.
  virtual std::optional<std::int32_t> end_of_document() const = 0;
  /// The token that begins one, only where the tokenizer adds it by itself (add_bos_token, a template post-processor).
  virtual std::optional<std::int32_t> begin_of_document() const = 0;
  /// The id of a token by its text; absent where there is none.
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  /// A hash of everything that decides ids: another value, another tokenizer.
  virtual std::uint64_t fingerprint() const = 0;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// The tokenizer of a Hugging Face directory: tokenizer.json, else tokenizer.model (SentencePiece); special tokens from
/// tokenizer_config.json, special_tokens_map.json and config.json. Null where the directory has neither file. Throws FormatError for a
/// damaged file and RequestError naming the part (normalizer, pre-tokenizer, model) that isn't supported.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& directory);

/// Tokenizer::decode() for looking at: an id that the tokenizer doesn't have, as a model with more rows than that may draw, is U+FFFD.
std::string decode_for_show(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, bool skip_special);

}  // namespace sluice::formats
