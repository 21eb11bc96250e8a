#include "data/files.hpp"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> expand(const std::string& pattern) {
  std::error_code ignored;  // what can't be asked is opened below, and that says why it fails
  if (pattern.find_first_of("*?[") == std::string::npos || fs::exists(pattern, ignored)) return {pattern};
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_NOSPACE) throw EnvironmentError(cat(pattern, ": not enough memory to list the matching files"));
  if (result == GLOB_ABORTED) throw EnvironmentError(cat(pattern, ": a folder of the pattern can't be read"));
  if (paths.empty()) throw EnvironmentError(cat(pattern, ": no file matches; give files or a pattern that has some"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

FileKind kind_of(const std::string& path) {
  static const std::set<std::string> kJson{".jsonl", ".ndjson", ".json"};
  static const std::set<std::string> kPacked{".gz", ".bz2", ".xz", ".zst", ".zip", ".parquet", ".arrow"};
  const std::string extension = fs::path(path).extension().string();
  if (kJson.contains(extension)) return FileKind::kJsonLines;
  if (kPacked.contains(extension)) {
    throw RequestError(cat(path, ": found a ", extension, " file, whose bytes are no text; unpack it, or write its rows as JSON lines"));
  }
  if (extension == ".idx") throw RequestError(cat(path, ": found the index of a token file; name the .bin that it belongs to"));
  if (extension != ".bin") return FileKind::kText;
  std::error_code ignored;  // an index that can't be asked for is as good as none: the .bin then fails llm.c's checks
  return fs::exists(fs::path(path).replace_extension(".idx"), ignored) ? FileKind::kMegatron : FileKind::kLlmc;
}

SourceFile ask(const std::string& path) {
  const InputFile file(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw IoError("asking the time of", path, errno);
  return {path, file.size(), static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

std::string_view name_of(FileKind kind) {
  switch (kind) {
    case FileKind::kText:
      return "text";
    case FileKind::kJsonLines:
      return "JSON lines";
    case FileKind::kLlmc:
      return "llm.c tokens";
    case FileKind::kMegatron:
      return "Megatron tokens";
  }
  throw LogicError("a kind of file without a name");
}

std::int64_t SourceFiles::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const SourceFile& file) { return sum + file.bytes; });
}

SourceFiles find_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    for (std::string& path : expand(pattern)) paths.push_back(std::move(path));
  }
  if (paths.empty()) throw RequestError("no data files are given; name some with --data FILE or data.train");
  SourceFiles found;
  found.kind = kind_of(paths.front());
  for (const std::string& path : paths) {
    const FileKind kind = kind_of(path);
    if (kind != found.kind) {
      throw RequestError(cat(path, ": found ", name_of(kind), " among ", name_of(found.kind), ", as ", paths.front(),
                             "; one corpus holds one kind of files, so give one"));
    }
    found.files.push_back(ask(path));
    if (found.files.back().bytes == 0) throw RequestError(cat(path, ": found no text in it; remove it from the data"));
  }
  return found;
}

}  // namespace sluice::data
