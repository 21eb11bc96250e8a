#pragma once
// tokenizer.model, a SentencePiece model, with the conventions of transformers' LlamaTokenizer around it.

#include <memory>
#include <string>

#include "formats/tokenizer.hpp"
#include "formats/tokenizer_json.hpp"

namespace sluice::formats {

/// `model` holds a whole tokenizer.model, `source` its path for errors. Special tokens (its control symbols and those of `special`) are
/// found in the text first; the library encodes what lies between.
///
/// Where spaces begin a text: with `special.legacy` (the default unless tokenizer_class is LlamaTokenizer) the library puts its dummy
/// prefix before each part between special tokens. Without it only the very
/// first part gets one, and none where it begins with a space.
///
/// Throws FormatError for a damaged model or tokens that contradict it, RequestError for a model whose settings the new way has no meaning
/// for.
std::unique_ptr<Tokenizer> tokenizer_from_sentencepiece(const std::string& model, const std::string& source, const SpecialTokens& special);

}  // namespace sluice::formats
