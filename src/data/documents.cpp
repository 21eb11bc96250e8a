#include "data/documents.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "data/utf8.hpp"
#include "formats/text_file.hpp"

namespace sluice::data {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kPieceBytes = kMiB;  // of a file, read at once
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kNone = std::string::npos;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == kNone;
}

std::string shortened(std::string text, std::size_t limit) {
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

/// The lines of files, across files. A file's byte-order mark is no part of its first line.
class Lines {
 public:
  Lines(const SourceFiles& files, std::int64_t longest)
      : files_(files.files), longest_(longest), piece_(static_cast<std::size_t>(std::clamp<std::int64_t>(files.bytes(), 1, kPieceBytes))) {}

  /// The next line without its newline, valid until the next call; false at the end.
  bool next(std::string_view& line) {
    long_.clear();
    while (true) {
      if (file_ && at_ < end_) {
        const char* begin = piece_.data() + at_;
        const auto* newline = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
        const std::size_t count = newline != nullptr ? static_cast<std::size_t>(newline - begin) : end_ - at_;
        if (static_cast<std::int64_t>(long_.size() + count) > longest_) {
          throw RequestError(cat(path(), ":", number_ + 1, ": found a line of more than ", format_bytes(longest_),
                                 ", which is all that a document may have; split it"));
        }
        at_ += count;
        if (newline == nullptr && position_ < file_->size()) {
          long_.append(begin, count);
          fill();
          continue;
        }
        if (newline != nullptr) ++at_;
        if (long_.empty()) {
          line = {begin, count};
        } else {
          long_.append(begin, count);
          line = long_;
        }
        ++number_;
        strip_mark(line);
        return true;
      }
      if (file_ && position_ < file_->size()) {
        fill();
        continue;
      }
      if (next_file_ == files_.size()) return false;
      file_ = std::make_unique<InputFile>(files_[next_file_++].path);
      position_ = 0;
      at_ = end_ = 0;
      number_ = 0;
    }
  }

  const std::string& path() const { return files_[next_file_ - 1].path; }
  /// "chat.jsonl:12": the line last returned.
  std::string place() const { return cat(path(), ":", number_); }
  /// "chat.jsonl:12:7": its byte `offset`, from 0.
  std::string place(std::size_t offset) const { return cat(place(), ":", offset + 1 + mark_); }
  bool is_first_of_file() const { return number_ == 1; }
  std::int64_t bytes_read() const { return bytes_read_ - static_cast<std::int64_t>(end_ - at_); }

 private:
  void fill() {
    const std::int64_t count = std::min<std::int64_t>(static_cast<std::int64_t>(piece_.size()), file_->size() - position_);
    file_->read(position_, piece_.data(), count);
    position_ += count;
    bytes_read_ += count;
    at_ = 0;
    end_ = static_cast<std::size_t>(count);
  }
  void strip_mark(std::string_view& line) {
    mark_ = number_ == 1 && line.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    line.remove_prefix(mark_);
  }

  const std::vector<SourceFile> files_;
  const std::int64_t longest_;
  std::vector<char> piece_;
  std::string long_;  // of a line that goes over pieces
  std::unique_ptr<InputFile> file_;
  std::size_t next_file_ = 0;
  std::int64_t position_ = 0;  // in the file, of what stands behind the piece
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  std::int64_t number_ = 0;
  std::size_t mark_ = 0;
  std::int64_t bytes_read_ = 0;
};

/// The four hexadecimal digits of a \u escape at `at`; -1 where there is none.
int escape_at(std::string_view line, std::size_t at) {
  if (at + 6 > line.size() || line[at] != '\\' || line[at + 1] != 'u') return -1;
  int code = 0;
  for (std::size_t i = at + 2; i < at + 6; ++i) {
    const char c = line[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    code = 16 * code + digit;
  }
  return code;
}

/// The first escape of half a surrogate pair in a line of JSON, from `from` on.
std::size_t find_half_surrogate(std::string_view line, std::size_t from) {
  for (std::size_t at = line.find('\\', from); at != kNone; at = line.find('\\', at)) {
    const int code = escape_at(line, at);
    if (code < 0xD800 || code > 0xDFFF) {
      at += 2;  // an escape has a character after the backslash, which may be another backslash
      continue;
    }
    const int other = code < 0xDC00 ? escape_at(line, at + 6) : -1;
    if (other < 0xDC00 || other > 0xDFFF) return at;
    at += 12;
  }
  return kNone;
}

Json parse(std::string_view line, const Lines& lines) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    std::string what = error.what();
    const std::size_t detail = what.find(": ");
    if (detail != kNone) what = what.substr(detail + 2);
    throw FormatError(lines.place(error.byte > 0 ? error.byte - 1 : 0), cat("is not JSON: ", shortened(what, 160)));
  }
}

std::string keys_of(const Json& record) {
  std::string keys;
  for (const auto& [key, value] : record.items()) {
    if (keys.size() > 120) return keys + ", ...";
    keys += cat(keys.empty() ? "" : ", ", shortened(Json(key).dump(), 40));
  }
  return keys.empty() ? "none" : keys;
}

std::optional<Shape> shape_of_record(const Json& record, const CorpusOptions& options) {
  if (options.text_key != "text") return record.contains(options.text_key) ? std::optional(Shape::kText) : std::nullopt;
  if (record.contains("messages")) return Shape::kChat;
  if (record.contains("prompt") && record.contains("completion")) return Shape::kCompletion;
  if (record.contains("text")) return Shape::kText;
  return std::nullopt;
}

/// The JSON object of a line. A whole file in one array is a usual mistake with an easy remedy.
Json record_of(std::string_view line, const Lines& lines) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (lines.is_first_of_file() && line[begin] == '[') {
    throw FormatError(lines.place(begin), cat("found an array, expected an object a line; jq -c '.[]' ", lines.path(), " writes it so"));
  }
  Json record = parse(line, lines);
  if (!record.is_object()) throw FormatError(lines.place(begin), cat("found ", record.type_name(), ", expected an object {...}"));
  return record;
}

[[noreturn]] void refuse_record(const Json& record, const Lines& lines, Shape shape, const CorpusOptions& options) {
  const std::string wanted = shape == Shape::kChat         ? "\"messages\""
                             : shape == Shape::kCompletion ? "\"prompt\" and \"completion\""
                                                           : Json(options.text_key).dump();
  throw RequestError(cat(lines.place(), ": found the keys ", keys_of(record), ", expected ", wanted,
                         " as in the first line; keep documents of one shape in one corpus"));
}

const std::string& text_at(const Json& record, const std::string& key, const std::string& place) {
  const Json& value = record.at(key);
  if (!value.is_string()) throw RequestError(cat(place, ": ", key, ": found ", value.type_name(), ", expected a text"));
  return value.get_ref<const std::string&>();
}

/// The fields of a message that templates may read. Numbers and truth values are left out: no text.
formats::ChatMessage message_of(const Json& value, const std::string& place) {
  if (!value.is_object()) throw RequestError(cat(place, ": found ", value.type_name(), ", expected {\"role\": ..., \"content\": ...}"));
  formats::ChatMessage message;
  for (const char* key : {"role", "content"}) {
    if (!value.contains(key)) throw RequestError(cat(place, ": has no \"", key, "\""));
  }
  message.role = text_at(value, "role", place);
  message.content = text_at(value, "content", place);
  for (const auto& [key, field] : value.items()) {
    if (key == "role" || key == "content") continue;
    if (field.is_string()) {
      message.more[key] = field.get<std::string>();
    } else if (field.is_structured() && !field.empty()) {
      throw RequestError(
          cat(place, ": ", shortened(key, 40), ": found ", field.type_name(), ", expected a text; only texts can be rendered"));
    }
  }
  return message;
}

std::vector<DocumentPart> chat_parts(const Json& record, const std::string& place, const formats::ChatTemplate& chat) {
  const Json& list = record.at("messages");
  if (!list.is_array()) throw RequestError(cat(place, ": messages: found ", list.type_name(), ", expected an array"));
  const auto tools = record.find("tools");
  if (tools != record.end() && !tools->is_null() && !tools->empty()) {
    throw RequestError(cat(place, ": tools: descriptions of tools can't be rendered; leave the key out or write them into a message"));
  }
  if (list.empty()) return {};
  std::vector<formats::ChatMessage> messages;
  for (std::size_t i = 0; i < list.size(); ++i) messages.push_back(message_of(list[i], cat(place, ": messages[", i, "]")));
  formats::RenderedChat rendered;
  try {
    rendered = chat.render_for_training(messages);
  } catch (const RequestError& error) {
    throw RequestError(cat(place, ": ", error.what()));
  }
  std::vector<DocumentPart> parts;
  std::size_t at = 0;
  const auto add = [&](std::size_t end, bool is_learned) {
    if (end > at) parts.push_back({rendered.text.substr(at, end - at), is_learned});
    at = end;
  };
  for (const formats::TextSpan& span : rendered.learned) {
    const auto begin = static_cast<std::size_t>(span.begin), end = static_cast<std::size_t>(span.end);
    SLUICE_CHECK(begin >= at && end >= begin && end <= rendered.text.size(), "spans of a rendered chat: [", begin, ", ", end, ")");
    add(begin, false);
    add(end, true);
  }
  add(rendered.text.size(), false);
  return parts;
}

Document document_of(const Json& record, const std::string& place, Shape shape, const CorpusOptions& options,
                     const formats::ChatTemplate* chat) {
  Document document{{}, shape, place};
  switch (shape) {
    case Shape::kText:
      document.parts = {{text_at(record, options.text_key, place), true}};
      break;
    case Shape::kCompletion:
      document.parts = {{text_at(record, "prompt", place), false}, {text_at(record, "completion", place), true}};
      break;
    case Shape::kChat:
      document.parts = chat_parts(record, place, *chat);
      break;
    case Shape::kFile:
      break;
  }
  return document;
}

bool is_white(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == kNone;
}

/// Whether the tokens end with `token`, white space behind it aside.
bool ends_with(const std::vector<std::int32_t>& ids, std::int32_t token, const formats::Tokenizer& tokenizer) {
  for (std::size_t i = ids.size(); i > 0; --i) {
    if (ids[i - 1] == token) return true;
    if (!is_white(tokenizer.decode({&ids[i - 1], 1}, false))) return false;
  }
  return false;
}

/// Where the parts end in the tokens of the whole text; none where a border lies within a token. The time grows with the square of the
/// number of parts.
std::optional<std::vector<std::size_t>> borders_in(const std::vector<std::int32_t>& whole, const Document& document,
                                                   const formats::Tokenizer& tokenizer) {
  std::vector<std::size_t> borders;
  std::string text;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i + 1 < document.parts.size(); ++i) {
    text += document.parts[i].text;
    ids.clear();
    tokenizer.encode(text, ids);
    if (ids.size() > whole.size() || !std::equal(ids.begin(), ids.end(), whole.begin())) return std::nullopt;
    borders.push_back(ids.size());
  }
  borders.push_back(whole.size());
  return borders;
}

}  // namespace

std::string_view name_of(Shape shape) {
  switch (shape) {
    case Shape::kFile:
      return "files";
    case Shape::kText:
      return "text";
    case Shape::kCompletion:
      return "prompt and completion";
    case Shape::kChat:
      return "chats";
  }
  throw LogicError("a shape of documents without a name");
}

Shape shape_of(const SourceFiles& files, const CorpusOptions& options) {
  SLUICE_CHECK(!files.are_tokens(), "token files have no shape");
  if (files.kind == FileKind::kText) return Shape::kFile;
  Lines lines(files, kLargestDocumentBytes);
  for (std::string_view line; lines.next(line);) {
    if (is_blank(line)) continue;
    // Keys are looked for, so what the policy says about texts doesn't matter yet.
    std::string clean = replace_invalid_utf8(line);
    for (std::size_t at = find_half_surrogate(clean, 0); at != kNone; at = find_half_surrogate(clean, at)) clean.replace(at, 6, "\\ufffd");
    const Json record = record_of(clean, lines);
    if (const std::optional<Shape> shape = shape_of_record(record, options)) return *shape;
    throw RequestError(cat(lines.place(), ": found the keys ", keys_of(record), ", expected ", Json(options.text_key).dump(),
                           options.text_key == "text" ? ", \"prompt\" and \"completion\", or \"messages\"" : "",
                           "; sluice.data.text_key names the key of a text"));
  }
  throw RequestError(cat(files.files.front().path, ": found no documents in it; remove it from the data"));
}

bool Document::is_empty() const {
  return std::all_of(parts.begin(), parts.end(), [](const DocumentPart& part) { return part.text.empty(); });
}

struct DocumentReader::Impl {
  SourceFiles files;
  CorpusOptions options;
  Shape shape;
  const formats::ChatTemplate* chat;
  std::int64_t largest;
  Lines lines;
  DocumentCounts counts;
  std::size_t next_file = 0;    // of kFile
  std::int64_t bytes_read = 0;  // of kFile
  std::string clean;            // a line after repair

  Impl(const SourceFiles& f, const CorpusOptions& o, Shape s, const formats::ChatTemplate* c, std::int64_t l)
      : files(f), options(o), shape(s), chat(c), largest(l), lines(f, l) {}

  std::optional<Document> next_file_document() {
    while (next_file < files.files.size()) {
      const SourceFile& source = files.files[next_file++];
      const InputFile file(source.path);
      if (file.size() > largest) {
        throw RequestError(cat(source.path, ": found ", format_bytes(file.size()), ", and a text file is one document of at most ",
                               format_bytes(largest), "; split it, or write its documents as JSON lines"));
      }
      std::string text(static_cast<std::size_t>(file.size()), '\0');
      file.read(0, text.data(), file.size());
      bytes_read += file.size();
      const std::size_t bad = find_invalid_utf8(text);
      if (bad != kNone) {
        if (options.invalid_utf8 == InvalidUtf8::kSkip) {
          ++counts.skipped;
          continue;
        }
        if (options.invalid_utf8 == InvalidUtf8::kError) {
          const bool is_wide = bad == 0 && text.size() > 1 && (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"));
          refuse_bytes(formats::place_text(file, static_cast<std::int64_t>(bad)), text[bad],
                       is_wide ? "it begins as UTF-16 does: convert it with iconv -f UTF-16 -t UTF-8" : "");
        }
        text = replace_invalid_utf8(text);
        ++counts.replaced;
      }
      if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
      if (text.empty()) {
        ++counts.empty;
        continue;
      }
      return Document{{{std::move(text), true}}, Shape::kFile, source.path};
    }
    return std::nullopt;
  }

  /// Brings a line to UTF-8 as the policy says; false: leave it out.
  bool make_valid(std::string_view& line) {
    const std::size_t bad = find_invalid_utf8(line);
    const std::size_t half = find_half_surrogate(line, 0);
    if (bad == kNone && half == kNone) return true;
    if (options.invalid_utf8 == InvalidUtf8::kSkip) {
      ++counts.skipped;
      return false;
    }
    if (options.invalid_utf8 == InvalidUtf8::kError) {
      if (bad != kNone && (half == kNone || bad < half)) refuse_bytes(lines.place(bad), line[bad], "");
      throw RequestError(
          cat(lines.place(half), ": found ", line.substr(half, 6),
              ", half of a surrogate pair, which is no character; sluice.data.invalid_utf8 \"replace\" or \"skip\" goes on"));
    }
    clean = replace_invalid_utf8(line);
    for (std::size_t at = find_half_surrogate(clean, 0); at != kNone; at = find_half_surrogate(clean, at)) clean.replace(at, 6, "\\ufffd");
    ++counts.replaced;
    line = clean;
    return true;
  }

  [[noreturn]] static void refuse_bytes(const std::string& place, char byte, const std::string& advice) {
    static constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto value = static_cast<unsigned char>(byte);
    throw RequestError(cat(place, ": found byte 0x", kDigits[value / 16], kDigits[value % 16], ", expected UTF-8; ",
                           advice.empty() ? "mend the file, or set sluice.data.invalid_utf8 to \"replace\" or \"skip\"" : advice));
  }

  std::optional<Document> next_line_document() {
    for (std::string_view line; lines.next(line);) {
      if (is_blank(line) || !make_valid(line)) continue;
      const Json record = record_of(line, lines);
      if (shape_of_record(record, options) != shape) refuse_record(record, lines, shape, options);
      Document document = document_of(record, lines.place(), shape, options, chat);
      if (!document.is_empty()) return document;
      ++counts.empty;
    }
    return std::nullopt;
  }
};

DocumentReader::DocumentReader(const SourceFiles& files, const CorpusOptions& options, Shape shape, const formats::ChatTemplate* chat,
                               std::int64_t largest)
    : impl_(std::make_unique<Impl>(files, options, shape, chat, largest)) {
  SLUICE_CHECK(!files.are_tokens() && (shape == Shape::kFile) == (files.kind == FileKind::kText), "documents of another kind of files");
  SLUICE_CHECK(shape != Shape::kChat || chat != nullptr, "chats without a template");
}

DocumentReader::~DocumentReader() = default;

std::optional<Document> DocumentReader::next() {
  return impl_->shape == Shape::kFile ? impl_->next_file_document() : impl_->next_line_document();
}

const DocumentCounts& DocumentReader::counts() const {
  return impl_->counts;
}

std::int64_t DocumentReader::bytes_read() const {
  return impl_->shape == Shape::kFile ? impl_->bytes_read : impl_->lines.bytes_read();
}

void encode(const Document& document, const formats::Tokenizer& tokenizer, EncodedDocument& out) {
  out.ids.clear();
  out.learned.clear();
  const bool is_chat = document.shape == Shape::kChat;
  const auto add = [&](std::int32_t id, bool is_learned) {
    out.ids.push_back(id);
    out.learned.push_back(is_learned ? 1 : 0);
  };
  const std::optional<std::int32_t> begin = tokenizer.begin_of_document(), end = tokenizer.end_of_document();
  if (begin && !is_chat) add(*begin, document.parts.front().is_learned);

  std::vector<std::int32_t> ids;
  std::vector<std::size_t> borders;
  for (const DocumentPart& part : document.parts) {
    tokenizer.encode(part.text, ids);
    borders.push_back(ids.size());
  }
  if (document.parts.size() > 1) {
    std::string text;
    for (const DocumentPart& part : document.parts) text += part.text;
    std::vector<std::int32_t> whole;
    tokenizer.encode(text, whole);
    if (whole != ids) {
      if (std::optional<std::vector<std::size_t>> found = borders_in(whole, document, tokenizer)) {
        ids = std::move(whole);
        borders = std::move(*found);
      }
    }
  }
  const std::size_t first = out.ids.size();
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  for (std::size_t i = 0; i < borders.size(); ++i) out.learned.resize(first + borders[i], document.parts[i].is_learned ? 1 : 0);

  if (!end || (is_chat && ends_with(out.ids, *end, tokenizer))) return;
  add(*end, document.parts.empty() || document.parts.back().is_learned);
}

}  // namespace sluice::data
