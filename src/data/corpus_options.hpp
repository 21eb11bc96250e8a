#pragma once
// What a user may say about the documents of a corpus and how samples are made of them: plain values, filled by app/ from the
// keys data.* of the configuration.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::data {

/// How documents become samples of sequence_length tokens.
enum class Packing : std::uint8_t {
  kStream,  // documents one after the other; samples cross their borders
  kPad,     // a document a row; what it doesn't fill is masked
};

/// What happens to a document that a row of kPad can't hold.
enum class Overlong : std::uint8_t { kError, kTruncate, kSkip };

/// What happens to text that isn't UTF-8. kError names file, line and byte; kReplace writes U+FFFD; kSkip leaves the document out.
enum class InvalidUtf8 : std::uint8_t { kError, kReplace, kSkip };

struct CorpusOptions {
  std::vector<std::string> patterns;  // paths or shell patterns; the matches of each are sorted by bytes
  std::string tokenizer;              // "bytes", or a directory with a tokenizer; empty: the model directory's own, else bytes
  std::string chat_template;          // a file; empty: the tokenizer directory's own
  Packing packing = Packing::kStream;
  Overlong overlong = Overlong::kError;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
  double valid_fraction = 0;      // of the documents, held out for evaluation; 0: none
  std::string text_key = "text";  // of a JSONL line that is plain text
  friend bool operator==(const CorpusOptions&, const CorpusOptions&) = default;
};

}  // namespace sluice::data
