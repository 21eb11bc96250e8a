#include "data/token_source.hpp"

#include <algorithm>
#include <limits>
#include <list>
#include <mutex>

#include "base/check.hpp"
#include "base/input_file.hpp"
#include "formats/byte_tokenizer.hpp"
#include "formats/llmc_tokens.hpp"
#include "formats/megatron_tokens.hpp"
#include "formats/text_file.hpp"

namespace sluice::data {
namespace {

/// Open files at a time (Megatron's are two each). Data sets of thousands of files must not exhaust the descriptors of a rank (often 1024).
constexpr std::size_t kOpenFiles = 64;

/// A file of the stream, open: one of three kinds.
struct OpenFile {
  std::size_t index = 0;
  std::unique_ptr<InputFile> text;
  std::unique_ptr<formats::LlmcTokens> llmc;
  std::unique_ptr<formats::MegatronTokens> megatron;

  std::int64_t tokens() const {
    if (text) return text->size() + 1;
    return llmc ? llmc->tokens() : megatron->tokens();
  }
};

OpenFile open_file(FileKind kind, const std::string& path, bool verify) {
  OpenFile file;
  if (kind == FileKind::kText) file.text = std::make_unique<InputFile>(path);
  if (kind == FileKind::kLlmc) file.llmc = std::make_unique<formats::LlmcTokens>(path);
  if (kind == FileKind::kMegatron) file.megatron = std::make_unique<formats::MegatronTokens>(path, verify);
  return file;
}

class FileSource final : public TokenSource {
 public:
  FileSource(const SourceFiles& files, std::int64_t vocabulary) : kind_(files.kind), vocabulary_(vocabulary) {
    SLUICE_CHECK(kind_ != FileKind::kJsonLines, "JSON lines are tokenised into a store");
    if (kind_ == FileKind::kText && vocabulary < formats::kByteVocabulary) {
      throw RequestError(cat(files.files.front().path, ": the byte tokenizer for texts has ", formats::kByteVocabulary,
                             " tokens, the model's vocabulary has ", vocabulary, "; use a model with at least as many"));
    }
    std::int64_t at = 0, document = 0;
    for (const SourceFile& source : files.files) {
      const OpenFile file = open_file(kind_, source.path, true);
      const std::int64_t tokens = file.tokens(), documents = file.megatron ? file.megatron->documents() : 1;
      if (tokens == 0) throw RequestError(cat(source.path, ": found no tokens in it; remove it from the data"));
      files_.push_back({source.path, at, at + tokens, document});
      at += tokens;
      document += documents;
      if (kind_ == FileKind::kLlmc) largest_id_ = std::numeric_limits<std::uint16_t>::max();
      if (file.megatron) largest_id_ = std::max(largest_id_, largest_id_of(file.megatron->bytes_per_token()));
    }
    documents_ = kind_ == FileKind::kLlmc ? -1 : document;
  }

  std::int64_t tokens() const override { return files_.back().end; }

  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override {
    for (std::size_t index = file_at(begin); count > 0; ++index) {
      const File& file = files_[index];
      const std::int64_t n = std::min(count, file.end - begin);
      read_file(index, begin - file.begin, n, out);
      begin += n;
      count -= n;
      out += n;
    }
  }

  bool needs_check() const override { return vocabulary_ <= largest_id_; }
  std::int64_t documents() const override { return documents_; }

  void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const override {
    const auto after =
        std::upper_bound(files_.begin(), files_.end(), first, [](std::int64_t d, const File& file) { return d < file.first_document; });
    for (auto index = static_cast<std::size_t>(after - files_.begin()) - 1; count > 0; ++index) {
      if (first == documents_) {
        *out = tokens();
        return;
      }
      const File& file = files_[index];
      const std::int64_t n = std::min(count, end_document(index) - first);
      if (kind_ == FileKind::kText) {
        *out = file.begin;
      } else {
        open(index)->megatron->read_begins(first - file.first_document, n, out);
        for (std::int64_t i = 0; i < n; ++i) out[i] += file.begin;
      }
      first += n;
      count -= n;
      out += n;
    }
  }

  std::int64_t document_at(std::int64_t token) const override {
    const std::size_t index = file_at(token);  // no other file is opened for it
    return find_document(token, files_[index].first_document, end_document(index));
  }

  std::string place(std::int64_t token) const override {
    const std::size_t index = file_at(token);
    const std::int64_t within = token - files_[index].begin;
    if (kind_ != FileKind::kText) return cat(files_[index].path, ": token ", within);
    return formats::place_text(*open(index)->text, within);
  }

 private:
  struct File {
    std::string path;
    std::int64_t begin = 0;  // first token in the stream
    std::int64_t end = 0;
    std::int64_t first_document = 0;  // in the stream
  };

  static std::int64_t largest_id_of(std::int64_t bytes) {
    return bytes == 1   ? std::numeric_limits<std::uint8_t>::max()
           : bytes == 2 ? std::numeric_limits<std::uint16_t>::max()
                        : std::numeric_limits<std::int32_t>::max();
  }

  std::int64_t end_document(std::size_t index) const { return index + 1 < files_.size() ? files_[index + 1].first_document : documents_; }

  std::size_t file_at(std::int64_t token) const {
    const auto after =
        std::upper_bound(files_.begin(), files_.end(), token, [](std::int64_t t, const File& file) { return t < file.begin; });
    return static_cast<std::size_t>(after - files_.begin()) - 1;
  }

  std::shared_ptr<const OpenFile> open(std::size_t index) const {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(recent_.begin(), recent_.end(), [&](const auto& each) { return each->index == index; });
    if (at != recent_.end()) {
      recent_.splice(recent_.begin(), recent_, at);
      return recent_.front();
    }
    const File& known = files_[index];
    auto file = std::make_shared<OpenFile>(open_file(kind_, known.path, false));
    file->index = index;
    const std::int64_t found = file->tokens(), tokens = known.end - known.begin;
    if (found != tokens)
      throw FormatError(known.path, cat("found ", found, " tokens, had ", tokens, " at the start; don't change data in use"));
    recent_.push_front(file);
    if (recent_.size() > kOpenFiles) recent_.pop_back();
    return file;
  }

  /// Tokens [begin, begin + count) of one file.
  void read_file(std::size_t index, std::int64_t begin, std::int64_t count, std::int32_t* out) const {
    const std::shared_ptr<const OpenFile> file = open(index);
    if (file->text) {
      // The bytes are read into the far quarter of `out` and widened from the front, so no second buffer is needed.
      const std::int64_t bytes = std::min(count, file->text->size() - begin);
      auto* narrow = reinterpret_cast<unsigned char*>(out) + 3 * bytes;
      file->text->read(begin, narrow, bytes);
      for (std::int64_t i = 0; i < bytes; ++i) out[i] = narrow[i];
      if (bytes < count) out[bytes] = formats::kEndOfDocument;
      return;
    }
    if (file->llmc) {
      file->llmc->read(begin, count, out);
    } else {
      file->megatron->read(begin, count, out);
    }
    const std::int32_t* bad = std::find_if(out, out + count, [&](std::int32_t token) { return token >= vocabulary_; });
    if (bad != out + count) {
      throw RequestError(cat(files_[index].path, ": token ", begin + (bad - out), ": found ", *bad, ", expected less than ", vocabulary_,
                             ", the model's vocabulary; use the model that these data were tokenised for"));
    }
  }

  const FileKind kind_;
  const std::int64_t vocabulary_;
  std::int64_t largest_id_ = -1;  // that the files can hold; -1: none beyond the vocabulary
  std::int64_t documents_ = 0;    // -1: unknown
  std::vector<File> files_;
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const OpenFile>> recent_;  // most recently used first
};

class StoreSource final : public TokenSource {
 public:
  explicit StoreSource(std::shared_ptr<const TokenStore> store) : store_(std::move(store)) {}
  std::int64_t tokens() const override { return store_->counts().tokens; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override { store_->read(begin, count, out); }
  bool needs_check() const override { return false; }
  bool has_mask() const override { return store_->has_mask(); }
  std::int64_t learned() const override { return store_->counts().learned; }
  void read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const override { store_->read_mask(begin, count, out); }
  std::int64_t documents() const override { return store_->counts().documents; }
  void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const override { store_->read_begins(first, count, out); }
  std::string place(std::int64_t token) const override {
    const std::int64_t document = document_at(token);
    std::int64_t begin = 0;
    store_->read_begins(document, 1, &begin);
    return cat("document ", document, ", token ", token - begin);
  }

 private:
  std::shared_ptr<const TokenStore> store_;
};

}  // namespace

void TokenSource::read_mask(std::int64_t /*begin*/, std::int64_t count, std::uint8_t* out) const {
  std::fill_n(out, count, std::uint8_t{1});
}

std::int64_t TokenSource::find_document(std::int64_t token, std::int64_t low, std::int64_t high) const {
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    std::int64_t begin = 0;
    read_begins(middle, 1, &begin);
    (begin <= token ? low : high) = middle;
  }
  return low;
}

std::shared_ptr<const TokenSource> make_file_source(const SourceFiles& files, std::int64_t vocabulary) {
  return std::make_shared<FileSource>(files, vocabulary);
}

std::shared_ptr<const TokenSource> make_store_source(std::shared_ptr<const TokenStore> store) {
  return std::make_shared<StoreSource>(std::move(store));
}

}  // namespace sluice::data
