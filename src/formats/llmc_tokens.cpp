#include "formats/llmc_tokens.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <limits>

#include "base/check.hpp"

namespace sluice::formats {

static_assert(std::endian::native == std::endian::little, "llm.c's files are little endian; a big-endian host must swap bytes");

namespace {
constexpr std::int32_t kLlama3Magic = 20240801;
constexpr const char* kUnfinished = ".unfinished";
constexpr std::size_t kPendingTokens = 512 << 10;
}  // namespace

LlmcTokens::LlmcTokens(const std::string& path) : file_(path) {
  const auto refuse = [&](const std::string& detail) { throw FormatError(path, detail); };
  if (file_.size() < kLlmcHeaderBytes) {
    refuse(cat("found ", file_.size(), " bytes, expected at least the ", kLlmcHeaderBytes, " of a header of llm.c's token files"));
  }
  std::array<std::int32_t, 3> header{};
  file_.read(0, header.data(), sizeof header);
  if (header[0] == kLlama3Magic) {
    refuse(cat("magic: found ", header[0], ", the one of llm.c's Llama 3 tokens (uint32), expected ", kLlmcTokensMagic,
               " (GPT-2 tokens, uint16)"));
  }
  if (header[0] != kLlmcTokensMagic) {
    refuse(cat("magic: found ", header[0], ", expected ", kLlmcTokensMagic, "; a .bin file must be one of llm.c's token files"));
  }
  if (header[1] != kLlmcTokensVersion) refuse(cat("version: found ", header[1], ", expected ", kLlmcTokensVersion));
  tokens_ = header[2];
  if (tokens_ < 0) refuse(cat("number of tokens: found ", tokens_, ", expected 0 or more"));
  const std::int64_t expected = kLlmcHeaderBytes + 2 * tokens_;
  if (file_.size() != expected) {
    refuse(cat("size: found ", file_.size(), " bytes, expected ", expected, " for the header's ", tokens_, " tokens; it is ",
               file_.size() < expected ? "cut short" : "too long", " or damaged"));
  }
}

void LlmcTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= tokens_ - count, path(), ": ", count, " tokens from ", begin, " of ", tokens_);
  std::array<std::uint16_t, 8 << 10> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below before use
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min<std::int64_t>(count - done, static_cast<std::int64_t>(piece.size()));
    file_.read(kLlmcHeaderBytes + 2 * (begin + done), piece.data(), 2 * n);
    std::copy_n(piece.begin(), n, out + done);
    done += n;
  }
}

LlmcTokensWriter::LlmcTokensWriter(const std::string& path, std::int64_t vocabulary) : path_(path), vocabulary_(vocabulary) {
  constexpr std::int64_t kLargest = std::int64_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  if (vocabulary > kLargest) {
    throw RequestError(cat(path, ": llm.c's token files hold ids below ", kLargest, ", the tokenizer has ", vocabulary,
                           "; write Megatron's (a name without .bin)"));
  }
  file_ = File(path + kUnfinished, O_WRONLY | O_CREAT | O_TRUNC);
  pending_.reserve(kPendingTokens);
}

LlmcTokensWriter::~LlmcTokensWriter() {
  // What is left then is of no use to anyone, so that a failure to remove it changes nothing.
  if (!is_finished_) ::unlink((path_ + kUnfinished).c_str());
}

void LlmcTokensWriter::flush() {
  file_.write_at(pending_.data(), static_cast<std::int64_t>(2 * pending_.size()), kLlmcHeaderBytes + 2 * tokens_);
  tokens_ += static_cast<std::int64_t>(pending_.size());
  pending_.clear();
}

void LlmcTokensWriter::add(std::span<const std::int32_t> tokens) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  SLUICE_CHECK(!is_finished_, path_, ": tokens after the end");
  if (tokens_ + static_cast<std::int64_t>(pending_.size() + tokens.size()) > kMost) {
    throw RequestError(cat(path_, ": one of llm.c's token files counts at most ", kMost,
                           " tokens; write several from parts of the data, or Megatron's (a name without .bin)"));
  }
  for (const std::int32_t token : tokens) {
    SLUICE_CHECK(token >= 0 && token < vocabulary_, path_, ": token ", token, " of a vocabulary of ", vocabulary_);
    pending_.push_back(static_cast<std::uint16_t>(token));
    if (pending_.size() == kPendingTokens) flush();
  }
}

void LlmcTokensWriter::finish() {
  SLUICE_CHECK(!is_finished_, path_, ": finished twice");
  flush();
  std::array<std::int32_t, kLlmcHeaderBytes / 4> header{kLlmcTokensMagic, kLlmcTokensVersion, static_cast<std::int32_t>(tokens_)};
  file_.write_at(header.data(), kLlmcHeaderBytes, 0);
  file_.sync();
  file_.close();
  rename_path(path_ + kUnfinished, path_);
  is_finished_ = true;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  sync_directory(folder.empty() ? "." : folder);
}

}  // namespace sluice::formats
