#include "data/corpus.hpp"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <list>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "formats/byte_tokenizer.hpp"
#include "formats/input_file.hpp"
#include "formats/llmc_tokens.hpp"
#include "formats/text_file.hpp"

namespace sluice::data {
namespace {

/// Open files at a time. Data sets of thousands of files must not exhaust the descriptors of a rank (often 1024).
constexpr std::size_t kOpenFiles = 64;

bool is_token_file(const std::string& path) {
  return std::filesystem::path(path).extension() == ".bin";
}

/// The files a path or pattern names, sorted by bytes. A path that exists is taken literally.
std::vector<std::string> expand(const std::string& pattern) {
  std::error_code ignored;  // what can't be asked is opened below, and that says why it fails
  if (pattern.find_first_of("*?[") == std::string::npos || std::filesystem::exists(pattern, ignored)) return {pattern};
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

/// A file of the stream, open: either kind.
struct OpenFile {
  std::size_t index = 0;
  std::unique_ptr<formats::LlmcTokens> tokens;
  std::unique_ptr<formats::InputFile> text;
};

}  // namespace

struct Corpus::Impl {
  struct File {
    std::string path;
    std::int64_t begin = 0;  // first token in the stream
    std::int64_t end = 0;
  };
  std::vector<File> files;
  bool is_text = false;
  std::int64_t vocabulary = 0;
  std::mutex mutex;
  std::list<std::shared_ptr<const OpenFile>> recent;  // most recently used first

  std::shared_ptr<const OpenFile> open(std::size_t index) {
    const std::lock_guard lock(mutex);
    const auto at = std::find_if(recent.begin(), recent.end(), [&](const auto& each) { return each->index == index; });
    if (at != recent.end()) {
      recent.splice(recent.begin(), recent, at);
      return recent.front();
    }
    auto file = std::make_shared<OpenFile>();
    file->index = index;
    const File& known = files[index];
    const std::int64_t tokens = known.end - known.begin;
    std::int64_t found = 0;
    if (is_text) {
      file->text = std::make_unique<formats::InputFile>(known.path);
      found = file->text->size() + 1;
    } else {
      file->tokens = std::make_unique<formats::LlmcTokens>(known.path);
      found = file->tokens->tokens();
    }
    if (found != tokens)
      throw FormatError(known.path, cat("found ", found, " tokens, had ", tokens, " at the start; don't change data in use"));
    recent.push_front(file);
    if (recent.size() > kOpenFiles) recent.pop_back();
    return file;
  }

  /// Tokens [begin, begin + count) of one file.
  void read_file(std::size_t index, std::int64_t begin, std::int64_t count, std::int32_t* out) {
    const std::shared_ptr<const OpenFile> file = open(index);
    if (is_text) {
      // The bytes are read into the far quarter of `out` and widened from the front, so no second buffer is needed.
      const std::int64_t bytes = std::min(count, file->text->size() - begin);
      auto* narrow = reinterpret_cast<unsigned char*>(out) + 3 * bytes;
      file->text->read(begin, narrow, bytes);
      for (std::int64_t i = 0; i < bytes; ++i) out[i] = narrow[i];
      if (bytes < count) out[bytes] = formats::kEndOfDocument;
      return;
    }
    file->tokens->read(begin, count, out);
    const std::int32_t* bad = std::find_if(out, out + count, [&](std::int32_t token) { return token >= vocabulary; });
    if (bad != out + count) {
      throw RequestError(cat(files[index].path, ": token ", begin + (bad - out), ": found ", *bad, ", expected less than ", vocabulary,
                             ", the model's vocabulary; use the model that these data were tokenised for"));
    }
  }

  std::size_t file_at(std::int64_t token) const {
    const auto after = std::upper_bound(files.begin(), files.end(), token, [](std::int64_t t, const File& file) { return t < file.begin; });
    return static_cast<std::size_t>(after - files.begin()) - 1;
  }
};

Corpus::Corpus(const std::vector<std::string>& patterns, std::int64_t vocabulary) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.vocabulary = vocabulary;
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    for (std::string& path : expand(pattern)) paths.push_back(std::move(path));
  }
  if (paths.empty()) throw RequestError("no data files are given; name some with --data FILE or data.train");
  impl.is_text = !is_token_file(paths.front());
  std::int64_t at = 0;
  for (const std::string& path : paths) {
    if (is_token_file(path) == impl.is_text) {
      throw RequestError(cat(path, ": found ", impl.is_text ? "a token file among texts" : "a text among token files (.bin)", ", as ",
                             paths.front(), "; their tokens mean different things, so give one kind"));
    }
    std::int64_t tokens = 0;
    if (impl.is_text) {
      const formats::InputFile file(path);
      if (file.size() > 0) tokens = file.size() + 1;
    } else {
      tokens = formats::LlmcTokens(path).tokens();
    }
    if (tokens == 0) throw RequestError(cat(path, ": found no ", impl.is_text ? "text" : "tokens", " in it; remove it from the data"));
    impl.files.push_back({path, at, at + tokens});
    at += tokens;
  }
  if (impl.is_text && vocabulary < formats::kByteVocabulary) {
    throw RequestError(cat(paths.front(), ": the byte tokenizer for texts has ", formats::kByteVocabulary,
                           " tokens, the model's vocabulary has ", vocabulary, "; use a model with at least as many"));
  }
}

Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;
Corpus::~Corpus() = default;

std::int64_t Corpus::tokens() const {
  return impl_->files.back().end;
}

std::vector<std::string> Corpus::files() const {
  std::vector<std::string> paths;
  for (const Impl::File& file : impl_->files) paths.push_back(file.path);
  return paths;
}

std::string Corpus::tokenizer() const {
  return impl_->is_text ? "bytes" : "llmc";
}

std::uint64_t Corpus::fingerprint() const {
  Hash hash;
  hash.add(tokenizer());
  for (const Impl::File& file : impl_->files) {
    hash.add(std::filesystem::path(file.path).filename().string()).add(static_cast<std::uint64_t>(file.end - file.begin));
  }
  return hash.value();
}

void Corpus::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= tokens() - count, "tokens [", begin, ", ", begin + count, ") of ", tokens());
  if (count == 0) return;
  for (std::size_t index = impl_->file_at(begin); count > 0; ++index) {
    const Impl::File& file = impl_->files[index];
    const std::int64_t n = std::min(count, file.end - begin);
    impl_->read_file(index, begin - file.begin, n, out);
    begin += n;
    count -= n;
    out += n;
  }
}

void Corpus::check(std::int64_t begin, std::int64_t end) const {
  SLUICE_CHECK(begin >= 0 && begin <= end && end <= tokens(), "tokens [", begin, ", ", end, ") of ", tokens());
  constexpr std::int64_t kLargestToken = 65535;  // of uint16
  if (impl_->is_text || impl_->vocabulary > kLargestToken) return;
  std::vector<std::int32_t> piece(256 * 1024);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t n = std::min<std::int64_t>(end - at, static_cast<std::int64_t>(piece.size()));
    read(at, n, piece.data());
    at += n;
  }
}

std::string Corpus::place(std::int64_t token) const {
  SLUICE_CHECK(token >= 0 && token < tokens(), "token ", token, " of ", tokens());
  const std::size_t index = impl_->file_at(token);
  const std::int64_t within = token - impl_->files[index].begin;
  const std::shared_ptr<const OpenFile> file = impl_->open(index);
  return impl_->is_text ? formats::place_text(*file->text, within) : cat(file->tokens->path(), ": token ", within);
}

}  // namespace sluice::data
