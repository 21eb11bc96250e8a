#pragma once
// Regular expressions of a tokenizer.json. Hugging Face's tokenizers match them by Oniguruma (Ruby's syntax, Unicode 16), we by
// PCRE2; the same text must be cut at the same places.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::formats {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What matching needs beside the expression; one per thread.
class RegexScratch {
 public:
  RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  ~RegexScratch();

 private:
  friend class TokenizerRegex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Compiled once (to machine code where the system allows it); matching is thread-safe.
///
/// The pattern is rewritten construct by construct into PCRE2's syntax; only what both engines do alike, or what can be written so
/// that they do, passes. `\s`, `\d`, `\w` and `\p{..}` have Unicode 16's members: characters whose category this PCRE2 may not know
/// are matched as a character of the same category that it does (stand_in()).
class TokenizerRegex {
 public:
  /// `where` names file and key in errors. Throws RequestError naming the construct that isn't supported, FormatError for a pattern that is
  /// no regular expression.
  TokenizerRegex(const std::string& pattern, const std::string& source, const std::string& where);
  TokenizerRegex(TokenizerRegex&&) noexcept;
  TokenizerRegex& operator=(TokenizerRegex&&) noexcept;
  TokenizerRegex(const TokenizerRegex&) = delete;
  TokenizerRegex& operator=(const TokenizerRegex&) = delete;
  ~TokenizerRegex();

  /// Replaces `matches` by all matches in valid UTF-8 from left to right, none overlapping, no empty one just behind another. Throws
  /// RequestError when the expression needs more steps or memory than a sane one does.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<ByteRange>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::formats
