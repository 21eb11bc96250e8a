#pragma once
// The tokenizer that needs no file: every byte is its own token. Bytes are bytes: carriage returns, byte-order marks, NULs and
// invalid UTF-8 are kept as they stand, so decoding gives the very file back.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::formats {

inline constexpr std::int32_t kEndOfDocument = 256;
inline constexpr std::int64_t kByteVocabulary = 257;  // 256 bytes and end-of-document

/// One token per byte; no end-of-document is added.
std::vector<std::int32_t> encode_bytes(std::string_view text);
/// The inverse; end-of-document tokens give no byte. Throws RequestError for a token outside [0, 257), naming its place.
std::string decode_bytes(std::span<const std::int32_t> tokens);

}  // namespace sluice::formats
