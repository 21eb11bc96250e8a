#pragma once
// Tokens as text that people can read, with what is learned of them.

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.hpp"
#include "data/documents.hpp"
#include "data/sampler.hpp"
#include "formats/tokenizer.hpp"

namespace sluice::data {

/// Tokens that follow each other and are all learned or all only read.
struct ShownPart {
  std::string text;  // UTF-8; without a tokenizer the ids, separated by spaces
  bool is_learned = true;
};

struct Preview {
  std::int64_t tokens = 0;
  std::int64_t predicted = 0;  // with loss: the learned ones but the first, which has none before it
  std::vector<ShownPart> parts;
};

/// `tokenizer`: null where none is known. Bytes that are no UTF-8 become U+FFFD.
Preview preview_of(const EncodedDocument& tokens, const formats::Tokenizer* tokenizer);
/// The tokens of a sample; with `documents_apart` the first of each document is only read. Waits for the disk.
Preview preview_of(const Corpus& corpus, const RowRange& range, const formats::Tokenizer* tokenizer, bool documents_apart);

/// One line: control characters as escapes, what is only read dimmed or, without colour, in ⟦⟧; of a long text the beginning and the end,
/// together about `limit` bytes.
std::string describe(const Preview& preview, bool colour, std::size_t limit = 800);

}  // namespace sluice::data
