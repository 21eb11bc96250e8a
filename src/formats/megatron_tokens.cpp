#include "formats/megatron_tokens.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::formats {

static_assert(std::endian::native == std::endian::little, "Megatron's files are little endian; a big-endian host must swap bytes");

namespace {

constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::uint64_t kVersion = 1;
constexpr std::int64_t kVersionAt = 9;
constexpr std::int64_t kCodeAt = 17;
constexpr std::int64_t kSequencesAt = 18;
constexpr std::int64_t kDocumentsAt = 26;
constexpr std::int64_t kHeaderBytes = 34;
constexpr std::int64_t kPiece = 8 << 10;  // entries or tokens that are read at once
constexpr std::int64_t kShortVocabulary = 65500;
constexpr std::uint8_t kCodeI32 = 4;
constexpr std::uint8_t kCodeU16 = 8;

std::string index_of(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".idx").string();
}

/// Bytes of an id; 0 for floats, negative for codes of nothing.
std::int64_t width_of(std::uint8_t code) {
  constexpr std::array<std::int64_t, 9> kWidths{-1, 1, 1, 2, 4, 8, 0, 0, 2};
  return code < kWidths.size() ? kWidths[code] : -1;
}

template <typename T>
T value_at(const InputFile& file, std::int64_t byte) {
  T value{};
  file.read(byte, &value, sizeof value);
  return value;
}

/// Calls take(i, entry) for entries [0, count) of type T that begin at `byte`, reading them in pieces.
template <typename T, typename Take>
void walk(const InputFile& file, std::int64_t byte, std::int64_t count, const Take& take) {
  std::vector<T> piece(static_cast<std::size_t>(std::min(count, kPiece)));
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min(count - done, kPiece);
    file.read(byte + done * static_cast<std::int64_t>(sizeof(T)), piece.data(), n * static_cast<std::int64_t>(sizeof(T)));
    for (std::int64_t i = 0; i < n; ++i) take(done + i, piece[static_cast<std::size_t>(i)]);
    done += n;
  }
}

/// Entries that follow each other, asked for in ascending order, one read for many.
template <typename T>
class Window {
 public:
  Window(const InputFile& file, std::int64_t byte, std::int64_t count) : file_(file), byte_(byte), count_(count) {}
  T at(std::int64_t i) {
    if (i < begin_ || i >= begin_ + static_cast<std::int64_t>(entries_.size())) {
      begin_ = i;
      entries_.resize(static_cast<std::size_t>(std::min(kPiece, count_ - i)));
      file_.read(byte_ + i * static_cast<std::int64_t>(sizeof(T)), entries_.data(), static_cast<std::int64_t>(entries_.size() * sizeof(T)));
    }
    return entries_[static_cast<std::size_t>(i - begin_)];
  }

 private:
  const InputFile& file_;
  std::int64_t byte_;
  std::int64_t count_;
  std::int64_t begin_ = 0;
  std::vector<T> entries_;
};

}  // namespace

MegatronTokens::MegatronTokens(const std::string& path, bool verify) : data_(path), index_(index_of(path)) {
  read_header();
  if (verify) {
    check_index();
  } else {
    check_ends();
  }
}

void MegatronTokens::read_header() {
  const auto refuse = [&](const std::string& detail) { throw FormatError(index_.path(), detail); };
  if (index_.size() < kHeaderBytes) {
    refuse(cat("found ", index_.size(), " bytes, expected at least the ", kHeaderBytes, " of a header of Megatron's token files"));
  }
  if (value_at<std::array<char, 9>>(index_, 0) != kMagic)
    refuse("byte 0: found another magic, expected \"MMIDIDX\" and two zeros; it must be an index of Megatron's mmap format");
  const auto version = value_at<std::uint64_t>(index_, kVersionAt);
  if (version != kVersion) refuse(cat("byte ", kVersionAt, ", version: found ", version, ", expected ", kVersion));
  code_ = value_at<std::uint8_t>(index_, kCodeAt);
  width_ = width_of(code_);
  if (width_ == 0)
    throw RequestError(
        cat(index_.path(), ": byte ", kCodeAt, ", type: found ", int{code_}, ", floats, expected whole numbers; it holds no tokens"));
  if (width_ < 0) refuse(cat("byte ", kCodeAt, ", type: found ", int{code_}, ", expected 1, 2, 3, 4, 5 or 8"));

  // Compared without multiplying, since the counts may be anything.
  const auto sequences = value_at<std::uint64_t>(index_, kSequencesAt);
  const auto entries = value_at<std::uint64_t>(index_, kDocumentsAt);
  const auto room = static_cast<std::uint64_t>(index_.size() - kHeaderBytes);
  const std::string cut_short = "; the index is cut short, not finished or damaged";
  if (sequences > room / 12)
    refuse(cat("byte ", kSequencesAt, ", sequences: found ", sequences, ", for which ", index_.size(), " bytes are too few", cut_short));
  if (entries == 0) refuse(cat("byte ", kDocumentsAt, ", entries of documents: found 0, expected at least 1"));
  if (entries > (room - 12 * sequences) / 8) {
    refuse(cat("byte ", kDocumentsAt, ", entries of documents: found ", entries, ", for which ", index_.size(),
               " bytes are too few beside ", sequences, " sequences", cut_short));
  }
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(entries) - 1;
  pointers_ = kHeaderBytes + 4 * sequences_;
  boundaries_ = pointers_ + 8 * sequences_;
  const std::int64_t expected = boundaries_ + 8 * (documents_ + 1);
  if (sequences_ > 0 && index_.size() == expected + sequences_)
    throw RequestError(
        cat(index_.path(), ": byte ", expected, ": found the modes of multimodal data, which is not supported; expected text only"));
  if (index_.size() != expected)
    refuse(cat("size: found ", index_.size(), " bytes, expected ", expected, " for ", sequences_, " sequences and ", documents_,
               " documents"));
  if (data_.size() % width_ != 0)
    throw FormatError(
        path(), cat("size: found ", data_.size(), " bytes, expected a multiple of the ", width_, " of an id; it is cut short or damaged"));
  tokens_ = data_.size() / width_;
}

std::int64_t MegatronTokens::length_at(std::int64_t sequence) const {
  return value_at<std::int32_t>(index_, kHeaderBytes + 4 * sequence);
}

std::int64_t MegatronTokens::pointer_at(std::int64_t sequence) const {
  return value_at<std::int64_t>(index_, pointers_ + 8 * sequence);
}

void MegatronTokens::check_ends() const {
  const auto last = value_at<std::int64_t>(index_, boundaries_ + 8 * documents_);
  if (last != sequences_)
    throw FormatError(index_.path(),
                      cat("byte ", boundaries_ + 8 * documents_, ", end of the last document: found ", last, ", expected ", sequences_));
  std::int64_t end = 0;
  if (sequences_ > 0) {
    const std::int64_t begin = pointer_at(sequences_ - 1);
    const std::int64_t length = length_at(sequences_ - 1);
    if (begin < 0 || begin > data_.size() || length < 0)
      throw FormatError(index_.path(), cat("byte ", pointers_ + 8 * (sequences_ - 1), ", begin of the last sequence: found ", begin,
                                           " and ", length, " tokens, expected both within the ", data_.size(), " bytes of ", path()));
    end = begin + width_ * length;
  }
  if (end != data_.size())
    throw FormatError(path(), cat("size: found ", data_.size(), " bytes, expected the ", end,
                                  " where the index ends its last sequence; one of them is cut short, "
                                  "not finished or of another data set"));
}

void MegatronTokens::check_index() const {
  Window<std::int64_t> pointers(index_, pointers_, sequences_);
  std::int64_t end = 0;
  walk<std::int32_t>(index_, kHeaderBytes, sequences_, [&](std::int64_t i, std::int32_t length) {
    if (length < 0)
      throw FormatError(index_.path(),
                        cat("byte ", kHeaderBytes + 4 * i, ", tokens of sequence ", i, ": found ", length, ", expected 0 or more"));
    const std::int64_t begin = pointers.at(i);
    if (begin != end)
      throw FormatError(index_.path(), cat("byte ", pointers_ + 8 * i, ", begin of sequence ", i, ": found ", begin, ", expected ", end,
                                           ", where the one before it ends"));
    if (width_ * length > data_.size() - end)
      throw FormatError(path(), cat("size: found ", data_.size(), " bytes, expected at least ", end + width_ * length, " for sequence ", i,
                                    " of ", index_.path(), "; one of them is cut short, not finished or of another data set"));
    end += width_ * length;
  });
  if (end != data_.size())
    throw FormatError(path(), cat("size: found ", data_.size(), " bytes, expected ", end, " for the ", sequences_, " sequences of ",
                                  index_.path(), "; the index is not finished or of another data set"));
  std::int64_t before = 0;
  walk<std::int64_t>(index_, boundaries_, documents_ + 1, [&](std::int64_t i, std::int64_t sequence) {
    const std::int64_t lowest = i == 0 ? 0 : before;
    const std::int64_t highest = i == 0 ? 0 : sequences_;
    if (sequence < lowest || sequence > highest || (i == documents_ && sequence != sequences_)) {
      throw FormatError(index_.path(), cat("byte ", boundaries_ + 8 * i,
                                           i == documents_ ? ", end of the last document" : cat(", first sequence of document ", i),
                                           ": found ", sequence, ", expected ",
                                           i == 0            ? std::string("0")
                                           : i == documents_ ? cat(sequences_)
                                                             : cat(lowest, " to ", highest)));
    }
    before = sequence;
  });
}

void MegatronTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= tokens_ - count, path(), ": ", count, " tokens from ", begin, " of ", tokens_);
  const auto copy = [&]<typename T>(T) {
    walk<T>(data_, begin * width_, count, [&](std::int64_t i, T id) {
      if (!std::in_range<std::int32_t>(id) || id < 0)
        throw FormatError(path(), cat("byte ", (begin + i) * width_, ", token ", begin + i, ": found ", std::int64_t{id},
                                      ", expected 0 to ", std::numeric_limits<std::int32_t>::max()));
      out[i] = static_cast<std::int32_t>(id);  // NOLINT(bugprone-signed-char-misuse): of one byte, a number all the same
    });
  };
  switch (code_) {
    case 1:
      return copy(std::uint8_t{});
    case 2:
      return copy(std::int8_t{});
    case 3:
      return copy(std::int16_t{});
    case kCodeI32:
      return copy(std::int32_t{});
    case 5:
      return copy(std::int64_t{});
    default:
      return copy(std::uint16_t{});
  }
}

void MegatronTokens::read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const {
  SLUICE_CHECK(first >= 0 && count >= 0 && first <= documents_ + 1 - count, path(), ": documents [", first, ", ", first + count, ") of ",
               documents_);
  Window<std::int64_t> pointers(index_, pointers_, sequences_);
  walk<std::int64_t>(index_, boundaries_ + 8 * first, count, [&](std::int64_t i, std::int64_t sequence) {
    const auto refuse = [&](std::int64_t byte, const std::string& what, std::int64_t found, std::int64_t most) {
      throw FormatError(index_.path(), cat("byte ", byte, ", ", what, ": found ", found, ", expected 0 to ", most));
    };
    if (sequence < 0 || sequence > sequences_)
      refuse(boundaries_ + 8 * (first + i), cat("first sequence of document ", first + i), sequence, sequences_);
    if (sequence == sequences_) {
      out[i] = tokens_;
      return;
    }
    const std::int64_t begin = pointers.at(sequence);
    if (begin < 0 || begin > data_.size()) refuse(pointers_ + 8 * sequence, cat("begin of sequence ", sequence), begin, data_.size());
    out[i] = begin / width_;
  });
}

std::vector<std::int32_t> megatron_sequences(std::int64_t tokens) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> lengths;
  for (; tokens > 0; tokens -= lengths.back()) lengths.push_back(static_cast<std::int32_t>(std::min(tokens, kMost)));
  return lengths;
}

namespace {
constexpr std::size_t kPendingBytes = 1 << 20;
constexpr const char* kUnfinished = ".unfinished";
}  // namespace

MegatronTokensWriter::MegatronTokensWriter(const std::string& path, std::int64_t vocabulary)
    : path_(path),
      index_path_(index_of(path)),
      vocabulary_(vocabulary),
      is_short_(vocabulary < kShortVocabulary),
      data_(path + kUnfinished, O_WRONLY | O_CREAT | O_TRUNC) {
  SLUICE_CHECK(index_path_ != path_, path, ": the ids can't be in a file that ends in .idx");
  pending_.reserve(kPendingBytes);
}

MegatronTokensWriter::~MegatronTokensWriter() {
  // What is left then is of no use to anyone, so that a failure to remove it changes nothing.
  if (!is_finished_) ::unlink((path_ + kUnfinished).c_str());
  if (!is_finished_) ::unlink((index_path_ + kUnfinished).c_str());
}

void MegatronTokensWriter::flush() {
  data_.write_at(pending_.data(), static_cast<std::int64_t>(pending_.size()), written_);
  written_ += static_cast<std::int64_t>(pending_.size());
  pending_.clear();
}

void MegatronTokensWriter::add(std::span<const std::int32_t> document) {
  SLUICE_CHECK(!is_finished_ && !document.empty(), path_, ": a document without tokens, or after the end");
  for (const std::int32_t id : document) {
    SLUICE_CHECK(id >= 0 && id < vocabulary_, path_, ": token ", id, " of a vocabulary of ", vocabulary_);
    const std::size_t width = is_short_ ? 2 : 4;
    if (pending_.size() + width > kPendingBytes) flush();
    const auto* bytes = reinterpret_cast<const char*>(&id);  // little endian: its low half is the u16
    pending_.insert(pending_.end(), bytes, bytes + width);
  }
  for (const std::int32_t length : megatron_sequences(static_cast<std::int64_t>(document.size()))) lengths_.push_back(length);
  boundaries_.push_back(static_cast<std::int64_t>(lengths_.size()));
}

void MegatronTokensWriter::finish() {
  SLUICE_CHECK(!is_finished_, path_, ": finished twice");
  flush();
  data_.sync();
  data_.close();

  File index(index_path_ + kUnfinished, O_WRONLY | O_CREAT | O_TRUNC);
  std::int64_t at = 0;
  const auto put = [&](const void* from, std::size_t bytes) {
    index.write_at(from, static_cast<std::int64_t>(bytes), at);
    at += static_cast<std::int64_t>(bytes);
  };
  const std::uint8_t code = is_short_ ? kCodeU16 : kCodeI32;
  const std::array<std::uint64_t, 2> counts{lengths_.size(), boundaries_.size()};
  put(kMagic.data(), kMagic.size());
  put(&kVersion, sizeof kVersion);
  put(&code, sizeof code);
  put(counts.data(), sizeof counts);
  put(lengths_.data(), lengths_.size() * sizeof(std::int32_t));
  std::vector<std::int64_t> pointers;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    pointers.push_back(begin);
    begin += (is_short_ ? 2 : 4) * std::int64_t{lengths_[i]};
    if (static_cast<std::int64_t>(pointers.size()) == kPiece || i + 1 == lengths_.size()) {
      put(pointers.data(), pointers.size() * sizeof(std::int64_t));
      pointers.clear();
    }
  }
  put(boundaries_.data(), boundaries_.size() * sizeof(std::int64_t));
  index.sync();
  index.close();

  // An old index must never stand beside new data.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const std::string directory = folder.empty() ? "." : folder.string();
  if (exists(index_path_)) {
    if (::unlink(index_path_.c_str()) != 0) throw IoError("removing", index_path_, errno);
    sync_directory(directory);
  }
  rename_path(path_ + kUnfinished, path_);
  rename_path(index_path_ + kUnfinished, index_path_);
  sync_directory(directory);
  is_finished_ = true;
}

}  // namespace sluice::formats
