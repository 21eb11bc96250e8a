#include "data/token_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "checkpoint/checksum.hpp"

namespace sluice::data {

static_assert(std::endian::native == std::endian::little, "token stores are little endian; a big-endian host must swap bytes");

namespace {

using Json = nlohmann::ordered_json;
using checkpoint::to_hex;
using checkpoint::xxh64;

constexpr std::string_view kMagic = "SLUICE-TOKENS 1 ";
constexpr std::int64_t kBlockBytes = 4 * kMiB;
constexpr std::int64_t kLargestShortVocabulary = 65536;  // ids fit in u16
constexpr const char* kIds = "ids";
constexpr const char* kMask = "mask";
constexpr const char* kDocuments = "documents";
constexpr const char* kHeader = "header";

std::string joined(const std::string& directory, const char* name) {
  return directory + "/" + name;
}

/// A file written from front to back, in blocks, with the checksum of each.
class BlockFile {
 public:
  BlockFile(const std::string& directory, const char* name) : file_(joined(directory, name), O_WRONLY | O_CREAT | O_EXCL) {
    block_.reserve(static_cast<std::size_t>(kBlockBytes));
  }
  void append(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const std::size_t n = std::min(bytes, static_cast<std::size_t>(kBlockBytes) - block_.size());
      block_.insert(block_.end(), at, at + n);
      at += n;
      bytes -= n;
      if (block_.size() == static_cast<std::size_t>(kBlockBytes)) flush();
    }
  }
  void finish() {
    flush();
    file_.sync();
    file_.close();
  }
  Json description() const { return {{"bytes", bytes_}, {"blocks_xxh64", checksums_}}; }

 private:
  void flush() {
    if (block_.empty()) return;
    file_.write_at(block_.data(), static_cast<std::int64_t>(block_.size()), bytes_);
    checksums_.push_back(to_hex(xxh64(block_.data(), block_.size())));
    bytes_ += static_cast<std::int64_t>(block_.size());
    block_.clear();
  }
  File file_;
  std::vector<char> block_;
  std::int64_t bytes_ = 0;
  std::vector<std::string> checksums_;
};

Json json_of(const StoreCounts& counts) {
  return {{"tokens", counts.tokens},    {"learned", counts.learned},      {"documents", counts.documents},   {"longest", counts.longest},
          {"empty", counts.left.empty}, {"skipped", counts.left.skipped}, {"replaced", counts.left.replaced}};
}

StoreCounts counts_from(const Json& json) {
  const auto number = [&](const char* key) { return json.at(key).get<std::int64_t>(); };
  StoreCounts counts;
  counts.tokens = number("tokens");
  counts.learned = number("learned");
  counts.documents = number("documents");
  counts.longest = number("longest");
  counts.left = {number("empty"), number("skipped"), number("replaced")};
  return counts;
}

/// One file of a store, open, with the size that the header says.
InputFile open_part(const std::string& path, const char* name, const Json& files, std::int64_t expected, bool verify) {
  InputFile file(joined(path, name));
  const Json& description = files.at(name);
  if (description.at("bytes").get<std::int64_t>() != expected || file.size() != expected) {
    throw FormatError(file.path(), cat("found ", file.size(), " bytes, expected ", expected));
  }
  const auto checksums = description.at("blocks_xxh64").get<std::vector<std::string>>();
  if (static_cast<std::int64_t>(checksums.size()) != divide_up(expected, kBlockBytes)) {
    throw FormatError(file.path(), cat("found ", checksums.size(), " checksums for ", expected, " bytes"));
  }
  if (!verify) return file;
  std::vector<char> block(static_cast<std::size_t>(std::min(kBlockBytes, expected)));
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * kBlockBytes, bytes = std::min(kBlockBytes, expected - begin);
    file.read(begin, block.data(), bytes);
    const std::string found = to_hex(xxh64(block.data(), static_cast<std::size_t>(bytes)));
    if (found != checksums[i]) throw FormatError(file.path(), cat("block ", i, " has checksum ", found, ", expected ", checksums[i]));
  }
  return file;
}

}  // namespace

struct TokenStoreWriter::Impl {
  std::string path;
  std::string temporary;
  bool is_short = false;
  bool is_finished = false;
  StoreCounts counts;
  std::optional<BlockFile> ids, mask, documents;
  std::vector<std::uint16_t> narrow;
  std::uint8_t bits = 0;  // of the mask's byte that isn't full

  Impl(const std::string& p, std::int64_t vocabulary)
      : path(p), temporary(cat(p, ".tmp.", ::getpid())), is_short(vocabulary <= kLargestShortVocabulary) {
    if (exists(temporary)) remove_tree(temporary, kHeader);  // of a process that was killed and had this one's number
    make_directories(temporary);
    ids.emplace(temporary, kIds);
    mask.emplace(temporary, kMask);
    documents.emplace(temporary, kDocuments);
  }
};

TokenStoreWriter::TokenStoreWriter(const std::string& path, std::int64_t vocabulary) : impl_(std::make_unique<Impl>(path, vocabulary)) {}

TokenStoreWriter::~TokenStoreWriter() {
  if (impl_->is_finished) return;
  try {
    remove_tree(impl_->temporary, kHeader);
  } catch (const Error&) {
    // Left for remove_other_stores(): a destructor has nobody to tell.
  }
}

void TokenStoreWriter::add(const EncodedDocument& document) {
  Impl& impl = *impl_;
  SLUICE_CHECK(!document.ids.empty() && document.ids.size() == document.learned.size(), document.ids.size(), " tokens, ",
               document.learned.size(), " marks");
  impl.documents->append(&impl.counts.tokens, sizeof impl.counts.tokens);
  if (impl.is_short) {
    impl.narrow.assign(document.ids.begin(), document.ids.end());
    impl.ids->append(impl.narrow.data(), impl.narrow.size() * sizeof(std::uint16_t));
  } else {
    impl.ids->append(document.ids.data(), document.ids.size() * sizeof(std::int32_t));
  }
  for (const std::uint8_t learned : document.learned) {
    impl.bits = static_cast<std::uint8_t>(impl.bits | learned << (impl.counts.tokens % 8));
    impl.counts.learned += learned;
    if (++impl.counts.tokens % 8 != 0) continue;
    impl.mask->append(&impl.bits, 1);
    impl.bits = 0;
  }
  ++impl.counts.documents;
  impl.counts.longest = std::max(impl.counts.longest, static_cast<std::int64_t>(document.ids.size()));
}

const StoreCounts& TokenStoreWriter::counts() const {
  return impl_->counts;
}

void TokenStoreWriter::finish(const DocumentCounts& left) {
  Impl& impl = *impl_;
  impl.counts.left = left;
  impl.documents->append(&impl.counts.tokens, sizeof impl.counts.tokens);
  if (impl.counts.tokens % 8 != 0) impl.mask->append(&impl.bits, 1);
  for (BlockFile* file : {&*impl.ids, &*impl.mask, &*impl.documents}) file->finish();
  Json files = {{kIds, impl.ids->description()}, {kDocuments, impl.documents->description()}};
  if (impl.counts.learned < impl.counts.tokens) {
    files[kMask] = impl.mask->description();
  } else if (::unlink(joined(impl.temporary, kMask).c_str()) != 0) {
    throw IoError("removing", joined(impl.temporary, kMask), errno);
  }
  const std::string body =
      Json{{"id_bytes", impl.is_short ? 2 : 4}, {"block_bytes", kBlockBytes}, {"counts", json_of(impl.counts)}, {"files", files}}.dump() +
      "\n";
  write_durably(joined(impl.temporary, kHeader), cat(kMagic, to_hex(xxh64(body.data(), body.size())), "\n", body));
  if (exists(impl.path)) remove_tree(impl.path, kHeader);
  rename_path(impl.temporary, impl.path);
  impl.is_finished = true;
  sync_directory(std::filesystem::path(impl.path).parent_path().string());
}

struct TokenStore::Impl {
  StoreCounts counts;
  std::int64_t id_bytes = 0;
  std::optional<InputFile> ids, mask, documents;
};

TokenStore::TokenStore(const std::string& path, bool verify) : impl_(std::make_unique<Impl>()) {
  const std::string header_path = joined(path, kHeader);
  const std::string header = read_text(header_path, kGiB);
  const std::size_t line = header.find('\n');
  if (line == std::string::npos || !header.starts_with(kMagic)) throw FormatError(header_path, cat("does not begin with \"", kMagic, "\""));
  const std::string expected = header.substr(kMagic.size(), line - kMagic.size());
  const std::string found = to_hex(xxh64(header.data() + line + 1, header.size() - line - 1));
  if (found != expected) throw FormatError(header_path, cat("has checksum ", found, ", expected ", expected));
  try {
    const Json json = Json::parse(header.begin() + static_cast<std::ptrdiff_t>(line) + 1, header.end());
    Impl& impl = *impl_;
    impl.counts = counts_from(json.at("counts"));
    impl.id_bytes = json.at("id_bytes").get<std::int64_t>();
    const StoreCounts& c = impl.counts;
    if ((impl.id_bytes != 2 && impl.id_bytes != 4) || json.at("block_bytes") != kBlockBytes || c.documents < 1 || c.tokens < c.documents ||
        c.learned < 0 || c.learned > c.tokens || c.tokens > INT64_MAX / 8 || c.documents > INT64_MAX / 16) {
      throw FormatError(header_path, "has numbers that can't be");
    }
    const Json& files = json.at("files");
    impl.ids.emplace(open_part(path, kIds, files, c.tokens * impl.id_bytes, verify));
    impl.documents.emplace(open_part(path, kDocuments, files, (c.documents + 1) * 8, verify));
    if (files.contains(kMask)) impl.mask.emplace(open_part(path, kMask, files, divide_up(c.tokens, 8), verify));
  } catch (const Json::exception& error) {
    throw FormatError(header_path, error.what());
  }
}

TokenStore::~TokenStore() = default;

const StoreCounts& TokenStore::counts() const {
  return impl_->counts;
}

bool TokenStore::has_mask() const {
  return impl_->mask.has_value();
}

void TokenStore::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= impl_->counts.tokens - count, "tokens [", begin, ", ", begin + count, ") of ",
               impl_->counts.tokens);
  if (impl_->id_bytes == 4) {
    impl_->ids->read(begin * 4, out, count * 4);
    return;
  }
  // The short ids are read into the far half of `out` and widened from the front, so no second buffer is needed.
  char* half = reinterpret_cast<char*>(out) + 2 * count;
  impl_->ids->read(begin * 2, half, count * 2);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t id = 0;
    std::memcpy(&id, half + 2 * i, sizeof id);
    out[i] = id;
  }
}

void TokenStore::read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const {
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= impl_->counts.tokens - count, "marks [", begin, ", ", begin + count, ") of ",
               impl_->counts.tokens);
  if (!impl_->mask) {
    std::fill_n(out, count, std::uint8_t{1});
    return;
  }
  std::array<std::uint8_t, 8 << 10> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below before use
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = begin + done;
    const std::int64_t n = std::min<std::int64_t>(count - done, 8 * static_cast<std::int64_t>(piece.size()) - at % 8);
    impl_->mask->read(at / 8, piece.data(), (at + n - 1) / 8 - at / 8 + 1);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t bit = at % 8 + i;
      out[done + i] = static_cast<std::uint8_t>(piece[static_cast<std::size_t>(bit / 8)] >> (bit % 8) & 1);
    }
    done += n;
  }
}

void TokenStore::read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const {
  SLUICE_CHECK(first >= 0 && count >= 0 && first <= impl_->counts.documents + 1 - count, "documents [", first, ", ", first + count, ") of ",
               impl_->counts.documents);
  impl_->documents->read(first * 8, out, count * 8);
}

std::uint64_t store_identity(const SourceFiles& files, const CorpusOptions& options, Shape shape, const formats::Tokenizer& tokenizer,
                             std::uint64_t chat_identity) {
  Hash hash;
  hash.add(kMagic).add(name_of(files.kind)).add(static_cast<std::uint64_t>(shape));
  for (const SourceFile& file : files.files) {
    hash.add(std::filesystem::path(file.path).filename().string());
    hash.add(static_cast<std::uint64_t>(file.bytes)).add(static_cast<std::uint64_t>(file.modified_ns));
  }
  hash.add(tokenizer.fingerprint()).add(chat_identity).add(options.text_key).add(static_cast<std::uint64_t>(options.invalid_utf8));
  return hash.value();
}

bool make_store(const std::string& path, DocumentReader& reader, std::int64_t bytes_total, const formats::Tokenizer& tokenizer,
                const std::function<bool(const TokeniseProgress&)>& watch) {
  TokenStoreWriter writer(path, tokenizer.vocabulary());
  EncodedDocument encoded;
  std::int64_t tokenless = 0;
  while (const std::optional<Document> document = reader.next()) {
    encode(*document, tokenizer, encoded);
    if (encoded.ids.empty()) {
      ++tokenless;
    } else {
      writer.add(encoded);
    }
    if (!watch({reader.bytes_read(), bytes_total, writer.counts().documents, writer.counts().tokens})) return false;
  }
  DocumentCounts left = reader.counts();
  left.empty += tokenless;
  if (writer.counts().documents == 0) {
    throw RequestError(cat("the data hold no document to train on: ", left.empty, " are empty and ", left.skipped,
                           " were skipped since they aren't UTF-8; give others"));
  }
  writer.finish(left);
  return true;
}

void remove_other_stores(const std::string& directory, const std::vector<std::string>& keep) {
  for (const std::string& name : names_in(directory)) {
    const std::string path = directory + "/" + name;
    if (std::find(keep.begin(), keep.end(), path) == keep.end()) remove_tree(path, kHeader);
  }
}

}  // namespace sluice::data
