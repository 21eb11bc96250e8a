#include "formats/llmc_tokens.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.hpp"

namespace sluice::formats {

static_assert(std::endian::native == std::endian::little, "llm.c's files are little endian; a big-endian host must swap bytes");

namespace {
constexpr std::int32_t kLlama3Magic = 20240801;
}

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
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= tokens_ - count, path(), ": tokens [", begin, ", ", begin + count, ") of ", tokens_);
  std::array<std::uint16_t, 8 * 1024> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below before use
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min<std::int64_t>(count - done, static_cast<std::int64_t>(piece.size()));
    file_.read(kLlmcHeaderBytes + 2 * (begin + done), piece.data(), 2 * n);
    std::copy_n(piece.begin(), n, out + done);
    done += n;
  }
}

}  // namespace sluice::formats
