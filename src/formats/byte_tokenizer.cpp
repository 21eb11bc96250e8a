#include "formats/byte_tokenizer.hpp"

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::formats {

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string decode_bytes(std::span<const std::int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= kByteVocabulary) {
      throw RequestError(cat("token ", i, ": found ", tokens[i], ", expected one of the byte tokenizer's, 0 to ", kByteVocabulary - 1));
    }
    if (tokens[i] != kEndOfDocument) text += static_cast<char>(tokens[i]);
  }
  return text;
}

}  // namespace sluice::formats
