#pragma once
// The tokenizer that needs no file (make_byte_tokenizer() in tokenizer.hpp): every byte is its own token. Bytes are bytes: carriage
// returns, byte-order marks, NULs and invalid UTF-8 are kept as they stand, so decoding gives the very file back.

#include <cstdint>

namespace sluice::formats {

inline constexpr std::int32_t kEndOfDocument = 256;
inline constexpr std::int64_t kByteVocabulary = 257;  // 256 bytes and end-of-document

}  // namespace sluice::formats
