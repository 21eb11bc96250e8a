#pragma once
// Added tokens: those that are found in a text before anything else is done to it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::formats {

/// An entry of tokenizer.json's added_tokens.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // and on its right
  bool normalized = false;   // looked for in the normalized text, in its own normalized form
  bool special = false;      // left out when decoding without special tokens
};

/// Part [begin, end) of a text; `token` is the added token that it is, -1 for other text.
struct AddedPart {
  std::size_t begin;
  std::size_t end;
  std::int32_t token;
};

/// Finds tokens in texts as Hugging Face's tokenizers do: the leftmost, the longest of those that begin there. Immutable.
class AddedTokenFinder {
 public:
  /// `patterns[i]` (not empty, no two alike) is what `tokens[i]` looks like in the texts.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, const std::vector<std::string>& patterns);

  /// Cuts a text into parts that hold all of it, in order. Time: bytes of the text times bytes of the longest token where the text is full
  /// of its beginnings.
  std::vector<AddedPart> split(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> children;  // ascending
    std::int32_t token = -1;                               // an index into tokens_
  };
  const std::uint32_t* child(std::uint32_t node, char c) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> begins_{};
};

}  // namespace sluice::formats
