#pragma once
// tokenizer.json with a BPE model, as Hugging Face's tokenizers (0.23) reads it: the same ids for the same text.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/tokenizer.hpp"
#include "formats/tokenizer_added.hpp"

namespace sluice::formats {

/// What the files beside tokenizer.json or tokenizer.model say about special tokens.
struct SpecialTokens {
  std::string source = "tokenizer_config.json";  // for errors about `begin` and `end`
  std::optional<std::string> begin;              // bos_token
  std::optional<std::string> end;                // eos_token
  std::optional<std::string> unknown;            // unk_token
  std::optional<std::int64_t> end_id;            // eos_token_id of generation_config.json or config.json, where `end` is absent
  std::string end_id_source;                     // which of the two
  bool adds_begin = false;                       // add_bos_token
  std::vector<AddedToken> added;                 // added_tokens_decoder or added_tokens.json
  std::string tokenizer_class;
  std::optional<bool> legacy;  // SentencePiece only
};

/// `text` is a whole tokenizer.json, `source` its path for errors. Truncation and padding are left out; of the post-processor only
/// a token that it puts before a text matters, for begin_of_document(). Throws FormatError naming the place inside of a damaged file,
/// RequestError naming the part that isn't supported.
std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source, const SpecialTokens& special);

/// "BPE", "Unigram" or what else the model is called; empty where the text says nothing of the kind. Doesn't check the rest.
std::string tokenizer_json_model(const std::string& text);

}  // namespace sluice::formats
