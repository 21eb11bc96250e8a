#pragma once
// The files of a corpus: which ones a user named, and what kind they are.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::data {

/// By the file's name:
///   .jsonl .ndjson .json   JSON lines, an object a line (documents.hpp)
///   .bin                   tokens: Megatron's where a file of the same name ending in .idx stands beside it, else llm.c's
///   anything else          plain text, a file a document
/// .idx is refused (its .bin is meant), and so are compressed files and tables, whose bytes are no text.
enum class FileKind : std::uint8_t { kText, kJsonLines, kLlmc, kMegatron };
std::string_view name_of(FileKind kind);  // "text", "JSON lines", "llm.c tokens", "Megatron tokens"

struct SourceFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970, of the file's content
};

struct SourceFiles {
  FileKind kind = FileKind::kText;
  std::vector<SourceFile> files;  // in stream order, at least one, none empty
  std::int64_t bytes() const;
  bool are_tokens() const { return kind == FileKind::kLlmc || kind == FileKind::kMegatron; }
};

/// `patterns`: paths or shell patterns ("data/*.txt"); the matches of each are sorted by bytes, the patterns keep their order, and a file
/// named twice counts twice. A path that exists is taken literally. Asks sizes, reads nothing.
/// Throws EnvironmentError when nothing matches or a file is missing or unreadable; RequestError for an empty file, a directory, two kinds
/// at once, or a file that is no data.
SourceFiles find_files(const std::vector<std::string>& patterns);

}  // namespace sluice::data
