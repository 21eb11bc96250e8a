#include "formats/byte_tokenizer.hpp"

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/tokenizer.hpp"

namespace sluice::formats {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string kind() const override { return "bytes"; }
  std::int64_t vocabulary() const override { return kByteVocabulary; }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  /// The end of a document has no text, so it gives no byte either way.
  std::string decode(std::span<const std::int32_t> ids, bool) const override {
    std::string text;
    text.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= kByteVocabulary) {
        throw RequestError(cat("token ", i, ": found ", ids[i], ", expected one of the byte tokenizer's, 0 to ", kByteVocabulary - 1));
      }
      if (ids[i] != kEndOfDocument) text += static_cast<char>(ids[i]);
    }
    return text;
  }
  std::optional<std::int32_t> end_of_document() const override { return kEndOfDocument; }
  std::optional<std::int32_t> begin_of_document() const override { return std::nullopt; }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    return token.size() == 1 ? std::optional<std::int32_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }
  std::uint64_t fingerprint() const override { return Hash().add("bytes 1").value(); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace sluice::formats
