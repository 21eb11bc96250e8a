#pragma once
// What Hugging Face's tokenizers do to a text before its words are looked up and to tokens when they become text again: normalizers,
// pre-tokenizers and decoders, each as the class of that name in their library does it (version 0.23).

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer_regex.hpp"
#include "formats/tokenizer_unicode.hpp"

namespace sluice::formats {

/// A text to find: a regular expression, or where that is null the literal (not empty).
struct Pattern {
  std::string literal;
  std::shared_ptr<const TokenizerRegex> regex;
};

struct StageScratch {
  struct Segment {
    ByteRange range;
    bool is_match = false;
  };
  RegexScratch regex;
  std::vector<ByteRange> matches;
  std::vector<Segment> segments;
  std::vector<ByteRange> ranges;
};

/// Replaces `matches` by where `pattern` is in `text`, left to right, none overlapping.
void find_pattern(const Pattern& pattern, std::string_view text, RegexScratch& scratch, std::vector<ByteRange>& matches);

struct Normalizer {
  enum class Kind { kForm, kLowercase, kReplace, kPrepend, kStrip };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;  // kForm
  Pattern pattern;                     // kReplace
  std::string content;                 // kReplace, kPrepend
  bool strips_left = false;            // kStrip
  bool strips_right = false;
};

/// A text between added tokens. `from_start` counts the bytes at its front that come from the first character of the whole input,
/// which is what Metaspace's scheme "first" asks for; it isn't kept by normal forms.
struct Section {
  std::string text;
  std::size_t from_start = 0;
};
void normalize(const Normalizer& normalizer, Section& section, StageScratch& scratch);

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kNever, kFirst, kAlways };

struct PreTokenizer {
  enum class Kind { kByteLevel, kSplit, kDigits, kMetaspace, kWhitespace, kWhitespaceSplit, kPunctuation };
  Kind kind = Kind::kByteLevel;
  Pattern pattern;  // kSplit; kByteLevel with a pattern splits by it
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool inverts = false;            // kSplit: the pattern is what stands between the delimiters
  bool adds_prefix_space = false;  // kByteLevel
  std::string replacement;         // kMetaspace: one character for each space
  PrependScheme scheme = PrependScheme::kAlways;
  bool splits = true;  // kMetaspace
};

/// Ranges of a text that are tokenized one by one.
struct Pieces {
  Section section;
  std::vector<ByteRange> ranges;
};
/// Cuts every piece further. `writes_bytes` false: ByteLevel leaves the bytes as they are, for Bpe::encode_bytes.
void pre_tokenize(const PreTokenizer& pre_tokenizer, bool writes_bytes, Pieces& pieces, StageScratch& scratch);

struct Decoder {
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace };
  Kind kind = Kind::kFuse;
  std::string literal;    // kReplace: what; kStrip: one character; kMetaspace: the character for a space
  std::string content;    // kReplace: by what
  std::size_t start = 0;  // kStrip: at most so many of the character at the beginning of each token, and at its end
  std::size_t stop = 0;
  bool strips_first = false;  // kMetaspace: the first token's are left out
};
/// Where the library writes U+FFFD for bytes that aren't UTF-8, the bytes stay.
void decode_tokens(const Decoder& decoder, std::vector<std::string>& tokens);

}  // namespace sluice::formats
