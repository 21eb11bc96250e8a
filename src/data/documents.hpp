#pragma once
// The documents of texts and JSON lines, one after the other, as what a tokenizer is given.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "data/corpus_options.hpp"
#include "data/files.hpp"
#include "formats/chat_template.hpp"
#include "formats/tokenizer.hpp"

namespace sluice::data {

/// What a document is made from.
enum class Shape : std::uint8_t {
  kFile,        // a whole text file
  kText,        // {"text": ...}; the key is CorpusOptions::text_key
  kCompletion,  // {"prompt": ..., "completion": ...}: loss on the completion
  kChat,        // {"messages": [{"role", "content", ...}, ...]} through the chat template: loss on what the assistant writes
};
std::string_view name_of(Shape shape);  // "files", "text", "prompt and completion", "chats"

/// The shape of all documents of a corpus; of JSON lines that of the first one. A line with "messages" is a chat, one with "prompt" and
/// "completion" is these, else it must have the text key; a text key other than "text" wins over both. Reads the first record.
/// Throws RequestError for tokens, FormatError as DocumentReader.
Shape shape_of(const SourceFiles& files, const CorpusOptions& options);

struct DocumentPart {
  std::string text;
  bool is_learned = true;  // its tokens are predicted with loss
};

/// Parts follow each other without a gap. No token is part of two of them (see encode).
struct Document {
  std::vector<DocumentPart> parts;
  Shape shape = Shape::kFile;
  std::string place;  // "book.txt", "chat.jsonl:12"
  bool is_empty() const;
};

/// Documents that did not come through as they stand.
struct DocumentCounts {
  std::int64_t empty = 0;     // left out: no character in them
  std::int64_t skipped = 0;   // left out: not UTF-8
  std::int64_t replaced = 0;  // parts of them became U+FFFD
  friend bool operator==(const DocumentCounts&, const DocumentCounts&) = default;
};

/// What one document may measure, since it is held in memory whole (about three times).
inline constexpr std::int64_t kLargestDocumentBytes = kGiB;

/// Reads documents in the order of the files. What files may hold:
///   A byte-order mark of UTF-8 at a file's beginning is left out. NULs and carriage returns of texts are kept; in JSON lines they are
///   white space or an error, as JSON says. Blank lines are passed over; the last line needs no newline.
///   Bytes that aren't UTF-8, and escapes of half a surrogate pair (\ud83d alone), are dealt with by CorpusOptions::invalid_utf8.
///   Of a key that stands twice in a line the last one counts, as in Python.
///   Documents without a character are left out and counted.
class DocumentReader {
 public:
  /// `chat`: for Shape::kChat, outlives this. `largest`: bytes of a document, or of a line.
  DocumentReader(const SourceFiles& files, const CorpusOptions& options, Shape shape, const formats::ChatTemplate* chat,
                 std::int64_t largest = kLargestDocumentBytes);
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;
  ~DocumentReader();

  /// The next document; none at the end. Waits for the disk. Throws RequestError for invalid UTF-8 ("file:line:byte"), a line of another
  /// shape, a document that is too large, or a chat that its template refuses; FormatError for a line that isn't JSON; IoError.
  std::optional<Document> next();
  const DocumentCounts& counts() const;
  /// Of the files, read so far.
  std::int64_t bytes_read() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A document's tokens and which of them are predicted with loss (1) or only read (0).
struct EncodedDocument {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> learned;
};

/// [beginning of document] parts... [end of document].
///   The beginning stands there where the tokenizer adds one by itself, but not before a chat, whose template writes it.
///   The end stands there where the tokenizer names one; a chat that ends with it (white space aside) gets no second one. It is learned as
///   the text before it is: the end of a completion is learned, what follows a chat whose template closes its turns is not.
/// No token is part of both sides of a border between parts. Where the tokens of the whole text have all borders between them (after n
/// tokens where the text up to a border has just the whole's first n), the document has these, as if it had been tokenised in one go; so a
/// tokenizer that puts a space before what it takes for a text's beginning puts one only there. Else every part is tokenised by itself, and
/// tokens that would have crossed are apart.
void encode(const Document& document, const formats::Tokenizer& tokenizer, EncodedDocument& out);

}  // namespace sluice::data
