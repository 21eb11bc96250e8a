#pragma once
// The bytes of one of llm.c's token files.

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace sluice::testing {

inline std::string llmc_bytes(const std::vector<std::uint16_t>& tokens, std::int32_t magic = 20240520, std::int32_t version = 1) {
  std::array<std::int32_t, 256> header{magic, version, static_cast<std::int32_t>(tokens.size())};
  std::string bytes(1024 + 2 * tokens.size(), '\0');
  std::memcpy(bytes.data(), header.data(), 1024);
  if (!tokens.empty()) std::memcpy(bytes.data() + 1024, tokens.data(), 2 * tokens.size());
  return bytes;
}

}  // namespace sluice::testing
